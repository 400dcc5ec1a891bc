package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// enter begins a call; records ends it.
func (g *Group) enter(now time.Time) { g.now, g.raised, g.moves = now, false, 0 }

// raise is the epoch of the changes that this call makes: one for all of them.
func (g *Group) raise() topic.GroupEpoch {
	if !g.raised {
		g.epoch++
		g.raised, g.dirty = true, true
	}
	return g.epoch
}

// concern says that a change of this call is one that a member has to learn of.
func (g *Group) concern(m *member) {
	m.epoch, m.stale = g.raise(), true
	g.touch(m)
	g.tell(m)
}

// tell puts a member among those that Moved returns.
func (g *Group) tell(m *member) {
	if !m.moved {
		m.moved = true
		g.moved = append(g.moved, m.name)
	}
}

func (g *Group) touch(m *member) {
	if !m.dirty {
		m.dirty = true
		g.dirtyMembers = append(g.dirtyMembers, m)
	}
}

func (g *Group) touchTopic(t *met) {
	if !t.dirty {
		t.dirty = true
		g.dirtyTopics = append(g.dirtyTopics, t)
	}
}

func (g *Group) touchPart(p *part) {
	if !p.dirty {
		p.dirty = true
		g.dirtyParts = append(g.dirtyParts, p)
	}
}

// bury takes away what a key names.
func (g *Group) bury(key []byte) { g.tombstones = append(g.tombstones, tombstone(key)) }

// records ends a call: it returns the records that say what the call has changed.
func (g *Group) records() []Record {
	if g.moves > 0 {
		g.rebalances++
	}
	n := len(g.tombstones) + len(g.dirtyTopics) + len(g.dirtyMembers) + len(g.dirtyParts)
	if n == 0 && !g.dirty {
		return nil
	}
	all := make([]Record, 0, n+1)
	if g.dirty {
		r := groupRecord{
			Epoch: g.epoch, Deleted: !g.exists, Overrides: g.overrides, Start: g.start, CreatedAt: g.createdAt, EmptySince: g.emptySince,
		}
		all = append(all, r.record(g.name))
		g.logged = true
	}
	all = append(all, g.tombstones...)
	for _, t := range g.dirtyTopics {
		if t.dirty = false; !t.gone {
			r := topicRecord{Name: t.name, Partitions: int32(t.known)}
			all = append(all, r.record(g.name, t.id))
		}
	}
	for _, m := range g.dirtyMembers {
		if m.dirty = false; !m.gone {
			r := m.record()
			all = append(all, r.record(g.name, m.name))
		}
	}
	for _, p := range g.dirtyParts {
		if p.dirty = false; !p.topic.gone {
			r := offsetRecord{Next: p.committed, LastEpoch: p.lastEpoch, Assigned: p.by, At: p.at, Metadata: p.metadata}
			all = append(all, r.record(g.name, p.ref()))
		}
	}
	g.dirty, g.tombstones = false, nil
	g.dirtyTopics, g.dirtyMembers, g.dirtyParts = clean(g.dirtyTopics), clean(g.dirtyMembers), clean(g.dirtyParts)
	return all
}

// clean empties a list and keeps its room, when that is small.
func clean[T any](list []*T) []*T {
	const most = 64
	if cap(list) > most {
		return nil
	}
	clear(list)
	return list[:0]
}

func (m *member) record() memberRecord {
	held := make([]heldPartition, len(m.held))
	for i, p := range m.held {
		held[i] = heldPartition{Ref: p.ref(), Assigned: p.assigned, Leaving: p.leaving}
	}
	slices.SortFunc(held, func(a, b heldPartition) int { return compareRef(a.Ref, b.Ref) })
	return memberRecord{
		Epoch: m.epoch, Since: m.since, Also: m.also, Kind: m.kind, Principal: m.principal, Node: m.node, JoinedAt: m.joinedAt,
		Subscription: m.interest.sub, Assignment: held,
	}
}

// Replay applies a record of the group, as the log or a picture of it has it: of each key the last one
// has to come last, and nothing else is asked of the order. The group can be used after Loaded.
func (g *Group) Replay(r Record) error {
	k, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if k.Group != g.name {
		return fault.Newf("group.Replay", fault.Internal, g.name, "a record of group %q", k.Group)
	}
	switch k.Kind {
	case groupKind:
		return g.replayGroup(r)
	case memberKind:
		if r.Value == nil {
			delete(g.members, k.Member)
			return nil
		}
		v, err := decodeMember(r)
		if err != nil {
			return err
		}
		g.members[k.Member] = &member{
			name: k.Member, epoch: v.Epoch, since: v.Since, also: v.Also, kind: v.Kind, principal: v.Principal, node: v.Node, at: v.Node,
			joinedAt: v.JoinedAt, interest: newInterest(v.Subscription), replayed: v.Assignment,
		}
	case topicKind:
		if r.Value == nil {
			delete(g.met, k.Topic)
			return nil
		}
		v, err := decodeTopic(r)
		if err != nil {
			return err
		}
		t := g.replayed(k.Topic, 0)
		t.name, t.known = v.Name, int(v.Partitions)
		t.grow(t.known)
	case offsetKind:
		if r.Value == nil {
			if p := g.part(topic.Ref{ID: k.Topic, Partition: k.Partition}); p != nil {
				p.committed, p.lastEpoch, p.by, p.at, p.metadata = topic.NoOffset, topic.NoEpoch, topic.NoGroupEpoch, topic.NoTimestamp, ""
			}
			return nil
		}
		v, err := decodeOffset(r)
		if err != nil {
			return err
		}
		p := g.replayed(k.Topic, k.Partition).parts[k.Partition]
		p.committed, p.lastEpoch, p.by, p.at, p.metadata = v.Next, v.LastEpoch, v.Assigned, v.At, v.Metadata
	}
	return nil
}

func (g *Group) replayGroup(r Record) error {
	if r.Value == nil {
		g.exists, g.logged, g.overrides, g.settings = false, false, nil, g.cfg.Settings
		return nil
	}
	v, err := decodeGroup(r)
	if err != nil {
		return err
	}
	g.epoch, g.exists, g.logged, g.overrides, g.start, g.createdAt, g.emptySince = v.Epoch, !v.Deleted, true, v.Overrides, v.Start, v.CreatedAt, v.EmptySince
	// Overrides that an older program took and this one does not are left aside rather than stop the group.
	if g.settings, err = topic.ParseGroupSettings(v.Overrides, g.cfg.Settings); err != nil {
		g.settings = g.cfg.Settings
	}
	return nil
}

// replayed is a topic of the records, with a partition of that number.
func (g *Group) replayed(id topic.ID, n topic.Partition) *met {
	t := g.met[id]
	if t == nil {
		t = &met{id: id}
		g.met[id] = t
	}
	t.grow(int(n) + 1)
	return t
}

// index finds what follows from the records: it ends the replay.
func (g *Group) index() {
	for _, m := range g.members {
		g.byName = append(g.byName, m)
		for _, h := range m.replayed {
			g.replayed(h.Ref.ID, h.Ref.Partition)
		}
	}
	slices.SortFunc(g.byName, func(a, b *member) int { return cmp.Compare(a.name, b.name) })
	for _, t := range g.met {
		t.grown = false
		g.topics = append(g.topics, t)
	}
	slices.SortFunc(g.topics, compareMet)
	for _, m := range g.byName {
		read := m.interest
		m.interest, m.stale = nil, true
		if it, err := g.interest(&read.sub); err == nil {
			read = it
		} else {
			read.refused = true
		}
		g.adopt(m, read) // one that is refused today reads nothing, until its member says what it wants
		for _, h := range m.replayed {
			if p := g.part(h.Ref); p.holder == nil {
				p.holder, p.assigned, p.leaving = m, h.Assigned, h.Leaving
				m.held = append(m.held, p)
				if p.leaving != topic.NoGroupEpoch {
					g.leaving++
				}
			}
		}
		m.replayed = nil
	}
}

// Loaded ends the replay: every member has a full session from now on, and what has changed in the world
// meanwhile is found, as by TopicsChanged.
func (g *Group) Loaded(w World, now time.Time) []Record {
	g.enter(now)
	g.mendTopics(w)
	g.index()
	g.mend()
	for _, m := range g.byName {
		m.seen, m.told = now, m.epoch
		for _, p := range m.held {
			p.leftAt = now
		}
	}
	g.unbalanced = len(g.byName) > 0
	g.survey(w)
	g.balance()
	g.remind()
	return g.records()
}
