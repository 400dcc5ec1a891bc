package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
)

// defaultFetchBytes is what a fetch without MaxBytes gets.
const defaultFetchBytes = 1 << 20

// Fetch returns whole batches of one partition, from the one with f.Offset on, waiting up to f.Wait
// for f.MinBytes of them. An offset that is not there is a fault of kind OffsetRange that wraps a
// *topic.RangeError. The end of ctx ends the wait with what there is.
func (n *Node) Fetch(ctx context.Context, f topic.Fetch) (topic.Fetched, error) {
	p, err := n.fetchFrom(f)
	if err != nil {
		return topic.Fetched{}, err
	}
	if f.MaxBytes <= 0 {
		f.MaxBytes = defaultFetchBytes
	}
	if f.MinBytes > f.MaxBytes {
		f.MinBytes = f.MaxBytes
	}
	got, enough, err := p.fetch(f)
	if err != nil || enough || f.Wait <= 0 {
		return got, err
	}
	return p.fetchWaiting(ctx, f)
}

func (n *Node) fetchFrom(f topic.Fetch) (*partition, error) {
	if err := n.serving("broker.Fetch"); err != nil {
		return nil, err
	}
	if !f.ID.IsZero() {
		return n.hall.partition(topic.Ref{ID: f.ID, Partition: f.Partition})
	}
	t, err := n.hall.byName(f.Topic)
	if err != nil {
		return nil, err
	}
	return t.at(f.Partition)
}

// fetchWaiting fetches each time that the partition has moved, until there is enough or the wait ends.
func (p *partition) fetchWaiting(ctx context.Context, f topic.Fetch) (topic.Fetched, error) {
	bell := make(chan struct{}, 1)
	stop, ok := p.bells.add(bell)
	if !ok {
		return topic.Fetched{}, p.whyGone()
	}
	defer stop()
	timer := time.NewTimer(f.Wait)
	defer timer.Stop()
	// What is there and not enough is counted and not kept, so that many who wait for much hold nothing;
	// and each ring is followed by a look at what is new, not at everything again.
	rest := f
	for {
		got, enough, err := p.fetch(rest)
		if err != nil || enough {
			return p.fetchAll(f, rest, got, err)
		}
		seen := len(got.Batches)
		rest.Offset, rest.MinBytes, rest.MaxBytes = got.Next, max(rest.MinBytes-seen, 1), max(rest.MaxBytes-seen, 1)
		got.Batches = nil
		select {
		case <-bell:
		case <-timer.C:
			return p.fetchAll(f, rest, got, nil)
		case <-ctx.Done():
			return p.fetchAll(f, rest, got, nil)
		case <-p.life.Done():
			if why := p.whyGone(); !fault.Is(why, fault.Stopping) || p.node.failure() != nil {
				return topic.Fetched{}, why
			}
			got.Next = f.Offset // a waiting poll ends when the node stops, and reads again elsewhere or later
			return got, nil
		}
	}
}

// fetchAll ends a wait: got is the answer when all of it was fetched at once, and else everything from f on is
// fetched.
func (p *partition) fetchAll(f, rest topic.Fetch, got topic.Fetched, err error) (topic.Fetched, error) {
	if err != nil || rest.Offset == f.Offset {
		return got, err
	}
	got, _, err = p.fetch(f)
	return got, err
}

// fetch reads once. enough says that waiting would not make the answer better.
func (p *partition) fetch(f topic.Fetch) (got topic.Fetched, enough bool, err error) {
	bounds := p.bounds()
	got = topic.Fetched{
		ID: p.ref.ID, Next: f.Offset,
		LogStart: bounds.LogStart, HighWatermark: bounds.HighWatermark, LeaderEpoch: bounds.LeaderEpoch,
	}
	if err := p.inRange(f, bounds); err != nil {
		return topic.Fetched{}, false, err
	}
	if f.Offset == bounds.HighWatermark {
		return got, false, nil
	}
	got.Batches, got.Next, got.Gaps, err = p.read(f.Offset, bounds.HighWatermark, f.MaxBytes)
	if err != nil {
		return topic.Fetched{}, false, err
	}
	return got, len(got.Batches) >= max(f.MinBytes, 1) || got.Next < bounds.HighWatermark || len(got.Gaps) > 0, nil
}

// inRange says whether a reader may go on at an offset.
func (p *partition) inRange(f topic.Fetch, bounds topic.Bounds) error {
	refuse := func(reason topic.GapReason, resume topic.Offset) error {
		return fault.New("broker.Fetch", fault.OffsetRange, p.path, &topic.RangeError{
			Path: p.path, Offset: f.Offset, Reason: reason, Bounds: bounds, ResumeAt: resume,
		})
	}
	if f.Offset < bounds.LogStart {
		return refuse(topic.Retention, bounds.LogStart)
	}
	if f.LastEpoch != topic.NoEpoch && f.Offset > 0 {
		// The reader's log and this one agree up to where the reader's last epoch ends here.
		if mark := p.log.EpochEnd(f.LastEpoch); mark.Epoch != f.LastEpoch || mark.End < f.Offset {
			return refuse(topic.Truncated, max(bounds.LogStart, min(mark.End, f.Offset, bounds.HighWatermark)))
		}
	}
	if f.Offset > bounds.HighWatermark {
		if !p.settled.Load() { // a leader that has just begun does not know yet what is committed
			return fault.Newf("broker.Fetch", fault.NotLeader, p.path, "the end of the partition is not known yet")
		}
		return refuse(topic.BeyondEnd, bounds.HighWatermark)
	}
	return nil
}

// read returns batches below an offset: from memory at the tail, else from the log.
func (p *partition) read(from, below topic.Offset, maxBytes int) (batches []byte, next topic.Offset, gaps []topic.Gap, err error) {
	leave, err := p.use()
	if err != nil {
		return nil, from, nil, err
	}
	defer leave()
	if batches, next = p.tail.read(from, below, maxBytes); len(batches) > 0 {
		return batches, next, nil, nil
	}
	p.node.metrics.coldReads.Inc()
	piece, err := p.log.Read(from, below, maxBytes)
	if err != nil {
		if storage.Final(err) {
			p.node.fail(err)
		}
		return nil, from, nil, p.named(err)
	}
	return piece.Batches, piece.Next, piece.Gaps, nil
}

// named gives an error of the log's range, which may come of a retention meanwhile, the bounds of now.
func (p *partition) named(err error) error {
	var out *topic.RangeError
	if errors.As(err, &out) {
		out.Bounds = p.bounds()
	}
	return err
}

// Listen rings bell, without ever blocking on it, after the partition's high watermark or log start has
// moved, after partitions were added to its topic or its settings changed, and when it was deleted. A
// bell should have room for one ring. It is rung some milliseconds late at most, and once for several
// events. stop ends it, and may be called more than once.
func (n *Node) Listen(ref topic.Ref, bell chan<- struct{}) (stop func(), err error) {
	if err := n.serving("broker.Listen"); err != nil {
		return nil, err
	}
	p, err := n.hall.partition(ref)
	if err != nil {
		return nil, err
	}
	stop, ok := p.bells.add(bell)
	if !ok {
		return nil, p.whyGone()
	}
	return stop, nil
}

// Bounds of a partition; cheap.
func (n *Node) Bounds(ref topic.Ref) (topic.Bounds, error) {
	p, err := n.hall.partition(ref)
	if err != nil {
		return topic.Bounds{}, err
	}
	if err := p.whyGone(); err != nil {
		return topic.Bounds{}, err
	}
	return p.bounds(), nil
}
