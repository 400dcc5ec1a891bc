package session_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// assigned are partitions as a message lists them.
type assigned []struct {
	Topic      string
	Partitions []int
}

// UnmarshalJSON leaves out the plain numbers of a message about new partitions.
func (a *assigned) UnmarshalJSON(b []byte) error {
	var numbers []int
	if len(b) > 2 && json.Unmarshal(b, &numbers) == nil {
		return nil
	}
	type plain assigned
	return json.Unmarshal(b, (*plain)(a))
}

func (a assigned) String() string {
	var out []string
	for _, t := range a {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s/%d", t.Topic, p))
		}
	}
	return strings.Join(out, " ")
}

// groupBubble runs a test in fake time with a hub, whose groups have the partitions of spread to give, and
// sees to it that nothing is left when the hub is drained.
func groupBubble(t *testing.T, initial []topic.Path, test func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		log := spread(t)
		g := newFakeGroups(t, log, initial...)
		h, err := session.NewHub(session.DefaultConfig(), session.Deps{Log: log, Producer: log, Groups: g, NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		test(t, log, g, h)
		h.Drain(t.Context())
		if h.Live() != 0 || log.listeners() != 0 {
			t.Errorf("%d sessions and %d bells are left after the drain", h.Live(), log.listeners())
		}
	})
}

var (
	orders0, orders1 = path("orders", 0), path("orders", 1)
	users0           = path("users", 0)
)

func paths2(p ...topic.Path) []topic.Path { return p }

// member subscribes as w1 and reads the ok.
func (c *client) join(h *session.Hub, more string) message {
	c.t.Helper()
	c.next("hello")
	c.send(`{"id":1,"op":"subscribe","sub":"a","group":"billing","member":"w1","topics":["users","orders"]%s}`, more)
	return c.next("ok")
}

// takes reads records until there are n, and returns them in words, with the last cursor.
func (c *client) takes(n int) (got seen, cursor string) {
	c.t.Helper()
	for len(got) < n {
		m := c.next("records")
		for _, r := range m.Records {
			got = append(got, record(c.t, r))
		}
		cursor = m.Cursor
	}
	return got, cursor
}

func wantSaid(t testing.TB, g *fakeGroups, want ...string) {
	t.Helper()
	if got := g.said(); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("the node was asked\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func wantHolds(t testing.TB, g *fakeGroups, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := g.holds("w1"); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("the member holds %v, want %v", got, want)
	}
}

func TestGroupSubscription(t *testing.T) {
	groupBubble(t, paths2(orders0, orders1), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.committed[g.ref(orders0)] = 3
		c := dial(t, h, session.WebSocket{})
		ok := c.join(h, "")
		if ok.Member != "w1" || ok.Epoch != 1 || ok.Assignment.String() != "orders/0 orders/1" || string(ok.ID) != "1" || !strings.HasPrefix(ok.Cursor, "g1.") {
			t.Errorf("ok is %s", ok.raw)
		}
		got, cursor := c.takes(7)
		expect(t, got, "orders/0@3=3", "orders/0@4=4", "orders/1@0=0", "orders/1@1=1", "orders/1@2=2", "orders/1@3=3", "orders/1@4=4")
		c.next("caught_up")
		wantSaid(t, g, "join w1")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, cursor)
		synctest.Wait()
		wantSaid(t, g, "commit w1 1")
		if a, b := g.committedAt(orders0), g.committedAt(orders1); a != 5 || b != 5 {
			t.Errorf("committed are %d and %d", a, b)
		}
		// With an id it is answered, once it is committed; what was acknowledged is in no later cursor.
		log.values("orders", 1, "5")
		_, cursor = c.takes(1)
		if at, err := topic.ParseGroupCursor(cursor); err != nil || len(at.Commits()) != 1 {
			t.Errorf("the cursor is %+v, %v", at, err)
		}
		c.send(`{"id":"x","op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("ok"); string(m.ID) != `"x"` || g.committedAt(orders1) != 6 {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
		wantSaid(t, g, "commit w1 1", "end w1", "disconnect w1 1")
		// The same member goes on at its last ack, on its old partitions.
		log.values("orders", 1, "6")
		d := dial(t, h, session.WebSocket{})
		if ok := d.join(h, ""); ok.Epoch != 2 {
			t.Errorf("ok is %s", ok.raw)
		}
		got, _ = d.takes(1)
		expect(t, got, "orders/1@6=6")
		d.next("caught_up")
		d.send(`{"id":9,"op":"unsubscribe","sub":"a"}`)
		if m := d.next("ok"); string(m.ID) != "9" {
			t.Errorf("got %s", m.raw)
		}
		wantSaid(t, g, "join w1", "leave w1", "end w1")
		d.send(`{"op":"pause","sub":"a"}`)
		if m := d.next("error"); m.Problem.Code != "not_found" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(d)
		wantSaid(t, g)
	})
}

func TestGroupAssignmentChanges(t *testing.T) {
	groupBubble(t, paths2(orders0, orders1), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		_, first := c.takes(10)
		c.next("caught_up")
		log.values("orders", 1, "5")
		_, second := c.takes(1)

		// Taken away, the partition is given up when all that was sent of it is acknowledged.
		g.takeAway("w1", orders1)
		m := c.next("assignment")
		if m.Epoch != 2 || m.Removed.String() != "orders/1" || len(m.Added) != 0 {
			t.Errorf("got %s", m.raw)
		}
		log.values("orders", 1, "6")
		nothingComes(t, c, log)
		wantHolds(t, g, "orders/0", "-orders/1")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, first)
		wantHolds(t, g, "orders/0", "-orders/1")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, second)
		wantHolds(t, g, "orders/0")
		if at := g.committedAt(orders1); at != 6 {
			t.Errorf("committed is %d", at)
		}

		// With nothing unacknowledged it is given up at once, and others are added.
		g.give("w1", users0)
		if m := c.next("assignment"); m.Added.String() != "users/0" || len(m.Removed) != 0 {
			t.Errorf("got %s", m.raw)
		}
		c.takes(5)
		c.next("caught_up")
		g.takeAway("w1", orders0)
		if m := c.next("assignment"); m.Removed.String() != "orders/0" {
			t.Errorf("got %s", m.raw)
		}
		wantHolds(t, g, "users/0")

		// Any ack whose cursor was made since says that the client knows.
		g.takeAway("w1", users0)
		c.next("assignment")
		g.give("w1", orders0)
		c.next("assignment")
		c.next("caught_up")
		log.values("orders", 0, "5")
		got, third := c.takes(1)
		expect(t, got, "orders/0@5=5")
		wantHolds(t, g, "-users/0", "orders/0")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, third)
		wantHolds(t, g, "orders/0")
		if at := g.committedAt(users0); at != 5 {
			t.Errorf("committed is %d", at)
		}
		closeBoth(c)
	})
}

// What is taken away and given back before it was given up goes on where it stood.
func TestGroupPartitionComesBack(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.takes(5)
		c.next("caught_up")
		g.takeAway("w1", orders0)
		c.next("assignment")
		log.values("orders", 0, "5")
		time.AfterFunc(time.Minute, func() {
			if got := g.holds("w1"); len(got) != 1 || got[0] != "-orders/0" {
				t.Errorf("after a minute of pongs the member holds %v", got)
			}
			g.giveBack("w1", orders0)
		})
		if m := c.next("assignment"); m.Added.String() != "orders/0" {
			t.Errorf("got %s", m.raw)
		}
		got, cursor := c.takes(1)
		expect(t, got, "orders/0@5=5")
		c.next("caught_up")
		// The coordinator cuts what is not given up in time. An ack of it comes too late.
		g.takeAway("w1", orders0)
		c.next("assignment")
		g.cut("w1")
		synctest.Wait()
		c.send(`{"id":1,"op":"ack","sub":"a","cursor":%q}`, cursor)
		m := c.next("not_committed")
		if len(m.Offsets) != 1 || m.Offsets[0].Reason != "not_assigned" || m.Offsets[0].Topic != "orders" || m.Offsets[0].Next != 6 {
			t.Errorf("got %s", m.raw)
		}
		c.next("ok")
		closeBoth(c)
	})
}

// A partition whose position was moved is read anew, and an ack from before does not undo that.
func TestGroupSeek(t *testing.T) {
	groupBubble(t, paths2(orders0, orders1), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		_, cursor := c.takes(10)
		c.next("caught_up")
		g.seek("w1", orders0, 3)
		if m := c.next("assignment"); m.Added.String() != "orders/0" || m.Removed.String() != "orders/0" {
			t.Errorf("got %s", m.raw)
		}
		got, _ := c.takes(2)
		expect(t, got, "orders/0@3=3", "orders/0@4=4")
		c.next("caught_up")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("not_committed"); len(m.Offsets) != 1 || m.Offsets[0].Reason != "reassigned" || m.Offsets[0].Partition != 0 {
			t.Errorf("got %s", m.raw)
		}
		synctest.Wait()
		if a, b := g.committedAt(orders0), g.committedAt(orders1); a != 3 || b != 5 {
			t.Errorf("committed are %d and %d", a, b)
		}
		// What the node refuses is told too.
		log.values("orders", 0, "5")
		_, cursor = c.takes(1)
		g.mu.Lock()
		g.committed[g.ref(orders0)] = 100
		g.mu.Unlock()
		c.send(`{"id":2,"op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("not_committed"); m.Offsets[0].Reason != "behind_committed" || m.Offsets[0].Topic != "orders" {
			t.Errorf("got %s", m.raw)
		}
		c.next("ok")
		closeBoth(c)
	})
}

func TestGroupTakeOver(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		_, cursor := c.takes(5)
		c.next("caught_up")
		d := dial(t, h, session.WebSocket{})
		d.join(h, "")
		if m := c.next("error"); m.Problem.Code != "fenced_member" || m.Sub != "a" || m.ID != nil {
			t.Errorf("got %s", m.raw)
		}
		d.takes(5)
		d.next("caught_up")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("error"); m.Problem.Code != "not_found" {
			t.Errorf("got %s", m.raw)
		}
		g.said()
		closeBoth(c)
		wantSaid(t, g) // who was fenced has nothing to say any more
		// The process that took over may acknowledge with what it knows from before.
		d.send(`{"id":1,"op":"ack","sub":"a","cursor":%q}`, cursor)
		d.next("ok")
		if at := g.committedAt(orders0); at != 5 {
			t.Errorf("committed is %d", at)
		}
		closeBoth(d)
	})
}

// A member whose session has ended joins again by itself, and what it acknowledges of before is refused.
func TestGroupSessionEnds(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		_, cursor := c.takes(5)
		c.next("caught_up")
		g.expire("w1")
		if m := c.next("assignment"); len(m.Added) != 0 || m.Removed.String() != "orders/0" || m.Epoch != 1 {
			t.Errorf("got %s", m.raw)
		}
		if m := c.next("assignment"); m.Added.String() != "orders/0" || len(m.Removed) != 0 || m.Epoch != 2 {
			t.Errorf("got %s", m.raw)
		}
		wantSaid(t, g, "join w1", "look w1", "rejoin w1 1")
		c.takes(5)
		c.next("caught_up")
		c.send(`{"op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("not_committed"); m.Offsets[0].Reason != "reassigned" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}

// One that shows no sign of life does not join again until it does.
func TestGroupMemberSleeps(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.session = 3 * time.Second
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.takes(5)
		c.next("caught_up")
		g.said()
		awake := time.Now().Add(6 * time.Second)
		pongs := c.conn.PingHandler()
		c.conn.SetPingHandler(func(payload string) error {
			time.Sleep(time.Until(awake)) // the process is stopped
			return pongs(payload)
		})
		time.AfterFunc(3*time.Second, func() { g.expire("w1") })
		time.AfterFunc(5*time.Second, func() {
			if g.is("w1") {
				t.Error("who has stopped is a member")
			}
		})
		if m := c.next("assignment"); m.Removed.String() != "orders/0" || len(m.Added) != 0 {
			t.Errorf("got %s", m.raw)
		}
		if m := c.next("assignment"); m.Added.String() != "orders/0" || time.Now().Before(awake) {
			t.Errorf("got %s", m.raw)
		}
		wantSaid(t, g, "look w1", "rejoin w1 1")
		closeBoth(c)
	})
}

// Each pong is a sign of life, and a group with a short session is asked for more of them.
func TestGroupSignsOfLife(t *testing.T) {
	for _, s := range []struct {
		session time.Duration
		beats   int
	}{{45 * time.Second, 8}, {3 * time.Second, 120}} {
		groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
			g.session = s.session
			c := dial(t, h, session.WebSocket{})
			c.join(h, "")
			c.takes(5)
			c.next("caught_up")
			g.said()
			go func() { _, _ = c.read() }() // answers pings
			time.Sleep(2*time.Minute + 500*time.Millisecond)
			beats := len(g.said())
			if beats != s.beats {
				t.Errorf("%d signs of life in two minutes with a session of %v, want %d", beats, s.session, s.beats)
			}
			closeBoth(c)
		})
	}
	// Who does not answer shows none, and is cut in the end.
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.session = 3 * time.Second
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.takes(5)
		c.next("caught_up")
		g.said()
		c.conn.SetPingHandler(func(string) error { return nil })
		begun := time.Now()
		if code := c.closed(); code != 4004 {
			t.Errorf("closed with %d", code)
		}
		if lived := time.Since(begun); lived < 10*time.Second || lived > 12*time.Second {
			t.Errorf("lived for %v", lived)
		}
		closeBoth(c)
		wantSaid(t, g, "end w1", "disconnect w1 1")
	})
}

// While one commit is under way any number of acks come to one more, and nobody waits for it but those who asked.
func TestGroupAcksAreOne(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, `,"credit":{"records":1}`)
		g.hold = make(chan struct{})
		var cursors []string
		for i := range 5 {
			_, cursor := c.takes(1)
			cursors = append(cursors, cursor)
			c.send(`{"id":%d,"op":"ack","sub":"a","cursor":%q}`, i, cursor)
			c.send(`{"op":"credit","sub":"a","records":1}`)
		}
		c.next("caught_up")
		nothingComes(t, c, log) // and the session goes on meanwhile
		log.values("orders", 0, "5")
		c.takes(1)
		close(g.hold)
		for i := range 5 {
			if m := c.next("ok"); string(m.ID) != fmt.Sprint(i) {
				t.Errorf("got %s", m.raw)
			}
		}
		wantSaid(t, g, "join w1", "commit w1 1", "commit w1 1")
		// An old one again takes nothing back, and is no mistake.
		c.send(`{"id":7,"op":"ack","sub":"a","cursor":%q}`, cursors[4])
		c.next("ok")
		if at := g.committedAt(orders0); at != 5 {
			t.Errorf("committed is %d", at)
		}
		closeBoth(c)
	})
}

// Acks with an id that wait for their commit are bounded.
func TestGroupAcksAreBounded(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		_, cursor := c.takes(5)
		c.next("caught_up")
		g.hold = make(chan struct{})
		const most = 256
		for i := range most + 2 { // the first is on its way at once, or not
			c.send(`{"id":%d,"op":"ack","sub":"a","cursor":%q}`, i, cursor)
			synctest.Wait()
		}
		if m := c.next("error"); m.Problem.Code != "overloaded" || string(m.ID) != fmt.Sprint(most+1) {
			t.Errorf("got %s", m.raw)
		}
		close(g.hold)
		for range most + 1 {
			c.next("ok")
		}
		closeBoth(c)
	})
}

func TestGroupAutoAck(t *testing.T) {
	groupBubble(t, paths2(orders0, orders1), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","group":"billing","member":"w1","topic_prefix":"ord","ack":"auto"}`)
		c.next("ok")
		c.takes(10)
		c.next("caught_up")
		synctest.Wait()
		if a, b := g.committedAt(orders0), g.committedAt(orders1); a != 5 || b != 5 {
			t.Errorf("committed are %d and %d", a, b)
		}
		wantSaid(t, g, "join w1", "commit w1 1")
		// Many frames come to few commits.
		for i := range 20 {
			log.values("orders", 0, fmt.Sprint(i))
			c.takes(1)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := len(g.said()); n > 4 || g.committedAt(orders0) != 25 {
			t.Errorf("%d calls for 20 frames in 200 ms, committed is %d", n, g.committedAt(orders0))
		}
		// Taken away, it is given up at once.
		log.values("orders", 0, "7")
		c.takes(1)
		g.takeAway("w1", orders0)
		c.next("assignment")
		wantHolds(t, g, "orders/1")
		if at := g.committedAt(orders0); at != 26 {
			t.Errorf("committed is %d", at)
		}
		// What is committed last is committed though the connection ends.
		time.Sleep(time.Second)
		log.values("orders", 1, "7")
		c.takes(1)
		log.values("orders", 1, "8")
		c.takes(1)
		closeBoth(c)
		if at := g.committedAt(orders1); at != 7 {
			t.Errorf("committed is %d", at)
		}
	})
}

// Trouble of the coordinator passes: the member goes on reading, and nothing that was acknowledged is lost.
func TestGroupTrouble(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.setTrouble(fault.Newf("fake", fault.Loading, nil, "not yet"))
		time.AfterFunc(3*time.Second, func() { g.setTrouble(nil) })
		c := dial(t, h, session.WebSocket{})
		c.join(h, "") // waits for it
		_, cursor := c.takes(5)
		c.next("caught_up")
		for _, kind := range []fault.Kind{fault.NotLeader, fault.Timeout, fault.NotReplicated} {
			g.setTrouble(fault.Newf("fake", kind, nil, "trouble"))
			c.send(`{"id":1,"op":"ack","sub":"a","cursor":%q}`, cursor)
			nothingComes(t, c, log)
			log.values("orders", 0, "5")
			_, cursor = c.takes(1)
			g.setTrouble(nil)
			c.next("ok")
		}
		if at := g.committedAt(orders0); at != 7 {
			t.Errorf("committed is %d", at)
		}
		// An error that does not pass ends the subscription, and says why.
		g.setTrouble(fault.Newf("fake", fault.Superseded, nil, "another poll"))
		c.send(`{"id":5,"op":"ack","sub":"a","cursor":%q}`, cursor)
		if m := c.next("error"); string(m.ID) != "5" || m.Problem.Code != "superseded_poll" {
			t.Errorf("got %s", m.raw)
		}
		if m := c.next("error"); m.ID != nil || m.Problem.Code != "superseded_poll" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
	groupBubble(t, nil, func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		g.setTrouble(fault.Newf("fake", fault.Loading, nil, "not yet"))
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"id":1,"op":"subscribe","sub":"a","group":"billing","topic":"orders"}`)
		begun := time.Now()
		if m := c.next("error"); string(m.ID) != "1" || m.Problem.Code != "coordinator_loading" {
			t.Errorf("got %s", m.raw)
		}
		if waited := time.Since(begun); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("waited for %v", waited)
		}
		g.setTrouble(nil)
		// A member without a name gets one, and a subscription without partitions is silent.
		c.send(`{"id":2,"op":"subscribe","sub":"a","group":"billing","topic_pattern":".*"}`)
		if m := c.next("ok"); m.Member != "m-1" || m.Assignment == nil || len(m.Assignment) != 0 {
			t.Errorf("got %s", m.raw)
		}
		nothingComes(t, c, log)
		g.setTrouble(fault.Newf("fake", fault.NotLeader, nil, "trouble"))
		c.send(`{"id":3,"op":"unsubscribe","sub":"a"}`)
		if m := c.next("error"); string(m.ID) != "3" || m.Problem.Code != "not_leader" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
		said := g.said()
		if said[len(said)-1] != "disconnect m-1 1" {
			t.Errorf("the node was asked %v", said)
		}
	})
}

// Who changes its mind before it has joined hears that, and not that the node stops.
func TestGroupUnsubscribeWhileJoining(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, _ *fakeLog, g *fakeGroups, h *session.Hub) {
		g.setTrouble(fault.Newf("fake", fault.Loading, nil, "not yet"))
		time.AfterFunc(time.Second, func() { g.setTrouble(nil) })
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"id":1,"op":"subscribe","sub":"a","group":"billing","topic":"orders"}`)
		c.send(`{"id":2,"op":"unsubscribe","sub":"a"}`)
		if m := c.next("error"); string(m.ID) != "1" || m.Problem.Code != "not_found" || m.Problem.Status != 404 {
			t.Errorf("got %s", m.raw)
		}
		if m := c.next("ok"); string(m.ID) != "2" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}

// Who is slow holds up its own records and nothing else: its member stays, and follows the assignment.
func TestGroupSlowReader(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, `,"credit":{"records":2}`)
		c.takes(2)
		fetched := log.fetched()
		nothingComes(t, c, log)
		go func() {
			time.Sleep(30 * time.Second)
			g.give("w1", users0)
		}()
		if m := c.next("assignment"); m.Added.String() != "users/0" {
			t.Errorf("got %s", m.raw)
		}
		nothingComes(t, c, log)
		if n := log.fetched(); n != fetched {
			t.Errorf("the log was read %d times without credit", n-fetched)
		}
		c.send(`{"op":"credit","sub":"a","records":100}`)
		got, _ := c.takes(8)
		if len(got) != 8 {
			t.Errorf("got %v", got)
		}
		closeBoth(c)
	})
	// A socket that takes its bytes slowly is alive as long as it takes them.
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		log.values("orders", 0, fmt.Sprintf("%q", strings.Repeat("x", 500_000)))
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		g.said()
		piece := make([]byte, 5000)
		for range 60 {
			time.Sleep(5 * time.Second)
			if _, err := c.raw.Read(piece); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(g.said()); n < 20 {
			t.Errorf("%d signs of life in 5 minutes of one frame", n)
		}
		closeBoth(c)
	})
}

func TestGroupOpsThatAreRefused(t *testing.T) {
	groupBubble(t, nil, func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.send(`{"op":"subscribe","sub":"plain","topic":"orders","from":"latest"}`)
		c.next("ok")
		c.next("caught_up")
		other := topic.GroupCursor{Group: topic.GroupSum("other"), Epoch: 1}
		for _, s := range []struct{ frame, code string }{
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","partitions":[0]}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","from":"latest"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","on_gap":"latest"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","start":"-5"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","ack":"later"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","topic":"orders","topic_prefix":"o"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"a/b","topic":"orders"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","group":"billing","member":"","topic":"orders"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","topic":"orders","member":"w1"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"b","topic":"orders","ack":"auto"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"a","group":"billing","topic":"orders"}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":"earliest"}`, "validation_failed"},
			{`{"op":"ack","sub":"a"}`, "validation_failed"},
			{`{"op":"ack","sub":"a","cursor":"g1.x"}`, "invalid_cursor"},
			{`{"op":"ack","sub":"a","cursor":"c1.AAHWZFWzGBFR__0OCDggur51AwAAAgFrcuZN"}`, "invalid_cursor"},
			{`{"op":"ack","sub":"a","cursor":"` + other.String() + `"}`, "invalid_cursor"},
			{`{"op":"ack","sub":"plain","cursor":"` + other.String() + `"}`, "validation_failed"},
			{`{"op":"ack","sub":"z","cursor":"` + other.String() + `"}`, "not_found"},
		} {
			c.send("%s", s.frame)
			if m := c.next("error"); m.Problem.Code != s.code {
				t.Errorf("%s: got %s, want %s", s.frame, m.raw, s.code)
			}
		}
		closeBoth(c)
	})
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"b","group":"billing","topic":"orders"}`)
		if m := c.next("error"); m.Problem.Code != "bad_request" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}

// A topic that is deleted under a group ends nothing: the group says what is read instead.
func TestGroupTopicIsDeleted(t *testing.T) {
	groupBubble(t, paths2(orders0, users0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.takes(10)
		c.next("caught_up")
		log.remove("users")
		nothingComes(t, c, log)
		log.values("orders", 0, "5")
		c.takes(1)
		g.takeAway("w1", users0)
		if m := c.next("assignment"); m.Removed.String() != "users/0" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}

// A drain ends memberships in time, and says goodbye to the node for each.
func TestGroupDrain(t *testing.T) {
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.join(h, "")
		c.takes(5)
		c.next("caught_up")
		go func() { _ = c.closed() }()
		begun := time.Now()
		h.Drain(t.Context())
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the drain took %v", took)
		}
		wantSaid(t, g, "join w1", "end w1", "disconnect w1 1")
	})
}

// A topic that does not exist is waited for, and named.
func TestGroupNamesTopicsThatDoNotExist(t *testing.T) {
	const missing = `,"missing_topics":["ordrs"]`
	groupBubble(t, paths2(orders0), func(t *testing.T, _ *fakeLog, g *fakeGroups, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","group":"billing","member":"w1","topics":["ordrs","orders"]}`)
		if ok := c.next("ok"); !strings.HasSuffix(ok.raw, `"assignment":[{"topic":"orders","partitions":[0]}]`+missing+"}") {
			t.Errorf("ok is %s", ok.raw)
		}
		c.takes(5)
		c.next("caught_up")
		g.give("w1", orders1)
		if change := c.next("assignment"); !strings.HasSuffix(change.raw, missing+"}") {
			t.Errorf("got %s", change.raw)
		}
	})
	groupBubble(t, paths2(orders0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
		c := joinLinesOf(t, h, false, topic.Subscription{Topics: []topic.Name{"orders", "ordrs"}})
		c.want(`{"assignment":{"member":"w1","epoch":1,"added":[{"topic":"orders","partitions":[0]}],"removed":[]` + missing + `}}`)
		c.takes(5)
		log.create("ordrs", 1)
		g.takeAway("w1", orders0)
		c.want(`{"assignment":{"member":"w1","epoch":2,"added":[],"removed":[{"topic":"orders","partitions":[0]}]}}`)
		_ = c.conn.Close()
	})
}
