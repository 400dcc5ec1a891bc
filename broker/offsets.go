package broker

import (
	"context"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
)

// Offsets looks up a position in every partition of a topic.
func (n *Node) Offsets(ctx context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error) {
	if err := n.serving("broker.Offsets"); err != nil {
		return nil, err
	}
	t, err := n.hall.byName(name)
	if err != nil {
		return nil, err
	}
	found := make([]topic.OffsetAt, len(*t.partitions.Load()))
	for i := range found {
		if ctx.Err() != nil {
			return nil, fault.Newf("broker.Offsets", fault.Overloaded, name, "the look-up took longer than the caller waits")
		}
		p, err := t.at(topic.Partition(i))
		if err != nil {
			return nil, err
		}
		if found[i], err = p.offsetAt(at); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p *partition) offsetAt(at topic.At) (topic.OffsetAt, error) {
	bounds := p.bounds()
	found := topic.OffsetAt{Partition: p.path.Partition, Timestamp: topic.NoTimestamp, Bounds: bounds}
	if at.Kind == topic.AtEarliest {
		found.Offset = bounds.LogStart
		return found, p.whyGone()
	}
	if !p.settled.Load() {
		return found, fault.Newf("broker.Offsets", fault.NotLeader, p.path, "the end of the partition is not known yet")
	}
	if at.Kind == topic.AtLatest {
		found.Offset = bounds.HighWatermark
		return found, p.whyGone()
	}
	leave, err := p.use()
	if err != nil {
		return found, err
	}
	defer leave()
	found.Offset, found.Timestamp, err = p.log.OffsetForTime(at.Time, bounds.HighWatermark)
	if storage.Final(err) {
		p.node.fail(err)
	}
	return found, err
}

// DeleteRecords raises a partition's log start to before, or to its high watermark when before is
// NoOffset, and returns the log start. What is below is not readable any more when it returns.
func (n *Node) DeleteRecords(_ context.Context, path topic.Path, before topic.Offset) (topic.Offset, error) {
	if err := n.serving("broker.DeleteRecords"); err != nil {
		return topic.NoOffset, err
	}
	if path.Topic.Internal() {
		return topic.NoOffset, ownTopic("broker.DeleteRecords", path.Topic)
	}
	t, err := n.hall.byName(path.Topic)
	if err != nil {
		return topic.NoOffset, err
	}
	p, err := t.at(path.Partition)
	if err != nil {
		return topic.NoOffset, err
	}
	bounds := p.bounds()
	if before == topic.NoOffset {
		before = bounds.HighWatermark
	}
	if before < 0 || before > bounds.HighWatermark {
		return topic.NoOffset, fault.New("broker.DeleteRecords", fault.OffsetRange, path, &topic.RangeError{
			Path: path, Offset: before, Reason: topic.BeyondEnd, Bounds: bounds, ResumeAt: bounds.HighWatermark,
		})
	}
	if err := p.advance(before); err != nil {
		return topic.NoOffset, err
	}
	select {
	case n.soon <- p: // so that the room comes back before the cleaner's next round
	default:
	}
	return p.log.Start(), nil
}

// advance raises the log's start.
func (p *partition) advance(before topic.Offset) error {
	leave, err := p.use()
	if err != nil {
		return err
	}
	defer leave()
	if err := p.log.AdvanceStart(before); err != nil {
		if storage.Final(err) {
			p.node.fail(err)
		}
		return err
	}
	p.bells.ring()
	return nil
}
