package group

import (
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// aim is who is to read what.
type aim struct {
	by      topic.Assignor
	targets map[topic.Ref]topic.MemberName
}

// took says that a process has the name now: others that had it have lost it.
func (m *model) took(p *process) {
	for _, other := range m.processes {
		if other.name == p.name {
			other.learned = time.Time{}
		}
	}
}

// stands says that a process has its place for sure, and knows it: its commits have to count.
func (m *model) stands(p *process) bool {
	session := m.group.settings.MaxPollInterval
	if p.kind == topic.ConnectedMember {
		session = m.group.settings.Session
	}
	return !p.learned.IsZero() && m.now.Sub(p.called) < session && m.now.Sub(p.learned) < session
}

func (m *model) refusedCall(p *process, err error) {
	switch fault.KindOf(err) {
	case fault.FencedMember:
		m.tally.fenced++
		p.dead = true
	case fault.NoMember:
		if m.group.HasMember(p.name) {
			m.failf("%s is a member: %v", p.name, err)
		}
	case fault.Limit:
		p.dead = true
	case fault.Validation:
		// Its group may have begun anew and given its name to another process, which it would take over.
		if m.group.members[p.name].epoch >= p.epoch {
			m.failf("%v", err)
		}
		p.dead = true
	default:
		m.failf("%v", err)
	}
}

// acks checks what a call has committed: what counted was worked off, and is where the caller put it.
func (m *model) acks(p *process, q *topic.GroupPoll, turn *topic.GroupTurn, starts map[topic.Ref]topic.Offset) {
	refused := map[topic.Ref]topic.NotCommittedReason{}
	for _, n := range turn.NotCommitted {
		refused[n.Ref] = n.Reason
	}
	m.tally.refused += len(refused)
	for _, c := range q.Ack {
		r := p.parts[c.Ref]
		before, had := m.committed[c.Ref]
		if why, not := refused[c.Ref]; not {
			if m.stands(p) && !r.leaving && !r.moved && why != topic.TopicGone && !(why == topic.BehindFirst && c.Next < before) {
				m.failf("%v:%d of %d has to count, and does not: %s", c.Ref, c.Next, p.number, why)
			}
			continue
		}
		m.tally.accepted++
		if r.moved {
			m.failf("a commit from before a seek counts: %v:%d of %d", c.Ref, c.Next, p.number)
		}
		if newest := m.granted[c.Ref]; r.assigned < newest {
			m.failf("%v:%d of %d counts, made in assignment %d, and the newest one is %d", c.Ref, c.Next, p.number, r.assigned, newest)
		}
		if had && c.Next < before {
			m.failf("a commit goes from %d to %d", before, c.Next)
		}
		if !had {
			before = 0
		}
		for offset := before; offset < c.Next; offset++ {
			if !m.log[c.Ref].processed[offset] && !m.log[c.Ref].excused[offset] {
				m.failf("%v: offset %d is committed by %d and nobody has done it", c.Ref, offset, p.number)
			}
		}
		m.committed[c.Ref] = c.Next
	}
	for ref, offset := range starts {
		if part := m.group.part(ref); part != nil && part.committed == offset && part.by == topic.NoGroupEpoch {
			m.excuse(ref, 0, offset)
			m.committed[ref] = offset
		}
	}
}

// keeps checks that a member still has what it was never told to be taken away.
func (m *model) keeps(p *process, turn *topic.GroupTurn) {
	if !m.stands(p) {
		return
	}
	for ref, r := range p.parts {
		if _, _, ok := m.world.TopicByID(ref.ID); !ok || r.leaving || r.moved {
			continue
		}
		if !slices.ContainsFunc(turn.Assignment, func(a topic.Assignment) bool { return a.Ref == ref && a.Assigned == r.assigned }) {
			m.failf("%v was taken from %d, who was not told", ref, p.number)
		}
	}
}

func (m *model) excuse(ref topic.Ref, from, to topic.Offset) {
	for offset := from; offset < to; offset++ {
		m.logOf(ref).excused[offset] = true
	}
}

// replay makes the group anew from its records; it is not Loaded.
func (m *model) replay() *Group {
	g, err := m.kept.replay("billing", m.cfg)
	if err != nil {
		m.failf("%v", err)
	}
	return g
}

func (m *model) same() {
	if err := sameAfterReplay(m.group, &m.kept); err != nil {
		m.failf("%v", err)
	}
}

// resync takes over what is committed after a call whose outcome was unknown.
func (m *model) resync() {
	m.committed = map[topic.Ref]topic.Offset{}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.committed != topic.NoOffset {
				m.committed[p.ref()] = p.committed
			}
		}
	}
}

func (m *model) targets() map[topic.Ref]topic.MemberName {
	all := map[topic.Ref]topic.MemberName{}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.target != nil {
				all[p.ref()] = p.target.name
			}
		}
	}
	return all
}

// check finds where the group breaks a promise.
func (m *model) check() {
	if err := checkGroup(m.group); err != nil {
		m.failf("%v", err)
	}
	load := map[*member]int{}
	for _, it := range m.group.interests {
		for _, x := range it.topics {
			for _, p := range x.parts {
				if p.target == nil || !slices.Contains(p.target.interest.topics, x) {
					m.failf("%s is for nobody who reads it", p.path())
				}
			}
		}
	}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.target != nil {
				load[p.target]++
			}
		}
	}
	now := &aim{by: m.group.settings.Assignor, targets: m.targets()}
	last := m.last
	if m.last = now; now.by == topic.RangeAssignor {
		return
	}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			// A partition that has moved, and could go back without harm, need not have moved.
			if last != nil && last.by == topic.StickyAssignor && now.by == topic.StickyAssignor && p.target != nil {
				from := m.group.members[last.targets[p.ref()]]
				if from != nil && from != p.target && slices.Contains(from.interest.topics, x) && load[from] < load[p.target] {
					m.failf("%s moved from %s, who has %d, to %s, who has %d", p.path(), from.name, load[from], p.target.name, load[p.target])
				}
			}
			for _, other := range m.group.byName {
				if p.target != nil && slices.Contains(other.interest.topics, x) && load[p.target] > load[other]+1 {
					m.failf("%s has %d partitions and %s only %d", p.target.name, load[p.target], other.name, load[other])
				}
			}
		}
	}
}

// probe asks, on a copy, whose commits would count. Of each partition that is one process at most.
func (m *model) probe() {
	owner := map[topic.Ref]int{}
	for _, p := range m.processes {
		for ref, r := range p.parts {
			if _, _, ok := m.world.TopicByID(ref.ID); !ok {
				continue
			}
			copied := m.replay()
			copied.Loaded(m.world, m.now)
			c := topic.GroupCommit{Ref: ref, Next: 1 << 40, LastEpoch: topic.NoEpoch, Assigned: r.assigned}
			if p.without {
				c.Assigned = topic.NoGroupEpoch
			}
			q := &topic.GroupPoll{Member: p.name, Epoch: p.epoch, Heartbeat: true, Ack: []topic.GroupCommit{c}}
			blind := *m.world
			blind.ends = nil
			turn, _, err := copied.Poll(q, nil, &blind, m.now)
			if err != nil || len(turn.NotCommitted) > 0 {
				continue
			}
			if other, taken := owner[ref]; taken {
				m.failf("commits in %v count from %d and from %d", ref, other, p.number)
			}
			owner[ref] = p.number
		}
	}
}

// lag is the number of records that somebody reads and nobody has committed.
func (m *model) lag() int {
	lag := 0
	m.each(func(name topic.Name, ref topic.Ref) {
		if m.group.reads(name) {
			lag += len(m.logOf(ref).processed) - int(max(m.committed[ref], 0))
		}
	})
	return lag
}
