package session_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// groupModel follows what one member of a group gets, and what is done to it meanwhile.
type groupModel struct {
	t     *testing.T
	rnd   *rand.Rand
	log   *fakeLog
	g     *fakeGroups
	c     *client
	auto  bool
	trace []string

	mu  sync.Mutex
	got []message // not looked at yet
	end error
	up  []givenUp // since it was last looked

	reads   map[topic.Path]*modelPart   // what the client believes to be assigned to it
	kept    map[topic.Path]topic.Offset // how far it has read what was taken away from it
	cursors []string                    // all that it was sent
	last    map[topic.Path]*modelPart   // what was taken away last
	ends    map[topic.Path]topic.Offset
}

// givenUp is a partition that the member has given up, with what was committed then.
type givenUp struct {
	path      topic.Path
	assigned  topic.GroupEpoch
	committed topic.Offset
}

// modelPart is a partition as the client sees it.
type modelPart struct {
	next     topic.Offset     // NoOffset: nothing came yet
	assigned topic.GroupEpoch // as the cursors of its records say
}

func (m *groupModel) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.trace {
		m.t.Log(line)
	}
	m.t.Fatalf(format, args...)
}

func (m *groupModel) did(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

// follow reads messages until the connection ends.
func (m *groupModel) follow() {
	for {
		got, err := m.c.read()
		m.mu.Lock()
		if err != nil {
			m.end = err
			m.mu.Unlock()
			return
		}
		m.got = append(m.got, got)
		m.mu.Unlock()
	}
}

// look checks what came.
func (m *groupModel) look() {
	synctest.Wait()
	m.mu.Lock()
	got, err, up := m.got, m.end, m.up
	m.got, m.up = nil, nil
	m.mu.Unlock()
	if err != nil {
		m.fail("the connection has ended: %v", err)
	}
	for _, one := range got {
		m.did("  %.160s", one.raw)
		switch one.Op {
		case "ok":
			for _, p := range listed(one.Assignment) {
				m.reads[p] = &modelPart{next: topic.NoOffset}
			}
		case "assignment":
			for _, p := range listed(one.Removed) {
				if m.reads[p] == nil {
					m.fail("%v is removed, and was not there", p)
				}
				m.kept[p] = max(m.kept[p], m.reads[p].next)
				m.last[p] = m.reads[p]
				delete(m.reads, p)
			}
			for _, p := range listed(one.Added) {
				if m.reads[p] != nil {
					m.fail("%v is added twice", p)
				}
				m.reads[p] = &modelPart{next: topic.NoOffset}
			}
		case "records":
			m.cursors = append(m.cursors, one.Cursor)
			for _, r := range one.Records {
				m.record(record(m.t, r), one.Cursor)
			}
		case "caught_up", "not_committed", "pong":
		default:
			m.fail("got %s", one.raw)
		}
	}
	for _, u := range up {
		m.did("  %v is given up at %d", u.path, u.committed)
		if part := m.last[u.path]; part != nil && part.assigned == u.assigned && part.next > u.committed {
			m.fail("%v is given up at %d, the client was sent up to %d", u.path, u.committed, part.next)
		}
	}
}

func listed(a assigned) []topic.Path {
	var out []topic.Path
	for _, t := range a {
		for _, p := range t.Partitions {
			out = append(out, path(topic.Name(t.Topic), topic.Partition(p)))
		}
	}
	return out
}

// record checks one record: of a partition that is assigned, and the next of it.
func (m *groupModel) record(words, cursor string) {
	for p, part := range m.reads {
		var offset, value int64
		if n, _ := fmt.Sscanf(words, p.String()+"@%d=%d", &offset, &value); n != 2 {
			continue
		}
		at := topic.Offset(offset)
		if offset != value {
			m.fail("%s has the value of another", words)
		}
		if part.next != topic.NoOffset && at != part.next {
			m.fail("%s comes, and not offset %d", words, part.next)
		}
		if part.next == topic.NoOffset && at > m.kept[p] {
			m.fail("%s comes first, though the member has read to %d only", words, m.kept[p])
		}
		part.next = at + 1
		c, err := topic.ParseGroupCursor(cursor)
		if err != nil {
			m.fail("%v", err)
		}
		behind, ok := c.Part(m.g.ref(p))
		if !ok || behind.Next < part.next {
			m.fail("the cursor of %s ends at %+v", words, behind)
		}
		part.assigned = behind.Assigned
		return
	}
	m.fail("%s comes, and is of no partition that is assigned", words)
}

// step does something at random.
func (m *groupModel) step() {
	all := []topic.Path{orders0, orders1, users0}
	p := all[m.rnd.IntN(len(all))]
	held, leaving := m.g.state("w1", p)
	switch m.rnd.IntN(12) {
	case 0, 1, 2:
		m.did("append %v", p)
		m.log.values(p.Topic, p.Partition, fmt.Sprint(m.ends[p]))
		m.ends[p]++
	case 3:
		if !held && m.g.is("w1") {
			m.did("give %v", p)
			m.g.give("w1", p)
		}
	case 4, 5:
		if held && !leaving {
			m.did("take away %v", p)
			m.g.takeAway("w1", p)
		}
	case 6:
		if leaving {
			m.did("give back or cut %v", p)
			if m.rnd.IntN(2) == 0 {
				m.g.giveBack("w1", p)
			} else {
				m.g.cut("w1")
			}
		}
	case 7:
		m.did("trouble")
		m.g.setTrouble(fault.Newf("fake", fault.Loading, nil, "trouble"))
	case 8:
		m.did("no trouble")
		m.g.setTrouble(nil)
	case 9:
		if m.rnd.IntN(6) == 0 && m.g.is("w1") {
			m.did("expire")
			m.g.expire("w1")
		}
	default:
		m.ack(m.rnd.IntN(3))
	}
	m.look()
	if m.rnd.IntN(4) == 0 {
		time.Sleep(time.Duration(m.rnd.IntN(2000)) * time.Millisecond)
	}
}

// ack acknowledges the last cursor, or one of those before.
func (m *groupModel) ack(before int) {
	if n := len(m.cursors); !m.auto && n > before {
		m.did("ack %d before the last", before)
		m.c.send(`{"op":"ack","sub":"a","cursor":%q}`, m.cursors[n-1-before])
	}
}

// settle has all trouble end, and checks where that leads.
func (m *groupModel) settle() {
	m.did("settle")
	m.g.setTrouble(nil)
	m.look()
	time.Sleep(5 * time.Second)
	m.look()
	if len(m.cursors) > 0 {
		m.ack(0)
	}
	time.Sleep(5 * time.Second)
	m.look()
	for p, end := range m.ends {
		held, leaving := m.g.state("w1", p)
		if leaving {
			m.fail("%v is not given up", p)
		}
		part := m.reads[p]
		if held != (part != nil) {
			m.fail("the client has %v: %v, and the group says %v", p, part != nil, held)
		}
		if !held {
			continue
		}
		if at := m.g.committedAt(p); part.next != topic.NoOffset && part.next != end || part.next == topic.NoOffset && at != end || at != end {
			m.fail("%v ends at %d, the client has read to %d, and %d is committed", p, end, part.next, at)
		}
	}
}

// state says whether a member has a partition, and is to give it up.
func (g *fakeGroups) state(name topic.MemberName, p topic.Path) (held, leaving bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[name]; m != nil {
		for _, h := range m.held {
			if h.path == p {
				return true, h.leaving != 0
			}
		}
	}
	return false, false
}

func (g *fakeGroups) is(name topic.MemberName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[name] != nil
}

// Whatever a group does to its member, and however it fails meanwhile: records come in order and of what is
// assigned alone, none is left out, what was taken away is given up when all of it is acknowledged and not
// sooner, and in the end all is read and committed.
func TestGroupModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	if os.Getenv("WEIR_SOAK") != "" {
		seeds = 10_000
	}
	for seed := range seeds {
		groupBubble(t, paths2(orders0, users0), func(t *testing.T, log *fakeLog, g *fakeGroups, h *session.Hub) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			m := &groupModel{
				t: t, rnd: rnd, log: log, g: g, auto: seed%3 == 0,
				reads: map[topic.Path]*modelPart{}, kept: map[topic.Path]topic.Offset{}, last: map[topic.Path]*modelPart{},
				ends: map[topic.Path]topic.Offset{orders0: 5, orders1: 5, users0: 5},
			}
			m.did("seed %d", seed)
			g.released = func(p topic.Path, assigned topic.GroupEpoch, committed topic.Offset) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.up = append(m.up, givenUp{p, assigned, committed})
			}
			m.c = dial(t, h, session.WebSocket{})
			m.c.next("hello")
			ack := "manual"
			if m.auto {
				ack = "auto"
			}
			m.c.send(`{"op":"subscribe","sub":"a","group":"billing","member":"w1","topic_prefix":"x","ack":%q}`, ack)
			go m.follow()
			m.look()
			for range 60 {
				m.step()
			}
			m.settle()
			closeBoth(m.c)
		})
	}
}
