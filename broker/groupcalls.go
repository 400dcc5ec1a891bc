package broker

import (
	"context"
	"slices"
	"time"

	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/topic"
)

// poll is PollGroup at the coordinator.
func (c *coordinator) poll(ctx context.Context, p *topic.GroupPoll) (topic.GroupTurn, error) {
	const op = "broker.PollGroup"
	begun := time.Now()
	var starts map[topic.Ref]topic.Offset // nil while they were not asked for
	for {
		if err := c.enter(ctx, op, p.Group); err != nil {
			return topic.GroupTurn{}, err
		}
		answer, after, missing, err := c.decidePoll(op, p, starts, begun)
		if missing != nil {
			if starts, err = c.node.starts(ctx, *missing); err != nil {
				return topic.GroupTurn{}, err
			}
			continue
		}
		if err != nil {
			return topic.GroupTurn{}, err
		}
		if err := after.await(ctx, op, p.Group); err != nil {
			if answer.Turn != 0 { // nobody will end it
				c.endTurn(p.Group, p.Member, answer.Turn, false)
			}
			return topic.GroupTurn{}, err
		}
		if len(p.Ack) > 0 {
			c.node.metrics.committed(len(p.Ack)-len(answer.NotCommitted), time.Since(begun))
		}
		return answer, nil
	}
}

// decidePoll is the part of a poll that runs under mu, which it was entered with and leaves free. Where
// the rules need to know offsets, which may take a look at the disk, it decides nothing and says so.
func (c *coordinator) decidePoll(op string, p *topic.GroupPoll, starts map[topic.Ref]topic.Offset, now time.Time) (answer topic.GroupTurn, after arrival, missing *missingStarts, err error) {
	defer c.mu.Unlock()
	s := c.seat(p.Group)
	if err = c.admit(op, s, s.demandOf(p)); err != nil {
		return answer, after, nil, err
	}
	if p.Turn != 0 {
		if err = s.goesOn(op, p); err != nil {
			return answer, after, nil, err
		}
	}
	w := c.look()
	c.deciding = true
	if starts == nil {
		if at, refs := s.group.Unstarted(p, w); len(refs) > 0 {
			c.deciding = false
			return answer, after, &missingStarts{at, refs}, nil
		}
	}
	answer, records, err := s.group.Poll(p, starts, w, now)
	c.deciding = false
	if err != nil {
		return topic.GroupTurn{}, after, nil, err
	}
	after = c.decided(s, records, now)
	if !p.Heartbeat {
		s.begin(p, &answer, c.desk, after.flight, now)
	}
	return answer, after, nil, nil
}

func (s *seat) demandOf(p *topic.GroupPoll) demand {
	switch {
	case !p.Heartbeat && (!s.exists || p.Epoch == topic.NoGroupEpoch):
		return makes
	case len(p.Ack) > 0:
		return changes
	default:
		return reads
	}
}

// missingStarts are partitions in which a group begins, and where.
type missingStarts struct {
	at   topic.GroupStart
	refs []topic.Ref
}

// endTurn is EndTurn at the coordinator.
func (c *coordinator) endTurn(g topic.GroupName, m topic.MemberName, number uint64, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seats[g]
	if s == nil || c.deciding {
		return
	}
	t, ok := s.turns[m]
	if !ok || t.number != number || !t.waiting {
		return
	}
	s.end(m, t, alive, time.Now())
	c.wakeAt(s.group.NextExpiry())
}

// disconnect is DisconnectMember at the coordinator.
func (c *coordinator) disconnect(g topic.GroupName, m topic.MemberName, e topic.GroupEpoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seats[g]
	if s == nil || c.deciding {
		return
	}
	s.group.Disconnect(m, e, time.Now())
	c.wakeAt(s.group.NextExpiry())
}

// change runs a rule, and returns when the records that it makes are committed.
func (c *coordinator) change(ctx context.Context, op string, g topic.GroupName, d demand, rule func(s *seat, now time.Time) ([]group.Record, error)) error {
	if err := c.enter(ctx, op, g); err != nil {
		return err
	}
	after, err := c.decideChange(op, g, d, rule)
	if err != nil {
		return err
	}
	return after.await(ctx, op, g)
}

func (c *coordinator) decideChange(op string, g topic.GroupName, d demand, rule func(s *seat, now time.Time) ([]group.Record, error)) (arrival, error) {
	defer c.mu.Unlock()
	s := c.seat(g)
	if err := c.admit(op, s, d); err != nil {
		return arrival{}, err
	}
	now := time.Now()
	c.deciding = true
	records, err := rule(s, now)
	c.deciding = false
	if err != nil {
		return arrival{}, err
	}
	return c.decided(s, records, now), nil
}

func (c *coordinator) leave(ctx context.Context, g topic.GroupName, m topic.MemberName, e topic.GroupEpoch, acks []topic.GroupCommit) (left []topic.NotCommitted, err error) {
	begun := time.Now()
	err = c.change(ctx, "broker.LeaveGroup", g, changes, func(s *seat, now time.Time) (records []group.Record, err error) {
		left, records, err = s.group.Leave(m, e, acks, c.look(), now)
		return records, err
	})
	if err != nil {
		return nil, err
	}
	if len(acks) > 0 {
		c.node.metrics.committed(len(acks)-len(left), time.Since(begun))
	}
	return left, nil
}

// seek moves positions and returns them as they are then.
func (c *coordinator) seek(ctx context.Context, g topic.GroupName, to []group.Position) (found []topic.GroupPartition, err error) {
	moved := make(map[topic.Ref]bool, len(to))
	for _, position := range to {
		moved[position.Ref] = true
	}
	return found, c.change(ctx, "broker.SeekGroup", g, makes, func(s *seat, now time.Time) ([]group.Record, error) {
		records, err := s.group.Seek(to, c.look(), now)
		if err == nil {
			found = s.positions(func(ref topic.Ref) bool { return moved[ref] })
		}
		return records, err
	})
}

// positions are those of the group in the partitions that are wanted.
func (s *seat) positions(want func(topic.Ref) bool) (found []topic.GroupPartition) {
	s.group.Positions(func(p topic.GroupPartition) bool {
		if want(p.Ref) {
			found = append(found, p)
		}
		return true
	})
	return found
}

func (c *coordinator) alter(ctx context.Context, g topic.GroupName, overrides map[string]*string) error {
	return c.change(ctx, "broker.AlterGroup", g, changes, func(s *seat, now time.Time) ([]group.Record, error) {
		return s.group.Alter(overrides, now)
	})
}

// remove is DeleteGroup at the coordinator.
func (c *coordinator) remove(ctx context.Context, g topic.GroupName) error {
	return c.change(ctx, "broker.DeleteGroup", g, changes, func(s *seat, now time.Time) ([]group.Record, error) {
		return s.group.Delete(now)
	})
}

// describe says what the group is doing, but for the bounds of its partitions.
func (c *coordinator) describe(ctx context.Context, g topic.GroupName) (*topic.GroupDescription, error) {
	const op = "broker.DescribeGroup"
	var d topic.GroupDescription
	err := c.change(ctx, op, g, reads, func(s *seat, _ time.Time) ([]group.Record, error) {
		if !s.group.Exists() {
			return nil, noGroup(op, g)
		}
		d = s.group.Describe()
		for i := range d.Members {
			t, ok := s.turns[d.Members[i].Name]
			d.Members[i].Polling = ok && t.waiting
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// list returns up to limit groups with names after a name, by name, when all that it says is committed.
func (c *coordinator) list(ctx context.Context, after topic.GroupName, limit int) ([]topic.GroupSummary, error) {
	const op = "broker.ListGroups"
	if err := c.enter(ctx, op, ""); err != nil {
		return nil, err
	}
	found, last := c.listNow(after, limit)
	if last == nil {
		return found, nil
	}
	return found, arrival{flight: last}.await(ctx, op, "")
}

func (c *coordinator) listNow(after topic.GroupName, limit int) (found []topic.GroupSummary, last *flight) {
	defer c.mu.Unlock()
	var names []topic.GroupName
	for name, s := range c.seats {
		if name > after && s.group.Exists() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(max(limit, 0), len(names))] {
		found = append(found, c.seats[name].group.Summary())
	}
	if waiting := len(c.queue); waiting > 0 {
		last = c.queue[waiting-1]
	}
	return found, last
}
