package group

import (
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Position is where the group is to read on in a partition.
type Position struct {
	Ref       topic.Ref
	Offset    topic.Offset
	LastEpoch topic.Epoch // of the record before, or NoEpoch
}

// maxCallMetadata is the most bytes of metadata of one call, since what it commits is one batch.
const maxCallMetadata = 4 << 20

// checkCommits finds commits that no member may make.
func (g *Group) checkCommits(commits []topic.GroupCommit) error {
	metadata := 0
	for i := range commits {
		metadata += len(commits[i].Metadata)
		switch c := &commits[i]; {
		case c.Next < 0:
			return fault.Newf("group.Commit", fault.Validation, g.name, "an offset is not negative")
		case len(c.Metadata) > topic.MaxCommitMetadata:
			return fault.Newf("group.Commit", fault.Validation, g.name, "the metadata of a commit has %d bytes, at most %d are kept", len(c.Metadata), topic.MaxCommitMetadata)
		case metadata > maxCallMetadata:
			return fault.Newf("group.Commit", fault.Validation, g.name, "the metadata of the commits has more than %d bytes together", maxCallMetadata)
		}
	}
	return nil
}

// commit commits what counts, and returns what does not.
func (g *Group) commit(m *member, epoch topic.GroupEpoch, commits []topic.GroupCommit, w World) []topic.NotCommitted {
	var refused []topic.NotCommitted
	for i := range commits {
		c := &commits[i]
		p := g.part(c.Ref)
		if why := g.judge(m, epoch, c, p, w); why != "" {
			name, _, _ := w.TopicByID(c.Ref.ID)
			refused = append(refused, topic.NotCommitted{Topic: name, Ref: c.Ref, Next: c.Next, Reason: why})
			continue
		}
		if c.Next == p.committed && c.Metadata == p.metadata {
			continue // it says nothing new
		}
		p.committed, p.lastEpoch, p.by, p.at, p.metadata = c.Next, c.LastEpoch, p.assigned, millis(g.now), c.Metadata
		m.stale = true
		g.touchPart(p)
	}
	return refused
}

// judge says why a commit does not count.
func (g *Group) judge(m *member, epoch topic.GroupEpoch, c *topic.GroupCommit, p *part, w World) topic.NotCommittedReason {
	switch {
	case p == nil:
		if _, _, ok := w.TopicByID(c.Ref.ID); !ok {
			return topic.TopicGone
		}
		return topic.NotAssigned
	case p.holder != m:
		return topic.NotAssigned
	case c.Assigned != topic.NoGroupEpoch && c.Assigned != p.assigned,
		c.Assigned == topic.NoGroupEpoch && p.assigned > epoch:
		return topic.Reassigned
	}
	return p.misplaced(c, w)
}

// misplaced says why the offset of a commit cannot be, whoever commits it.
func (p *part) misplaced(c *topic.GroupCommit, w World) topic.NotCommittedReason {
	end, known := w.End(c.Ref)
	switch {
	case known && c.Next > end:
		return topic.PastEnd
	case c.Next < p.committed && !p.cut(c, end, known):
		return topic.BehindFirst
	}
	return ""
}

// cut says that the log was cut below what is committed, as it can be where records are not synced before
// they are acknowledged: it ends there now, or has a record of a later reign below it. Then a member that
// reads what is there now commits, or it would read the same page until the log has grown past the commit.
func (p *part) cut(c *topic.GroupCommit, end topic.Offset, known bool) bool {
	return known && p.committed > end || p.lastEpoch != topic.NoEpoch && c.LastEpoch > p.lastEpoch
}

// redeem commits what somebody who comes back had read in assignments that ended with its session, where
// nobody has got the partition since: work that took longer than the session is not done again. A take-over
// fences here too, though no partition moves by it. It returns the other commits.
func (g *Group) redeem(epoch topic.GroupEpoch, commits []topic.GroupCommit, w World) (left []topic.GroupCommit) {
	for i := range commits {
		c := &commits[i]
		p := g.part(c.Ref)
		if p == nil || p.holder != nil || c.Assigned == topic.NoGroupEpoch || c.Assigned != p.expired || epoch < p.elder || p.misplaced(c, w) != "" {
			left = append(left, *c)
			continue
		}
		p.committed, p.lastEpoch, p.by, p.at, p.metadata = c.Next, c.LastEpoch, p.expired, millis(g.now), c.Metadata
		g.touchPart(p)
	}
	return left
}

// place sets an offset that no member has committed.
func (g *Group) place(p *part, next topic.Offset, lastEpoch topic.Epoch) {
	p.expired = topic.NoGroupEpoch
	p.committed, p.lastEpoch, p.by, p.at, p.metadata = next, lastEpoch, topic.NoGroupEpoch, millis(g.now), ""
	if p.holder != nil {
		p.holder.stale = true
	}
	g.touchPart(p)
}

// Seek moves committed offsets, forward or back, and makes the group if there is none. Cursors from before
// it commit nothing in these partitions any more. Of two positions in one partition the last one counts.
func (g *Group) Seek(to []Position, w World, now time.Time) ([]Record, error) {
	if len(to) == 0 {
		return nil, fault.Newf("group.Seek", fault.Validation, g.name, "a seek names no partition")
	}
	for _, s := range to {
		name, partitions, ok := w.TopicByID(s.Ref.ID)
		if !ok {
			return nil, fault.Newf("group.Seek", fault.NoTopic, s.Ref.ID, "the topic does not exist")
		}
		path := topic.Path{Topic: name, Partition: s.Ref.Partition}
		if s.Ref.Partition < 0 || int(s.Ref.Partition) >= partitions {
			return nil, fault.Newf("group.Seek", fault.NoPartition, path, "the topic has %d partitions", partitions)
		}
		if s.Offset < 0 {
			return nil, fault.Newf("group.Seek", fault.Validation, path, "an offset is not negative")
		}
		if end, known := w.End(s.Ref); known && s.Offset > end {
			return nil, fault.Newf("group.Seek", fault.Validation, path, "offset %d is above the log's end, %d", s.Offset, end)
		}
	}
	g.enter(now)
	g.create()
	epoch := g.raise()
	g.survey(w) // a topic may have partitions of which the group has not heard
	for _, s := range to {
		name, partitions, _ := w.TopicByID(s.Ref.ID)
		t := g.topic(s.Ref.ID, name)
		if len(t.parts) == 0 {
			g.touchTopic(t) // it is not met: its other partitions begin by the start policy
		}
		t.grow(partitions)
		p := t.parts[s.Ref.Partition]
		g.place(p, s.Offset, s.LastEpoch)
		if p.holder != nil {
			p.assigned = epoch
			g.concern(p.holder)
		}
	}
	g.balance()
	return g.records(), nil
}
