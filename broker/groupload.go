package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/broker/group/view"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// walkBytes are read of __groups at once.
const walkBytes = 1 << 20

// load makes the groups of a reign from the view and from the records behind it, and opens the door. It
// begins when everything that an earlier reign may have acknowledged is committed, and nothing else is in
// the log: what waited for its replicas would come in force unseen.
func (c *coordinator) load(ctx context.Context) error {
	begun := time.Now()
	epoch, end, err := c.awaitSettled(ctx)
	if err != nil {
		return err
	}
	image := c.node.hall.image.Load()
	seats, from, err := c.replay(ctx, end)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch, c.end, c.image, c.company = epoch, end, image, false
	if !c.leads() || c.p.log.End() != end {
		return fault.Newf("broker.loadGroups", fault.NotLeader, c.p.path, "the reign ended during the load")
	}
	c.seats = seats
	c.desk.kept.Add(int64(len(seats)))
	now := time.Now()
	for _, s := range seats {
		s.told = s.group.Rebalances()
		c.deciding = true
		records := s.group.Loaded(c.look(), now)
		c.deciding = false
		c.decided(s, records, now)
		c.count(s)
		c.wakeAt(s.group.NextExpiry())
	}
	c.serving = true
	c.tell()
	level := slog.LevelInfo
	if c.existing == 0 {
		level = slog.LevelDebug
	}
	c.logger.Log(ctx, level, "coordinates groups", "epoch", int(epoch), "groups", c.existing, "from", int64(from), "end", int64(end),
		"took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// awaitSettled returns the reign's epoch and the log's end when all of the log is committed in it.
func (c *coordinator) awaitSettled(ctx context.Context) (topic.Epoch, topic.Offset, error) {
	bell := make(chan struct{}, 1)
	stop, ok := c.p.bells.add(bell)
	if !ok {
		return 0, 0, c.p.whyGone()
	}
	defer stop()
	for {
		epoch := topic.Epoch(c.p.epoch.Load())
		// The end is read first: what is appended after that is not this coordinator's.
		if end := c.p.log.End(); c.p.settled.Load() && topic.Offset(c.p.hw.Load()) >= end {
			return epoch, end, nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// replay makes the groups from what is committed below end, and says from which offset on it has read the log.
func (c *coordinator) replay(ctx context.Context, end topic.Offset) (seats map[topic.GroupName]*seat, from topic.Offset, err error) {
	seats = map[topic.GroupName]*seat{}
	apply := func(key, value []byte) error {
		name, err := group.GroupOf(key)
		if err != nil {
			return err
		}
		s := seats[name]
		if s == nil {
			s = &seat{name: name, group: group.New(name, c.config())}
			seats[name] = s
		}
		return s.group.Replay(group.Record{Key: key, Value: value})
	}
	from, err = c.replayView(end, apply)
	if err != nil {
		c.logger.Warn("the view of __groups is no help, all of the log is read", "err", err)
		clear(seats)
		from = c.p.log.Start()
	}
	if _, err := c.p.walk(ctx, from, end, walkAll, func(r *batch.Record) error { return apply(r.Key, r.Value) }); err != nil {
		return nil, from, err
	}
	for name, s := range seats {
		if s.group.Gone() {
			delete(seats, name)
		}
	}
	return seats, from, nil
}

// replayView applies what the view has, and returns the offset at which the log goes on. Without a view,
// or with one that does not fit the log, it applies nothing.
func (c *coordinator) replayView(end topic.Offset, apply func(key, value []byte) error) (topic.Offset, error) {
	start := c.p.log.Start()
	if c.desk.view == nil {
		return start, nil
	}
	number := c.p.path.Partition
	at, err := c.desk.view.Position(number)
	if err != nil || !c.p.fits(at, end, time.Now()) {
		return start, err
	}
	at, err = c.desk.view.Load(number, apply)
	if err == nil && !c.p.fits(at, end, time.Now()) {
		err = fault.Newf("broker.loadGroups", fault.Corrupt, c.p.path, "the view has changed while it was read")
	}
	if fault.Is(err, fault.Corrupt) {
		c.desk.unsound[number].Store(true)
		return start, err
	}
	return at.End, err
}

// fits says whether a view is of this log, and of nothing that the log does not have, or has no more: it
// must know every key that was deleted, and compaction takes the tombstones out after their time.
func (p *partition) fits(at view.Position, end topic.Offset, now time.Time) bool {
	age := now.UnixMilli() - int64(at.At)
	return at.ID == p.ref.ID && at.End >= p.log.Start() && at.End <= end &&
		(at.End == 0 || p.log.EpochAt(at.End-1) == at.Epoch) &&
		age > -time.Hour.Milliseconds() && age < p.settings.Load().DeleteRetention.Milliseconds()
}

// walkAll reads to the end, however much that is.
const walkAll = 0

// walk goes through the records from an offset on and below an end, until it has read about most bytes,
// and returns the offset that it has come to.
func (p *partition) walk(ctx context.Context, from, end topic.Offset, most int, visit func(*batch.Record) error) (topic.Offset, error) {
	var reader batch.Reader
	defer reader.Close()
	for seen := 0; from < end && (most == walkAll || seen < most); {
		if err := ctx.Err(); err != nil {
			return from, err
		}
		bytes, next, gaps, err := p.read(from, end, walkBytes)
		if err != nil {
			return from, err
		}
		for _, gap := range gaps {
			p.logger.Error("records of groups are damaged or gone", "from", int64(gap.Start), "to", int64(gap.End), "reason", string(gap.Reason))
		}
		for reader.Reset(bytes, from); reader.Next(); {
			if err := visit(reader.Record()); err != nil {
				return from, err
			}
		}
		if err := reader.Err(); err != nil {
			return from, err
		}
		if next <= from {
			return from, fault.Newf("broker.walk", fault.Internal, p.path, "nothing can be read at offset %d, the end is %d", from, end)
		}
		from, seen = next, seen+len(bytes)
	}
	return from, nil
}
