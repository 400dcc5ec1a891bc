package session_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// fakeGroups is the coordinator of one group, whose assignments a test makes. It keeps to what a member may
// rely on: epochs that rise, turns, fences, and partitions that are given up by the epoch that a call names.
type fakeGroups struct {
	t   testing.TB
	log *fakeLog

	mu        sync.Mutex
	epoch     topic.GroupEpoch
	turns     uint64
	members   map[topic.MemberName]*fakeMember
	initial   []topic.Path // what who joins is assigned
	committed map[topic.Ref]topic.Offset
	session   time.Duration
	start     topic.GroupStart
	calls     []string      // what was asked, in words
	trouble   error         // what every call answers; nil: what it should
	hold      chan struct{} // what commits wait for; nil: nothing
	making    int
	released  func(p topic.Path, assigned topic.GroupEpoch, committed topic.Offset) // called when a partition is given up; nil: nobody cares
}

type fakeMember struct {
	epoch, since, also topic.GroupEpoch
	held               []fakeHolding
	turn               uint64
	changed            chan struct{}
	sub                topic.Subscription
}

type fakeHolding struct {
	path     topic.Path
	ref      topic.Ref
	assigned topic.GroupEpoch
	leaving  topic.GroupEpoch // 0: not
}

func newFakeGroups(t testing.TB, log *fakeLog, initial ...topic.Path) *fakeGroups {
	return &fakeGroups{
		t: t, log: log, members: map[topic.MemberName]*fakeMember{}, initial: initial,
		committed: map[topic.Ref]topic.Offset{}, session: 45 * time.Second,
	}
}

func path(name topic.Name, n topic.Partition) topic.Path {
	return topic.Path{Topic: name, Partition: n}
}

func (g *fakeGroups) ref(p topic.Path) topic.Ref {
	d, err := g.log.Topic(p.Topic)
	if err != nil {
		g.t.Error(err)
		return topic.Ref{}
	}
	return topic.Ref{ID: d.ID, Partition: p.Partition}
}

func (g *fakeGroups) note(format string, args ...any) {
	g.calls = append(g.calls, fmt.Sprintf(format, args...))
}

// said are the calls since the last time it was asked.
func (g *fakeGroups) said() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	said := g.calls
	g.calls = nil
	return said
}

func (m *fakeMember) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// change raises the epoch of a member, does something, and tells it.
func (g *fakeGroups) change(name topic.MemberName, do func(m *fakeMember)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[name]
	if m == nil {
		g.t.Errorf("%s is no member", name)
		return
	}
	g.epoch++
	m.epoch = g.epoch
	do(m)
	m.wake()
}

// give assigns partitions to a member, takeAway takes some.
func (g *fakeGroups) give(name topic.MemberName, paths ...topic.Path) {
	g.change(name, func(m *fakeMember) {
		for _, p := range paths {
			m.held = append(m.held, fakeHolding{path: p, ref: g.ref(p), assigned: g.epoch})
		}
	})
}

func (g *fakeGroups) takeAway(name topic.MemberName, paths ...topic.Path) {
	g.change(name, func(m *fakeMember) {
		for i := range m.held {
			if slices.Contains(paths, m.held[i].path) {
				m.held[i].leaving = g.epoch
			}
		}
	})
}

// giveBack takes back that partitions were taken away.
func (g *fakeGroups) giveBack(name topic.MemberName, paths ...topic.Path) {
	g.change(name, func(m *fakeMember) {
		for i := range m.held {
			if slices.Contains(paths, m.held[i].path) {
				m.held[i].leaving = 0
			}
		}
	})
}

// cut takes away what a member has not given up.
func (g *fakeGroups) cut(name topic.MemberName) {
	g.change(name, func(m *fakeMember) {
		m.held = slices.DeleteFunc(m.held, func(h fakeHolding) bool { return h.leaving != 0 })
	})
}

// seek moves the group in a partition.
func (g *fakeGroups) seek(name topic.MemberName, p topic.Path, to topic.Offset) {
	g.change(name, func(m *fakeMember) {
		for i := range m.held {
			if m.held[i].path == p {
				m.held[i].assigned = g.epoch
			}
		}
		g.committed[g.ref(p)] = to
	})
}

// expire ends the session of a member.
func (g *fakeGroups) expire(name topic.MemberName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[name].wake()
	delete(g.members, name)
}

// holds are the partitions of a member, with a minus where one is to be given up.
func (g *fakeGroups) holds(name topic.MemberName) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	if m := g.members[name]; m != nil {
		for _, h := range m.held {
			sign := ""
			if h.leaving != 0 {
				sign = "-"
			}
			out = append(out, sign+h.path.String())
		}
	}
	return out
}

func (g *fakeGroups) committedAt(p topic.Path) topic.Offset {
	ref := g.ref(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, there := g.committed[ref]; there {
		return at
	}
	return topic.NoOffset
}

func (g *fakeGroups) setTrouble(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble = err
}

func (g *fakeGroups) PollGroup(ctx context.Context, p *topic.GroupPoll) (topic.GroupTurn, error) {
	g.mu.Lock()
	hold := g.hold
	g.mu.Unlock()
	if hold != nil && len(p.Ack) > 0 {
		select {
		case <-hold:
		case <-ctx.Done():
			return topic.GroupTurn{}, ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note("%s", g.wording(p))
	if g.trouble != nil {
		return topic.GroupTurn{}, g.trouble
	}
	if p.Kind != topic.ConnectedMember || p.Node != 1 || p.Principal != topic.Anonymous {
		g.t.Errorf("a member calls as %+v", p)
	}
	m, err := g.member(p)
	if err != nil {
		return topic.GroupTurn{}, err
	}
	out := topic.GroupTurn{Member: p.Member, Start: g.start, Session: g.session}
	if p.Member == topic.MadeMember {
		out.Member = topic.MemberName(fmt.Sprint("m-", g.making))
	}
	for _, a := range p.Ack {
		if reason := g.commit(m, &a); reason != "" {
			out.NotCommitted = append(out.NotCommitted, topic.NotCommitted{Ref: a.Ref, Next: a.Next, Reason: reason})
		}
	}
	if p.Turn == 0 {
		m.held = slices.DeleteFunc(m.held, func(h fakeHolding) bool {
			given := h.leaving != 0 && h.leaving <= p.Epoch
			if given && g.released != nil {
				g.released(h.path, h.assigned, g.committed[h.ref])
			}
			return given
		})
	}
	for _, h := range m.held {
		a := topic.Assignment{Topic: h.path.Topic, Ref: h.ref, Assigned: h.assigned, Committed: topic.NoOffset, LastEpoch: topic.NoEpoch, Leaving: h.leaving != 0}
		if at, there := g.committed[h.ref]; there {
			a.Committed, a.LastEpoch = at, topic.NoEpoch
		}
		out.Assignment = append(out.Assignment, a)
	}
	slices.SortFunc(out.Assignment, func(a, b topic.Assignment) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Ref.Partition, b.Ref.Partition))
	})
	out.Epoch, out.AssignmentChanged = m.epoch, m.epoch != p.Epoch
	if p.Heartbeat {
		return out, nil
	}
	if p.Turn == 0 {
		g.turns++
		m.turn = g.turns
	}
	if m.changed == nil || p.Turn == 0 {
		m.wake()
		m.changed = make(chan struct{})
	}
	out.Turn, out.Changed = m.turn, m.changed
	return out, nil
}

func (g *fakeGroups) wording(p *topic.GroupPoll) string {
	switch {
	case p.Epoch == topic.NoGroupEpoch:
		return fmt.Sprintf("join %s", p.Member)
	case p.Turn != 0:
		return fmt.Sprintf("look %s", p.Member)
	case p.Subscription != nil:
		return fmt.Sprintf("rejoin %s %d", p.Member, p.Epoch)
	case len(p.Ack) > 0:
		return fmt.Sprintf("commit %s %d", p.Member, p.Epoch)
	default:
		return fmt.Sprintf("beat %s %d", p.Member, p.Epoch)
	}
}

// member finds or makes the one who calls, as far as it may. mu is held.
func (g *fakeGroups) member(p *topic.GroupPoll) (*fakeMember, error) {
	name := p.Member
	if name == topic.MadeMember {
		g.making++
		name = topic.MemberName(fmt.Sprint("m-", g.making))
	}
	m := g.members[name]
	switch {
	case m == nil && (p.Turn != 0 || p.Subscription == nil):
		return nil, fault.Newf("fake.Poll", fault.NoMember, nil, "%s is no member", name)
	case m == nil:
		g.epoch++
		m = &fakeMember{epoch: g.epoch, since: g.epoch, also: p.Epoch, sub: *p.Subscription}
		for _, path := range g.initial {
			m.held = append(m.held, fakeHolding{path: path, ref: g.ref(path), assigned: g.epoch})
		}
		g.members[name] = m
	case p.Epoch == topic.NoGroupEpoch:
		g.epoch++
		m.epoch, m.since, m.also = g.epoch, g.epoch, 0
		m.wake()
	case p.Turn != 0 && p.Turn != m.turn || p.Epoch < m.since && p.Epoch != m.also:
		return nil, fault.Newf("fake.Poll", fault.FencedMember, nil, "%s was taken over", name)
	case p.Epoch > m.epoch:
		return nil, fault.Newf("fake.Poll", fault.Validation, nil, "epoch %d was not given out", p.Epoch)
	}
	return m, nil
}

func (g *fakeGroups) commit(m *fakeMember, a *topic.GroupCommit) topic.NotCommittedReason {
	i := slices.IndexFunc(m.held, func(h fakeHolding) bool { return h.ref == a.Ref })
	at, there := g.committed[a.Ref]
	switch {
	case i < 0:
		return topic.NotAssigned
	case a.Assigned != m.held[i].assigned:
		return topic.Reassigned
	case there && a.Next < at:
		return topic.BehindFirst
	}
	g.committed[a.Ref] = a.Next
	return ""
}

func (g *fakeGroups) EndTurn(_ topic.GroupName, m topic.MemberName, turn uint64, alive bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if alive || turn == 0 {
		g.t.Errorf("turn %d ends, alive %v", turn, alive)
	}
	g.note("end %s", m)
}

func (g *fakeGroups) LeaveGroup(_ context.Context, _ topic.GroupName, name topic.MemberName, e topic.GroupEpoch, acks []topic.GroupCommit) ([]topic.NotCommitted, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note("leave %s", name)
	m := g.members[name]
	switch {
	case g.trouble != nil:
		return nil, g.trouble
	case m == nil:
		return nil, fault.Newf("fake.Leave", fault.NoMember, nil, "%s is no member", name)
	case e < m.since:
		return nil, fault.Newf("fake.Leave", fault.FencedMember, nil, "%s was taken over", name)
	}
	var refused []topic.NotCommitted
	for _, a := range acks {
		if reason := g.commit(m, &a); reason != "" {
			refused = append(refused, topic.NotCommitted{Ref: a.Ref, Next: a.Next, Reason: reason})
		}
	}
	m.wake()
	delete(g.members, name)
	return refused, nil
}

func (g *fakeGroups) DisconnectMember(_ topic.GroupName, m topic.MemberName, e topic.GroupEpoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note("disconnect %s %d", m, e)
}
