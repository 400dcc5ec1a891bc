package broker

import (
	"context"
	"slices"
	"time"

	"github.com/weirlog/weir/broker/group/view"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// The pace of the feeder.
const (
	feedEvery = 3 * time.Second // between two rounds
	feedBytes = 8 << 20         // of records go into one transaction
	feedFresh = time.Hour       // an older position is written anew, though nothing has changed: its age counts
)

// GroupView keeps what __groups says, the newest value of each key, beside the log; view.View is one. It
// is a copy that may be lost: what it lacks is read from the log.
type GroupView interface {
	// Position says how far a partition was applied; zero when nothing was. Corrupt asks for a Reset.
	Position(topic.Partition) (view.Position, error)
	// Load hands out every pair of a partition, and returns the position that they are of. What f gets is
	// not valid after it has returned. Corrupt asks for a Reset.
	Load(p topic.Partition, f func(key, value []byte) error) (view.Position, error)
	// ApplyAll changes pairs and positions of several partitions in one transaction.
	ApplyAll([]view.Update) error
	// Reset forgets a partition.
	Reset(topic.Partition) error
}

// feed brings the view up from the log, round after round, until ctx ends.
func (s *coordinators) feed(ctx context.Context) error {
	ticker := time.NewTicker(feedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.feedAll(ctx); err != nil && ctx.Err() == nil {
				s.node.logger.Warn("the view of __groups is not brought up", "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// feedAll brings the view up to the high watermark in every partition that is open here.
func (s *coordinators) feedAll(ctx context.Context) error {
	t, err := s.node.hall.byName(groupsTopic)
	if err != nil {
		return nil //nolint:nilerr // there are no groups yet
	}
	for more := true; more && ctx.Err() == nil; {
		f := feeding{room: feedBytes}
		for _, p := range *t.partitions.Load() {
			if p == nil || f.room <= 0 {
				continue
			}
			if err := s.gather(ctx, p, &f); err != nil {
				return err
			}
		}
		if len(f.updates) == 0 {
			return nil
		}
		if err := s.view.ApplyAll(f.updates); err != nil {
			return err
		}
		more = f.room <= 0
	}
	return nil
}

// feeding is one transaction of the view in the making.
type feeding struct {
	updates []view.Update
	room    int // bytes of the log that may still go into it
}

// gather adds what the view lacks of a partition, or a piece of it.
func (s *coordinators) gather(ctx context.Context, p *partition, f *feeding) error {
	if !p.settled.Load() { // the high watermark is not known again yet
		return nil
	}
	number, end := p.path.Partition, p.bounds().HighWatermark
	at, err := s.view.Position(number)
	now := time.Now()
	switch {
	case err != nil && !fault.Is(err, fault.Corrupt):
		return err
	// A load says so and resets nothing itself: between the Position above and the rows that are added to it
	// nobody may take the others away.
	case s.unsound[number].Swap(false), err != nil, at != view.Position{} && !p.fits(at, end, now):
		p.logger.Warn("the view of __groups does not fit the log and is made anew", "end", int64(at.End), "epoch", int(at.Epoch), "err", err)
		if err := s.view.Reset(number); err != nil {
			s.unsound[number].Store(true)
			return err
		}
		at = view.Position{}
	}
	if at == (view.Position{}) {
		at = view.Position{ID: p.ref.ID, End: p.log.Start(), Epoch: topic.NoEpoch, At: topic.Millis(now.UnixMilli())}
	}
	u := view.Update{Partition: number, To: at}
	if at.End < end {
		if err := f.walk(ctx, p, &u, end); err != nil {
			return err
		}
	} else if at.At == 0 || now.UnixMilli()-int64(at.At) < feedFresh.Milliseconds() {
		return nil
	}
	if u.To.End == end {
		u.To.At = topic.Millis(now.UnixMilli())
	}
	f.updates = append(f.updates, u)
	return nil
}

// walk puts records into an update, of each key the newest. The position's time stays: whatever the rows lack
// was deleted since then, even when the log in between is older.
func (f *feeding) walk(ctx context.Context, p *partition, u *view.Update, end topic.Offset) error {
	places := map[string]int{}
	begun := f.room
	next, err := p.walk(ctx, u.To.End, end, begun, func(r *batch.Record) error {
		change := view.Change{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
		f.room -= len(r.Key) + len(r.Value)
		if place, ok := places[string(r.Key)]; ok {
			u.Changes[place] = change
			return nil
		}
		places[string(r.Key)] = len(u.Changes)
		u.Changes = append(u.Changes, change)
		return nil
	})
	u.To.End, u.To.Epoch = next, p.log.EpochAt(next-1)
	if next < end {
		f.room = min(f.room, 0)
	}
	return err
}
