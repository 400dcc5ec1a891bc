package broker

import (
	"context"

	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// starts looks up where a group begins in partitions that it meets for the first time. A topic that was
// deleted meanwhile has no place in what is returned, which is never nil.
func (n *Node) starts(ctx context.Context, m missingStarts) (map[topic.Ref]topic.Offset, error) {
	found := make(map[topic.Ref]topic.Offset, len(m.refs))
	for _, ref := range m.refs {
		if ctx.Err() != nil {
			return nil, fault.Newf("broker.PollGroup", fault.Overloaded, nil, "to look up where the group begins took longer than the caller waits")
		}
		p, err := n.hall.partition(ref)
		if err == nil {
			var at topic.OffsetAt
			at, err = p.offsetAt(m.at)
			found[ref] = at.Offset
		}
		switch {
		case fault.Is(err, fault.NoTopic):
			delete(found, ref)
		case err != nil:
			return nil, err
		}
	}
	return found, nil
}

// positions looks up where a seek goes.
func (n *Node) positions(ctx context.Context, s *topic.GroupSeek) ([]group.Position, error) {
	if len(s.Topics) == 0 {
		return n.exactPositions(s)
	}
	const op = "broker.SeekGroup"
	var to []group.Position
	seen := make(map[topic.Name]bool, len(s.Topics))
	for _, name := range s.Topics {
		if seen[name] {
			return nil, fault.Newf(op, fault.Validation, name, "topic %q is named twice", name)
		}
		seen[name] = true
		t, err := n.readByGroups(op, name)
		if err != nil {
			return nil, err
		}
		for i := range *t.partitions.Load() {
			if ctx.Err() != nil {
				return nil, fault.Newf(op, fault.Overloaded, name, "the look-up took longer than the caller waits")
			}
			p, err := t.at(topic.Partition(i))
			if err != nil {
				return nil, err
			}
			at, err := p.offsetAt(s.At)
			if err != nil {
				return nil, err
			}
			to = append(to, p.position(at.Offset, at.Bounds))
		}
	}
	return to, nil
}

// readByGroups finds a topic that a group may read: the rules refuse weir's own.
func (n *Node) readByGroups(op string, name topic.Name) (*served, error) {
	if name.Internal() {
		return nil, fault.Newf(op, fault.Forbidden, name, "topic %q is weir's own; groups do not read those", name)
	}
	return n.hall.byName(name)
}

// exactPositions checks the offsets that a seek names.
func (n *Node) exactPositions(s *topic.GroupSeek) ([]group.Position, error) {
	const op = "broker.SeekGroup"
	if len(s.Offsets) == 0 {
		return nil, fault.Newf(op, fault.Validation, s.Group, "a seek needs topics or offsets")
	}
	to := make([]group.Position, 0, len(s.Offsets))
	seen := make(map[topic.Path]bool, len(s.Offsets))
	for _, one := range s.Offsets {
		if seen[one.Path] {
			return nil, fault.Newf(op, fault.Validation, one.Path, "partition %d of topic %q is named twice", one.Path.Partition, one.Path.Topic)
		}
		seen[one.Path] = true
		t, err := n.readByGroups(op, one.Path.Topic)
		if err != nil {
			return nil, err
		}
		p, err := t.at(one.Path.Partition)
		if err != nil {
			return nil, err
		}
		if !p.settled.Load() {
			return nil, fault.Newf(op, fault.NotLeader, one.Path, "the end of the partition is not known yet")
		}
		bounds := p.bounds()
		if one.Offset < bounds.LogStart {
			return nil, outOfRange(op, one, topic.Retention, bounds, bounds.LogStart)
		}
		if one.Offset > bounds.HighWatermark {
			return nil, outOfRange(op, one, topic.BeyondEnd, bounds, bounds.HighWatermark)
		}
		to = append(to, p.position(one.Offset, bounds))
	}
	return to, nil
}

func outOfRange(op string, one topic.PathOffset, reason topic.GapReason, bounds topic.Bounds, resume topic.Offset) error {
	return fault.New(op, fault.OffsetRange, one.Path, &topic.RangeError{
		Path: one.Path, Offset: one.Offset, Reason: reason, Bounds: bounds, ResumeAt: resume,
	})
}

// position is an offset with the epoch of the record before it, by which a reader notices that the log
// was cut.
func (p *partition) position(offset topic.Offset, bounds topic.Bounds) group.Position {
	position := group.Position{Ref: p.ref, Offset: offset, LastEpoch: topic.NoEpoch}
	if offset > bounds.LogStart {
		position.LastEpoch = p.log.EpochAt(offset - 1)
	}
	return position
}
