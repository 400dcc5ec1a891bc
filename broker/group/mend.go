package group

import (
	"bytes"
	"maps"
	"slices"

	"github.com/weirlog/weir/topic"
)

// A damaged range of the log takes single records out of a group. What is left has to be a group all the
// same: one whose records can be read again, whose epochs are above all that were given out, and which is
// not taken for one that has had no members since 1970.

// mendTopics gives the topics their names whose records are gone. Ends of partitions that the group had met
// are not asked for again.
func (g *Group) mendTopics(w World) {
	for _, m := range g.members {
		for _, h := range m.replayed {
			g.replayed(h.Ref.ID, h.Ref.Partition)
		}
	}
	byID := func(a, b *met) int { return bytes.Compare(a.id[:], b.id[:]) }
	for _, t := range slices.SortedFunc(maps.Values(g.met), byID) {
		if t.name != "" {
			continue
		}
		if name, _, ok := w.TopicByID(t.id); ok { // else it is lost in a moment
			t.name, t.known = name, len(t.parts)
			g.touchTopic(t)
		}
	}
}

// mend makes the group's own record fit the others, when they are indexed.
func (g *Group) mend() {
	if g.exists || len(g.byName) > 0 || len(g.topics) > 0 {
		if highest := g.highest(); highest > g.epoch {
			g.epoch, g.dirty = highest, true
		}
	}
	switch left := len(g.byName) > 0 || len(g.topics) > 0; {
	case g.logged && !g.exists && len(g.byName) == 0 && left: // it was deleted, and some of it was not
		g.buryTopics()
		g.met, g.topics = map[topic.ID]*met{}, nil
	case !g.exists && left:
		g.exists, g.dirty = true, true
		g.createdAt = millis(g.now)
	}
	switch {
	case g.exists && len(g.byName) == 0 && g.emptySince == topic.NoTimestamp:
		g.emptySince, g.dirty = millis(g.now), true
	case len(g.byName) > 0 && g.emptySince != topic.NoTimestamp:
		g.emptySince, g.dirty = topic.NoTimestamp, true
	}
}

// highest is the highest epoch that the group's records speak of.
func (g *Group) highest() topic.GroupEpoch {
	highest := topic.NoGroupEpoch
	for _, m := range g.byName {
		highest = max(highest, m.epoch, m.since)
	}
	for _, t := range g.topics {
		for _, p := range t.parts {
			highest = max(highest, p.by, p.assigned, p.leaving)
		}
	}
	return highest
}
