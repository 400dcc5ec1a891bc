package group

import (
	"maps"

	"github.com/weirlog/weir/topic"
)

// State says what the group is doing.
func (g *Group) State() topic.GroupState {
	switch {
	case len(g.byName) == 0:
		return topic.GroupEmpty
	case g.leaving > 0:
		return topic.GroupReconciling
	default:
		return topic.GroupStable
	}
}

// Summary is the group in a list.
func (g *Group) Summary() topic.GroupSummary {
	return topic.GroupSummary{Name: g.name, State: g.State(), Members: len(g.byName), Epoch: g.epoch}
}

// Describe says all that the group knows of itself. The bounds and the lag of partitions, and whether
// members poll, are left open.
func (g *Group) Describe() topic.GroupDescription {
	d := topic.GroupDescription{
		GroupSummary: g.Summary(), Settings: g.settings, Overrides: maps.Clone(g.overrides), Start: g.start, EmptySince: g.emptySince,
		Members: make([]topic.MemberDescription, len(g.byName)),
	}
	for i, m := range g.byName {
		d.Members[i] = g.describe(m)
	}
	g.Positions(func(p topic.GroupPartition) bool {
		d.Partitions = append(d.Partitions, p)
		return true
	})
	return d
}

func (g *Group) describe(m *member) topic.MemberDescription {
	m.refresh()
	end, _ := g.deadline(m) // not before that, where a poll waits
	d := topic.MemberDescription{
		Name: m.name, Kind: m.kind, Epoch: m.epoch, Principal: m.principal, Node: m.at, JoinedAt: m.joinedAt,
		LastSeen: millis(m.seen), SessionEnds: millis(end), Subscription: m.interest.sub, Waiting: m.waits,
	}
	for _, p := range m.held {
		d.Assignment = append(d.Assignment, p.ref())
		if p.leaving != topic.NoGroupEpoch {
			d.Leaving = append(d.Leaving, p.ref())
		}
	}
	return d
}

// Positions goes through the partitions of the topics that the group reads or has read, by topic name and
// partition, until yield returns false. One without a holder and without a commit is among them: its
// records are waiting too. Bounds and lag are left open.
func (g *Group) Positions(yield func(topic.GroupPartition) bool) {
	for _, t := range g.topics {
		for _, p := range t.parts {
			d := topic.GroupPartition{
				Path: p.path(), Ref: p.ref(), Assigned: p.assigned, Committed: p.committed, Metadata: p.metadata, CommitAt: p.at,
				LogStart: topic.NoOffset, End: topic.NoOffset, Lag: -1,
			}
			if p.holder != nil {
				d.Member = p.holder.name
			}
			if !yield(d) {
				return
			}
		}
	}
}
