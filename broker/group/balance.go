package group

import (
	"slices"

	"github.com/weirlog/weir/topic"
)

// balance carries out what a call has changed. Who reads what is decided anew only when that can have
// changed; else only the partitions that were given up go to those who wait for them.
func (g *Group) balance() {
	if !g.unbalanced {
		for _, p := range g.free {
			g.settle(p)
		}
		g.free = g.free[:0]
		return
	}
	g.unbalanced, g.free = false, g.free[:0]
	g.aim()
	for _, m := range g.byName {
		m.stale = m.stale || len(m.awaits) > 0
		m.awaits = m.awaits[:0]
	}
	for _, t := range g.topics {
		for _, p := range t.parts {
			g.settle(p)
		}
	}
}

// aim decides who is to read what: it sets every part's target.
func (g *Group) aim() {
	wanted := map[*met]int{}
	for _, it := range g.interests {
		for _, t := range it.topics {
			wanted[t] = 0
		}
	}
	topics := make([]subscribed, 0, len(wanted))
	partitions := 0
	for _, t := range g.topics {
		if _, ok := wanted[t]; ok {
			wanted[t] = len(topics)
			topics = append(topics, subscribed{Name: t.name, ID: t.id, Partitions: len(t.parts)})
			partitions += len(t.parts)
		}
	}
	indexes := make(map[*interest][]int, len(g.interests))
	for _, it := range g.interests {
		list := make([]int, len(it.topics))
		for i, t := range it.topics {
			list[i] = wanted[t]
		}
		slices.Sort(list)
		indexes[it] = list
	}
	members := make([]subscriber, len(g.byName))
	for i, m := range g.byName {
		members[i] = subscriber{Name: m.name, Topics: indexes[m.interest]}
	}
	current := make(map[topic.Ref]topic.MemberName, partitions)
	for _, t := range g.topics {
		for _, p := range t.parts {
			if owner := p.owner(); owner != nil {
				current[p.ref()] = owner.name
			}
			p.target = nil
		}
	}
	shares := assign(g.settings.Assignor, members, topics, current)
	for _, m := range g.byName {
		for _, ref := range shares[m.name] {
			g.part(ref).target = m
		}
	}
}

// owner is who has a partition as far as stickiness is concerned: of one that is on its way it is the one
// to whom it goes, so that a second change does not send it back and forth.
func (p *part) owner() *member {
	owner := p.holder
	if owner == nil || p.leaving != topic.NoGroupEpoch {
		owner = p.target
	}
	if owner != nil && owner.gone {
		return nil
	}
	return owner
}

// settle takes a partition one step towards its target: it is given, taken away, or waited for.
func (g *Group) settle(p *part) {
	switch {
	case p.holder == nil && p.target == nil, p.topic.gone:
	case p.holder == nil:
		g.give(p, p.target)
	case p.holder == p.target:
		if p.leaving != topic.NoGroupEpoch {
			// It comes back before it was given up. When its member may know that it was taken away it is another
			// assignment all the same: the member may have dropped records that a cursor from before has passed.
			if p.holder.told >= p.leaving {
				p.assigned = g.raise()
			}
			p.leaving = topic.NoGroupEpoch
			g.leaving--
			g.moves++
			g.concern(p.holder)
		}
	default:
		if p.leaving == topic.NoGroupEpoch {
			p.leaving, p.leftAt = g.raise(), g.now
			g.leaving++
			g.moves++
			g.concern(p.holder)
			g.mind(g.cut(p))
		}
		if p.target != nil {
			p.target.awaits = append(p.target.awaits, p)
			p.target.stale = true
		}
	}
}

// give makes a free partition a member's.
func (g *Group) give(p *part, to *member) {
	p.holder, p.assigned, p.expired = to, g.raise(), topic.NoGroupEpoch
	to.held = append(to.held, p)
	g.moves++
	g.concern(to)
}

// drop takes a partition from its holder, whose list the caller corrects.
func (g *Group) drop(p *part) {
	if p.leaving != topic.NoGroupEpoch {
		g.leaving--
	}
	p.holder, p.assigned, p.leaving = nil, topic.NoGroupEpoch, topic.NoGroupEpoch
}

// release takes from a member, of the partitions that were taken away, those that may go, and says
// whether there were any.
func (g *Group) release(m *member, may func(*part) bool) bool {
	if g.leaving == 0 {
		return false
	}
	before := len(m.held)
	m.held = slices.DeleteFunc(m.held, func(p *part) bool {
		if p.leaving == topic.NoGroupEpoch || !may(p) {
			return false
		}
		g.drop(p)
		g.free = append(g.free, p)
		return true
	})
	if len(m.held) == before {
		return false
	}
	m.stale = true
	g.touch(m)
	return true
}

// refresh makes the answer to a member's polls anew, if it is out of date.
func (m *member) refresh() {
	if !m.stale {
		return
	}
	m.stale = false
	slices.SortFunc(m.held, comparePart)
	m.view = make([]topic.Assignment, len(m.held))
	for i, p := range m.held {
		m.view[i] = topic.Assignment{
			Topic: p.topic.name, Ref: p.ref(), Assigned: p.assigned, Committed: p.committed, LastEpoch: p.lastEpoch,
			Leaving: p.leaving != topic.NoGroupEpoch,
		}
	}
	m.awaits = slices.DeleteFunc(m.awaits, func(p *part) bool { return p.target != m || p.holder == m })
	m.waits = nil
	if len(m.awaits) == 0 {
		return
	}
	slices.SortFunc(m.awaits, comparePart)
	m.waits = make([]topic.GroupWaiting, len(m.awaits))
	for i, p := range m.awaits {
		m.waits[i] = topic.GroupWaiting{Topic: p.topic.name, Ref: p.ref(), Holder: p.holder.name}
	}
}
