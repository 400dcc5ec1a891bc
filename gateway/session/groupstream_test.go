package session_test

import (
	"bufio"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// lineClient reads a stream of a member of a group.
type lineClient struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func joinLines(t testing.TB, h *session.Hub, auto bool) *lineClient {
	t.Helper()
	return joinLinesOf(t, h, auto, topic.Subscription{Prefix: "o"})
}

func joinLinesOf(t testing.TB, h *session.Hub, auto bool, what topic.Subscription) *lineClient {
	t.Helper()
	m, r, err := h.Join(t.Context(), session.Join{
		Group: "billing", Member: "w1", Auto: auto, Subscription: what,
		Format: session.Format{Shape: session.Lines},
	})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close() })
	h.Stream(far, session.Stream{Reader: r, Member: m, Mouth: session.NDJSON{}})
	return &lineClient{t: t, conn: near, in: bufio.NewReader(near)}
}

// next is the next line that is not empty.
func (c *lineClient) next() string {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("the stream ends: %v", err)
		}
		if line != "\n" {
			return strings.TrimSuffix(line, "\n")
		}
	}
}

// takes reads n records and the cursor behind them.
func (c *lineClient) takes(n int) (got seen, cursor string) {
	c.t.Helper()
	for range n {
		got = append(got, record(c.t, []byte(c.next())))
	}
	var m struct{ Cursor string }
	if line := c.next(); json.Unmarshal([]byte(line), &m) != nil || m.Cursor == "" {
		c.t.Fatalf("got %s in place of a cursor", line)
	}
	return got, m.Cursor
}

func (c *lineClient) want(line string) {
	c.t.Helper()
	if got := c.next(); got != line {
		c.t.Errorf("got %s, want %s", got, line)
	}
}

// commit acknowledges over another way, as REST does.
func (g *fakeGroups) commitCursor(t testing.TB, text string) {
	c, err := topic.ParseGroupCursor(text)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range c.Commits() {
		if reason := g.commit(g.members["w1"], &a); reason != "" {
			t.Errorf("%+v is refused: %s", a, reason)
		}
	}
}

func TestGroupStream(t *testing.T) {
	groupBubble(t, paths2(orders0, orders1), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.committed[g.ref(orders0)] = 3
		c := joinLines(t, h, false)
		c.want(`{"assignment":{"member":"w1","epoch":1,"added":[{"topic":"orders","partitions":[0,1]}],"removed":[]}}`)
		got, first := c.takes(7)
		expect(t, got, "orders/0@3=3", "orders/0@4=4", "orders/1@0=0", "orders/1@1=1", "orders/1@2=2", "orders/1@3=3", "orders/1@4=4")

		// Acknowledged elsewhere before it is taken away, it is given up at once.
		g.commitCursor(t, first)
		g.takeAway("w1", orders0)
		c.want(`{"assignment":{"member":"w1","epoch":2,"added":[],"removed":[{"topic":"orders","partitions":[0]}]}}`)
		wantHolds(t, g, "orders/1")
		// And acknowledged afterwards, with the next sign of life.
		log.values("orders", 1, "5")
		_, second := c.takes(1)
		g.takeAway("w1", orders1)
		c.next()
		wantHolds(t, g, "-orders/1")
		g.commitCursor(t, second)
		wantHolds(t, g, "-orders/1")
		go func() { // takes the heartbeats
			time.Sleep(40 * time.Second)
			g.give("w1", orders0)
		}()
		c.want(`{"assignment":{"member":"w1","epoch":4,"added":[{"topic":"orders","partitions":[0]}],"removed":[]}}`)
		wantHolds(t, g, "orders/0")

		log.retain("orders", 0, 5)
		log.values("orders", 0, "5")
		g.seek("w1", orders0, 2)
		if line := c.next(); !strings.HasPrefix(line, `{"topic"`) && !strings.HasPrefix(line, `{"assignment"`) {
			t.Errorf("got %s", line)
		}
		for !strings.HasPrefix(c.next(), `{"gap":{"topic":"orders","partition":0,"from":2,"to":5,"reason":"retention"}}`) {
		}
		g.said()
		_ = c.conn.Close()
		synctest.Wait()
		wantSaid(t, g, "end w1", "disconnect w1 5")
	})
}

func TestGroupStreamAcksByItself(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.session = 3 * time.Second
		c := joinLines(t, h, true)
		c.next()
		c.takes(5)
		synctest.Wait()
		if at := g.committedAt(orders0); at != 5 {
			t.Errorf("committed is %d", at)
		}
		// Writes are the signs of life, as many as the session needs.
		g.said()
		go func() {
			time.Sleep(time.Minute)
			log.values("orders", 0, "5")
		}()
		c.takes(1)
		if n := len(g.said()); n < 58 || n > 62 {
			t.Errorf("%d signs of life in a minute with a session of 3 s", n)
		}
		time.Sleep(1500 * time.Millisecond) // between two signs of life
		g.mu.Lock()
		g.committed[g.ref(orders0)] = 100
		g.mu.Unlock()
		log.values("orders", 0, "6")
		c.takes(1)
		c.want(`{"not_committed":[{"topic":"orders","partition":0,"next_offset":7,"reason":"behind_committed"}]}`)
		// A session that is over begins anew with the next line that is taken.
		g.expire("w1")
		c.want(`{"assignment":{"member":"w1","epoch":1,"added":[],"removed":[{"topic":"orders","partitions":[0]}]}}`)
		c.want(`{"assignment":{"member":"w1","epoch":2,"added":[{"topic":"orders","partitions":[0]}],"removed":[]}}`)
		c.want(`{"gap":{"topic":"orders","partition":0,"from":100,"to":7,"reason":"truncated"}}`)
		c.next()
		// The name is taken over.
		d := joinLines(t, h, true)
		d.next()
		if line := c.next(); !strings.HasPrefix(line, `{"error":{`) || !strings.Contains(line, `"code":"fenced_member"`) || !strings.Contains(line, `"cursor":"g1.`) {
			t.Errorf("got %s", line)
		}
		if _, err := c.in.ReadByte(); err == nil {
			t.Error("the stream goes on")
		}
		_ = d.conn.Close()
		synctest.Wait()
	})
}

// While the log has trouble the stream, and the member, live on.
func TestGroupStreamInTrouble(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := joinLines(t, h, false)
		c.next()
		c.takes(5)
		log.setTrouble(fault.Newf("fake", fault.NotLeader, nil, "trouble"))
		log.values("orders", 0, "5")
		g.said()
		time.AfterFunc(2*time.Minute+time.Second, func() {
			if n := len(g.said()); n != 8 {
				t.Errorf("%d signs of life in two minutes", n)
			}
			log.setTrouble(nil)
		})
		c.takes(1)
		_ = c.conn.Close()
		synctest.Wait()
	})
}

func TestGroupStreamRefuses(t *testing.T) {
	groupBubble(t, nil, func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		join := session.Join{Group: "billing", Member: topic.MadeMember, Subscription: topic.Subscription{Prefix: "o"}}
		g.setTrouble(fault.Newf("fake", fault.Limit, nil, "too many"))
		if _, _, err := h.Join(t.Context(), join); !fault.Is(err, fault.Limit) {
			t.Errorf("got %v", err)
		}
		g.setTrouble(fault.Newf("fake", fault.Loading, nil, "not yet"))
		begun := time.Now()
		if _, _, err := h.Join(t.Context(), join); !fault.Is(err, fault.Loading) || time.Since(begun) < 10*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		g.setTrouble(nil)
		// A stream that cannot begin any more gives its member back.
		m, r, err := h.Join(t.Context(), join)
		if err != nil {
			t.Fatal(err)
		}
		h.Drain(t.Context())
		g.said()
		_, far := net.Pipe()
		h.Stream(far, session.Stream{Reader: r, Member: m, Mouth: session.NDJSON{}})
		wantSaid(t, g, "end m-1", "disconnect m-1 1")
	})
}
