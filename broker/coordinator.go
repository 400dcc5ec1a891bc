package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// Bounds of a coordinator's patience.
const (
	loadPatience = 3 * time.Second       // of a call, while groups are being loaded
	reloadFirst  = 50 * time.Millisecond // between an append that failed and the load that follows, doubled
	reloadMost   = 5 * time.Second       // each time that this happens again soon, up to this
	alarmPause   = 10 * time.Millisecond // between two looks for what has expired, at least
	fullPause    = time.Second           // after an append for which the disk had no room, to those who would bring another
)

// coordinator decides for the groups whose state is in one partition of __groups. Calls decide on their
// callers' goroutines, one at a time under mu, and leave the records of their decisions in the queue; run
// alone appends them, loads the groups before, and throws them away when a record could not be committed.
type coordinator struct {
	node   *Node
	desk   *coordinators
	p      *partition
	logger *slog.Logger
	wake   chan struct{} // has a ring when a flight waits
	sooner chan struct{} // has a ring when the alarm was set to an earlier time, or when a call has found it broken

	// The goroutine's own, in a reign that is loaded; epoch is read by calls too, and written under mu.
	epoch      topic.Epoch
	end        topic.Offset // of the log, which nobody else appends to
	lastCommit time.Time
	company    bool           // the last flight had several decisions
	own        pace           // of its flights
	fullUntil  atomic.Int64   // until when the disk is taken for full, in nanoseconds; see admit
	image      *cluster.Image // whose topics all groups have been told of

	mu       sync.Mutex
	serving  bool          // groups are loaded, and calls decide
	over     error         // why there will be no more calls; nil before
	moved    chan struct{} // closed when serving or over has changed
	deciding bool          // the rules are at work; found by another call only after a panic
	seats    map[topic.GroupName]*seat
	existing int       // of the groups in seats, those that exist
	alarm    time.Time // when something expires next; zero: nothing does
	queue    []*flight
	world    groupWorld
}

// seat is a group with what its coordinator has to know of it beside the rules.
type seat struct {
	name   topic.GroupName
	group  *group.Group
	exists bool                      // as it was when it was last counted
	last   *flight                   // with the newest of the group's records; nil when all are committed
	turns  map[topic.MemberName]turn // of members that have polled
	told   uint64                    // of the group's rebalances, those that were counted
}

func (s *coordinators) newCoordinator(p *partition) *coordinator {
	return &coordinator{
		node: s.node, desk: s, p: p, logger: p.logger,
		wake: make(chan struct{}, 1), sooner: make(chan struct{}, 1), moved: make(chan struct{}),
		world: groupWorld{hall: s.node.hall},
	}
}

// run loads and serves, reign after reign, until ctx or the partition ends.
func (c *coordinator) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.p.life, cancel)()
	pause := reloadFirst
	for {
		begun := time.Now()
		err := run.Safely("coordinator", func() error { return c.reign(ctx) })
		if ctx.Err() != nil {
			c.close()
			return nil
		}
		c.discard(fault.Newf("broker.groups", fault.Loading, c.p.path, "the groups are being loaded again: %w", err))
		if fault.Is(err, fault.StorageFull) {
			c.fullUntil.Store(time.Now().Add(fullPause).UnixNano())
		}
		if time.Since(begun) > reloadMost || fault.Is(err, fault.StorageFull) { // then nothing was written
			pause = reloadFirst
		}
		c.logger.Warn("groups are loaded again", "err", err, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, reloadMost)
	}
}

// close answers everyone for the last time.
func (c *coordinator) close() {
	why := c.p.whyGone()
	switch {
	case why == nil:
		why = stopping("broker.groups")
	case fault.Is(why, fault.NoTopic):
		why = fault.Newf("broker.groups", fault.NotLeader, c.p.path, "the topic was made anew")
	}
	c.mu.Lock()
	c.over = why
	c.mu.Unlock()
	c.discard(why)
}

// reign serves one reign of this node as the partition's leader, from the load on.
func (c *coordinator) reign(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, moved := c.node.hall.watch()
		if !c.leads() {
			return fault.Newf("broker.groups", fault.NotLeader, c.p.path, "epoch %d is over", c.epoch)
		}
		c.followTopics(time.Now())
		timer.Reset(c.untilAlarm())
		select {
		case <-c.wake:
			if err := c.commit(ctx); err != nil {
				return err
			}
		case <-timer.C:
			c.expire(time.Now())
		case <-c.sooner:
			if c.broken() {
				return fault.Newf("broker.groups", fault.Internal, c.p.path, "a decision has panicked")
			}
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leads says whether the reign that was loaded goes on.
func (c *coordinator) leads() bool {
	return topic.Epoch(c.p.epoch.Load()) == c.epoch && c.p.settled.Load() && c.p.whyGone() == nil
}

// broken says whether a call has left the rules in the middle of something.
func (c *coordinator) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deciding
}

// enter takes mu for a call that is to decide, after the groups are loaded. After an error mu is free.
func (c *coordinator) enter(ctx context.Context, op string, g topic.GroupName) error {
	c.mu.Lock()
	if c.open() {
		return nil
	}
	c.mu.Unlock()
	return c.enterLater(ctx, op, g)
}

// open says whether calls may decide now. mu is held.
func (c *coordinator) open() bool {
	if c.deciding {
		ring(c.sooner)
		return false
	}
	return c.serving && c.leads()
}

// enterLater is enter for a call that has to wait.
func (c *coordinator) enterLater(ctx context.Context, op string, g topic.GroupName) error {
	timer := time.NewTimer(loadPatience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		if c.open() {
			return nil
		}
		moved, over, deposed := c.moved, c.over, c.serving && !c.leads()
		c.mu.Unlock()
		switch {
		case over != nil:
			return over
		case deposed:
			return fault.Newf(op, fault.NotLeader, g, "the group's coordinator moves to another node, or begins anew")
		}
		select {
		case <-moved:
		case <-timer.C:
			return fault.Newf(op, fault.Loading, g, "the group's coordinator is still reading what was committed")
		case <-ctx.Done():
			return fault.Newf(op, fault.Loading, g, "the group's coordinator is still reading what was committed")
		}
	}
}

// look puts the cluster as it is now before the rules. mu is held, as by all below.
func (c *coordinator) look() *groupWorld {
	c.world.image = c.node.hall.image.Load()
	return &c.world
}

// config is that of all groups of the node.
func (c *coordinator) config() group.Config {
	cfg := &c.node.cfg
	return group.Config{Settings: cfg.Groups, OffsetsRetention: cfg.GroupOffsetsRetention, MaxMembers: cfg.MaxGroupMembers}
}

// seat finds a group, or takes a seat for it that is kept once there is something to keep; see decided.
func (c *coordinator) seat(g topic.GroupName) *seat {
	if s := c.seats[g]; s != nil {
		return s
	}
	return &seat{name: g, group: group.New(g, c.config())}
}

// demand is what a call is likely to ask of the log.
type demand int8

const (
	reads   demand = iota // no records
	changes               // some
	makes                 // the first ones of a group
)

// admit says whether there is room for another decision. While the disk is full, what is likely to have
// records is refused before the rules change anything: after an append that failed all groups have to be
// loaded again, and their readers would wait too.
func (c *coordinator) admit(op string, s *seat, d demand) error {
	if d != reads && time.Now().UnixNano() < c.fullUntil.Load() {
		return fault.Newf(op, fault.StorageFull, s.name, "the node's disk has no room for changes of groups; nothing was changed")
	}
	if len(c.queue) > mostFlights {
		return fault.Newf(op, fault.Overloaded, s.name, "too many changes of groups wait to be committed")
	}
	if d != makes || s.exists {
		return nil
	}
	most := int64(c.node.cfg.MaxGroups)
	if c.desk.existing.Load() >= most {
		return fault.Newf(op, fault.Limit, s.name, "the node has %d consumer groups, no more are allowed", most)
	}
	if c.seats[s.name] == nil && c.desk.kept.Load() >= most*keptPerGroup {
		return fault.Newf(op, fault.Limit, s.name, "the node remembers %d consumer groups that were deleted not long ago, no more are allowed", c.desk.kept.Load())
	}
	return nil
}

// decided follows a call of the rules: it puts their records on the way, sees to it that the members who
// are concerned hear of it once those are committed, and returns what an answer has to wait for.
func (c *coordinator) decided(s *seat, records []group.Record, now time.Time) arrival {
	a := arrival{own: len(records) > 0}
	switch {
	case a.own:
		s.last = c.put(records, now)
	case s.last != nil && s.last.landed:
		s.last = nil
	}
	a.flight = s.last
	for _, m := range s.group.Moved() {
		s.notify(m, a.flight)
	}
	if a.own {
		c.count(s)
		c.wakeAt(s.group.NextExpiry())
	}
	return a
}

// count keeps the numbers of groups, and drops a group of which nothing is left.
func (c *coordinator) count(s *seat) {
	if exists := s.group.Exists(); exists != s.exists {
		s.exists = exists
		change := 1
		if !exists {
			change = -1
		}
		c.existing += change
		c.desk.existing.Add(int64(change))
	}
	switch kept := c.seats[s.name] == s; {
	case s.group.Gone() && kept:
		delete(c.seats, s.name)
		c.desk.kept.Add(-1)
	case !s.group.Gone() && !kept:
		c.seats[s.name] = s
		c.desk.kept.Add(1)
	}
	c.node.metrics.rebalances.Add(float64(s.group.Rebalances() - s.told))
	s.told = s.group.Rebalances()
}

// wakeAt sets the alarm to a time, where that is earlier.
func (c *coordinator) wakeAt(at time.Time, ok bool) {
	if ok && (c.alarm.IsZero() || at.Before(c.alarm)) {
		c.alarm = at
		ring(c.sooner)
	}
}

// untilAlarm is how long nothing expires.
func (c *coordinator) untilAlarm() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seats) == 0 {
		return time.Hour
	}
	if c.alarm.IsZero() {
		return sweepEvery
	}
	return min(max(time.Until(c.alarm), alarmPause), sweepEvery)
}

// expire ends what has lasted its time, in every group, and sets the alarm anew. Members that have shown
// life meanwhile have moved the true time of it, so the alarm often finds nothing to do.
func (c *coordinator) expire(now time.Time) {
	c.mu.Lock()
	c.alarm = time.Time{}
	c.mu.Unlock()
	c.each(func(s *seat) {
		s.sweep(now)
		if at, ok := s.group.NextExpiry(); ok && !at.After(now) {
			c.apply(s, now, func() []group.Record { return s.group.Expire(now) })
		}
		c.wakeAt(s.group.NextExpiry())
	})
}

// followTopics tells the groups of topics that have changed.
func (c *coordinator) followTopics(now time.Time) {
	image := c.node.hall.image.Load()
	if image == c.image {
		return
	}
	difference := image.Since(c.image)
	c.image = image
	if len(difference.Changed) == 0 && len(difference.Gone) == 0 {
		return
	}
	affected := func(g *group.Group) bool {
		for _, t := range difference.Gone {
			if g.Affected(t.Name, t.ID) {
				return true
			}
		}
		for _, t := range difference.Changed {
			if g.Affected(t.Name, t.ID) {
				return true
			}
		}
		return false
	}
	c.each(func(s *seat) {
		if affected(s.group) {
			c.apply(s, now, func() []group.Record { return s.group.TopicsChanged(c.look(), now) })
		}
	})
}

// apply has the rules decide something that no call has asked for.
func (c *coordinator) apply(s *seat, now time.Time, rule func() []group.Record) {
	c.deciding = true
	records := rule()
	c.deciding = false
	c.decided(s, records, now)
}

// each visits every group that is seated now. It holds mu for one group at a time, so that calls of the
// others need not wait for all of them.
func (c *coordinator) each(visit func(*seat)) {
	c.mu.Lock()
	seats := make([]*seat, 0, len(c.seats))
	for _, s := range c.seats {
		seats = append(seats, s)
	}
	c.mu.Unlock()
	one := func(s *seat) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seats[s.name] == s && !c.deciding {
			visit(s)
		}
	}
	for _, s := range seats {
		one(s)
	}
}

// discard throws the groups away. Everyone who waits for something of them is told why.
func (c *coordinator) discard(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.queue {
		f.end(why)
	}
	for _, s := range c.seats {
		for _, t := range s.turns {
			t.wake()
		}
	}
	c.desk.existing.Add(int64(-c.existing))
	c.desk.kept.Add(int64(-len(c.seats)))
	c.queue, c.seats, c.existing, c.alarm = nil, nil, 0, time.Time{}
	c.serving, c.deciding = false, false
	c.tell()
}

// tell wakes those who wait for the coordinator to be another.
func (c *coordinator) tell() {
	close(c.moved)
	c.moved = make(chan struct{})
}
