package group

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// mostForeignEpoch bounds the epochs that a member brings to a group that does not know it. The group's
// own are above it from then on, and must stay exact in JSON.
const mostForeignEpoch = 1 << 48

// joins says whether a poll is one of a process that has no place in the group yet.
func joins(p *topic.GroupPoll) bool {
	return p.Epoch == topic.NoGroupEpoch && p.Turn == 0
}

// Poll is a member's call: it joins or renews its session, commits, gives up what it has seen taken away,
// and learns what it has. Starts are the offsets that [Group.Unstarted] asked for. It fills all of a turn
// but Turn and Changed. An error changes nothing.
//
// The name that a member without one is to have stands in p.Member already.
func (g *Group) Poll(p *topic.GroupPoll, starts map[topic.Ref]topic.Offset, w World, now time.Time) (topic.GroupTurn, []Record, error) {
	m := g.members[p.Member]
	wants, err := g.admit(p, m)
	if err != nil {
		return topic.GroupTurn{}, nil, err
	}
	g.enter(now)
	var refused []topic.NotCommitted
	comes, acks := m == nil, p.Ack
	switch {
	case comes:
		acks = g.redeem(p.Epoch, acks, w)
		m = g.add(p)
	case joins(p):
		refused = g.commit(m, p.Epoch, p.Ack, w)
		g.takeOver(m, p)
	case p.Turn == 0:
		refused = g.commit(m, p.Epoch, p.Ack, w)
		g.release(m, func(q *part) bool { return q.leaving <= p.Epoch })
	}
	if p.Turn == 0 {
		m.seen, m.closed, m.at = now, time.Time{}, p.Node
	}
	if !p.Heartbeat {
		m.waiting = true
	}
	if wants != nil {
		g.subscribe(m, wants, starts, w)
	}
	g.balance()
	if comes || m.since == m.epoch {
		g.mindMember(m)
	}
	if comes {
		// What else it brings for what it had comes to nothing, and this says why.
		refused = g.commit(m, p.Epoch, acks, w)
	}
	m.refresh()
	m.told = m.epoch
	return topic.GroupTurn{
		Member: m.name, Epoch: m.epoch, Assignment: m.view, AssignmentChanged: m.epoch != p.Epoch,
		Waiting: m.waits, NotCommitted: refused, Start: g.start, Session: g.settings.Session,
	}, g.records(), nil
}

// admit checks a poll, and finds what it wants to read if that is not what the member reads.
func (g *Group) admit(p *topic.GroupPoll, m *member) (*interest, error) {
	refuse := func(kind fault.Kind, format string, args ...any) (*interest, error) {
		return nil, fault.Newf("group.Poll", kind, g.name, format, args...)
	}
	if err := g.checkCommits(p.Ack); err != nil {
		return nil, err
	}
	switch {
	case p.Epoch < 0:
		return refuse(fault.Validation, "an epoch is not negative")
	case p.Heartbeat && joins(p):
		return refuse(fault.Validation, "a heartbeat or a commit names the member's epoch")
	case m == nil && p.Turn != 0:
		return refuse(fault.NoMember, "%q is no member any more", p.Member)
	case m == nil && p.Subscription == nil && p.Epoch != topic.NoGroupEpoch:
		return refuse(fault.NoMember, "%q is no member of the group, or not any more; to join it polls with topics", p.Member)
	case joins(p) && p.Subscription == nil:
		return refuse(fault.Validation, "to join, %q has to say what it reads", p.Member)
	case m == nil && p.Epoch > mostForeignEpoch:
		return refuse(fault.Validation, "epoch %d was never given out", p.Epoch)
	case m == nil && len(g.byName) >= g.cfg.MaxMembers:
		return refuse(fault.Limit, "the group has %d members, and no more may join", len(g.byName))
	}
	if m != nil && p.Epoch != topic.NoGroupEpoch && p.Turn == 0 {
		if err := g.fence("group.Poll", m, p.Epoch); err != nil {
			return nil, err
		}
	}
	if p.Subscription == nil || m != nil && m.interest.is(p.Subscription) {
		return nil, nil
	}
	wants, err := g.interest(p.Subscription)
	if err != nil {
		return nil, err
	}
	return wants, g.holds(p, wants)
}

// takes says whether a call with that epoch is one of the process that is the member now.
func (m *member) takes(epoch topic.GroupEpoch) bool {
	return epoch >= m.since || epoch == m.also && epoch != topic.NoGroupEpoch
}

func (g *Group) fence(op string, m *member, epoch topic.GroupEpoch) error {
	switch {
	case epoch > m.epoch:
		return fault.Newf(op, fault.Validation, g.name, "epoch %d was never given out, that of %q is %d", epoch, m.name, m.epoch)
	case !m.takes(epoch):
		return fault.Newf(op, fault.FencedMember, g.name, "%q was taken over in epoch %d, a call with epoch %d is from before", m.name, m.since, epoch)
	}
	return nil
}

// startOf is the start policy that a poll names, without what does not belong to it.
func startOf(p *topic.GroupPoll) topic.GroupStart {
	if p.Start.Kind != topic.AtTime {
		return topic.GroupStart{Kind: p.Start.Kind}
	}
	return p.Start
}

// create makes the group, if it is not there.
func (g *Group) create() {
	if g.exists {
		return
	}
	g.exists, g.dirty = true, true
	g.createdAt = millis(g.now)
	g.emptySince = g.createdAt
	g.mind(g.forgetAt())
}

// add makes a member of somebody who was none.
func (g *Group) add(p *topic.GroupPoll) *member {
	g.create()
	g.emptySince = topic.NoTimestamp
	// A member that was told an epoch which the group does not know comes from its earlier life, whose
	// records are gone. Its epochs must not be given out again.
	g.epoch = max(g.epoch, p.Epoch)
	m := &member{name: p.Member}
	g.members[m.name] = m
	at, _ := slices.BinarySearchFunc(g.byName, m.name, func(m *member, name topic.MemberName) int { return cmp.Compare(m.name, name) })
	g.byName = slices.Insert(g.byName, at, m)
	g.seat(m, p)
	m.also, m.joinedAt = p.Epoch, millis(g.now)
	return m
}

// takeOver gives a member's place to another process.
func (g *Group) takeOver(m *member, p *topic.GroupPoll) {
	g.seat(m, p)
	m.also = topic.NoGroupEpoch
	// Who had to give these up is fenced, and who comes now has read nothing of them.
	g.release(m, func(*part) bool { return true })
}

// seat makes the caller the process that is the member.
func (g *Group) seat(m *member, p *topic.GroupPoll) {
	g.concern(m)
	m.since = m.epoch
	m.kind, m.principal, m.node = p.Kind, p.Principal, p.Node
	m.waiting = false
	if start := startOf(p); start != g.start {
		g.start = start
	}
}

// subscribe changes what a member reads.
func (g *Group) subscribe(m *member, to *interest, starts map[topic.Ref]topic.Offset, w World) {
	g.survey(w) // what the group has read all along, and not seen yet, does not begin where starts say
	g.adopt(m, to)
	g.look(to, starts, w)
	for _, t := range to.topics {
		t.grown = false
	}
	g.unbalanced = true
	g.concern(m)
}

// Leave ends a membership. Epoch NoGroupEpoch stands for whoever has the name. What the member commits
// with it counts as in a poll.
func (g *Group) Leave(name topic.MemberName, epoch topic.GroupEpoch, acks []topic.GroupCommit, w World, now time.Time) ([]topic.NotCommitted, []Record, error) {
	if err := g.checkCommits(acks); err != nil {
		return nil, nil, err
	}
	m := g.members[name]
	if m == nil {
		return nil, nil, fault.Newf("group.Leave", fault.NoMember, g.name, "%q is no member", name)
	}
	if epoch == topic.NoGroupEpoch {
		epoch = m.epoch
	}
	if err := g.fence("group.Leave", m, epoch); err != nil {
		return nil, nil, err
	}
	g.enter(now)
	refused := g.commit(m, epoch, acks, w)
	g.remove(m)
	g.balance()
	return refused, g.records(), nil
}

// remove takes a member out. What it held is free.
func (g *Group) remove(m *member) {
	for _, p := range m.held {
		g.drop(p)
	}
	m.held, m.gone = nil, true
	g.abandon(m)
	delete(g.members, m.name)
	g.byName = slices.DeleteFunc(g.byName, func(other *member) bool { return other == m })
	g.bury(memberKey(g.name, m.name))
	g.tell(m)
	g.raise()
	g.unbalanced = true
	if len(g.byName) == 0 {
		g.emptySince = millis(g.now)
		g.mind(g.forgetAt())
	}
}

func millis(t time.Time) topic.Millis { return topic.Millis(min(max(t.UnixMilli(), 0), math.MaxInt64)) }
