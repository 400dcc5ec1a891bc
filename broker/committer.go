package broker

import (
	"context"
	"time"

	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// The pace and the bounds of what a coordinator appends.
const (
	gatherTime      = 2 * time.Millisecond // how long an append waits for company when the last one had some
	gatherBusy      = 5 * time.Millisecond // how long it waits while other coordinators keep the disk busy
	busyFlights     = 50                   // of others within paceWindow: then the disk is busy
	mostFlightBytes = 1 << 20              // a flight of this size takes no further decision
	mostFlights     = 16                   // wait to be appended; then calls are refused
)

// flight is the records of decisions on their way to __groups, as one batch: all of them are committed, or
// none is. A decision is never spread over two flights.
type flight struct {
	builder   batch.Builder
	buffer    *buffer
	decisions int
	under     bool            // it is being appended, and takes no further decision; guarded by the coordinator's mu
	landed    bool            // it is committed; guarded by the coordinator's mu
	wakes     []chan struct{} // of turns that its records make out of date; guarded by the coordinator's mu

	done chan struct{} // closed when the outcome is known
	err  error         // set before done is closed
}

// put adds the records of one decision to what is to be appended, and returns the flight that they are in.
func (c *coordinator) put(records []group.Record, now time.Time) *flight {
	var f *flight
	if last := len(c.queue) - 1; last >= 0 && !c.queue[last].under && c.queue[last].builder.Size() < mostFlightBytes {
		f = c.queue[last]
	} else {
		f = &flight{buffer: takeBuffer(4 << 10), done: make(chan struct{})}
		f.builder.Reset(f.buffer.b, batch.Options{})
		c.queue = append(c.queue, f)
		ring(c.wake)
	}
	at := topic.Millis(now.UnixMilli())
	for i := range records {
		one := topic.Record{Key: records[i].Key, Value: records[i].Value}
		f.builder.Append(&one, at)
	}
	f.decisions++
	return f
}

// commit appends the first flight that waits and tells those who wait for it. An error says that the
// groups in memory are not what the log has, or may not be.
func (c *coordinator) commit(ctx context.Context) error {
	c.gather(ctx)
	f := c.takeOff()
	if f == nil {
		return nil
	}
	end, err := c.append(f)
	if fault.Is(err, fault.Fenced) || fault.Is(err, fault.OffsetMismatch) { // somebody else has led meanwhile
		err = fault.Newf("broker.commitGroups", fault.NotLeader, c.p.path, "the groups have had another coordinator: %w", err)
	}
	c.land(f, err)
	if err != nil {
		return err
	}
	c.end, c.lastCommit, c.company = end, time.Now(), f.decisions > 1
	c.own.add(c.lastCommit)
	c.desk.flights.add(c.lastCommit)
	return nil
}

// gather waits for others who are about to decide something, when there have been others just before, or
// when the node's other coordinators sync so often that one sync should serve more than one decision. Who
// has the node alone, however fast it calls, never waits.
func (c *coordinator) gather(ctx context.Context) {
	now := time.Now()
	var left time.Duration
	switch {
	case c.desk.flights.recent(now)-c.own.recent(now) >= busyFlights:
		left = gatherBusy
	case c.company:
		left = gatherTime - now.Sub(c.lastCommit)
	}
	if left <= 0 || c.full() {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// full says that waiting would not make the next flight larger.
func (c *coordinator) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0 || c.queue[0].builder.Size() >= mostFlightBytes
}

// takeOff closes the first flight to further decisions.
func (c *coordinator) takeOff() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	c.queue[0].under = true
	return c.queue[0]
}

// append writes a flight to the log, and returns the log's new end when its records are committed. The
// partition takes them only in the epoch that was loaded, and only behind what was loaded or appended
// since: nobody else has written anything then.
func (c *coordinator) append(f *flight) (topic.Offset, error) {
	const op = "broker.commitGroups"
	count := int32(f.builder.Count())
	bytes, err := f.builder.Finish()
	if err != nil {
		giveBuffer(f.buffer, f.buffer.b)
		return topic.NoOffset, err
	}
	if most := c.p.settings.Load().MaxMessageBytes; len(bytes) > most {
		giveBuffer(f.buffer, bytes)
		return topic.NoOffset, fault.Newf(op, fault.Limit, c.p.path, "the change needs records of %d bytes, at most %d can be committed at once", len(bytes), most)
	}
	last, reign := c.end-1, c.epoch
	one := &part{
		call: &call{done: make(chan struct{}, 1)}, to: c.p, acks: topic.AcksAll, ifLast: &last, reign: &reign,
		buf: bytes, buffer: f.buffer,
		batches: []staged{{stop: len(bytes), count: count, base: topic.NoOffset, timestamp: topic.NoTimestamp}},
	}
	one.call.left.Store(1)
	if err := c.p.inbox.put(one); err != nil {
		one.giveBuffer()
		return topic.NoOffset, err
	}
	// The wait has no end of its own: the owner answers, or the disk that it waits for ends the node.
	if err := one.outcome(one.call.wait(context.Background(), c.node)); err != nil {
		return topic.NoOffset, err
	}
	if err := one.batches[0].err; err != nil {
		return topic.NoOffset, err
	}
	return one.end(), nil
}

// land publishes the outcome of the first flight.
func (c *coordinator) land(f *flight, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue[0] = nil
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	} else {
		ring(c.wake)
	}
	f.landed = err == nil
	if err != nil {
		c.serving = false // what the rules say now was perhaps never said
	}
	f.end(err)
}

// end tells everyone who waits for the flight. The coordinator's mu is held.
func (f *flight) end(err error) {
	f.err = err
	close(f.done)
	for _, changed := range f.wakes {
		close(changed)
	}
	f.wakes = nil
}

// arrival is the flight that an answer has to wait for, nil for none, and whether it carries the answer's
// own records.
type arrival struct {
	flight *flight
	own    bool
}

// await returns when the records that an answer depends on are committed.
func (a arrival) await(ctx context.Context, op string, g topic.GroupName) error {
	if a.flight == nil {
		return nil
	}
	select {
	case <-a.flight.done:
	case <-ctx.Done():
		if a.own {
			return fault.Newf(op, fault.Timeout, g, "the change was not acknowledged in time, the outcome is unknown")
		}
		return fault.Newf(op, fault.Loading, g, "an earlier change of the group was not committed in time")
	}
	switch err := a.flight.err; {
	case err == nil:
		return nil
	case a.own:
		return fault.New(op, fault.KindOf(err), g, err)
	default:
		return fault.Newf(op, fault.Loading, g, "an earlier change of the group was not committed: %w", err)
	}
}
