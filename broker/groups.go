package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// The state of all groups of the cluster is in one topic. A group's partition follows from its name, so
// the number of partitions is fixed for ever.
const (
	groupsTopic     = topic.Name("__groups")
	groupPartitions = 16
	keptPerGroup    = 10 // groups in memory, with those deleted not long ago, for each that may exist
)

// groupsSettings are those of __groups. Segments are small, because what is in the last one is not
// compacted; a batch may be large, because what one call changes is in one.
var groupsSettings = map[string]string{
	"cleanup.policy":    "compact",
	"compression.type":  "none",
	"max.message.bytes": "16777216",
	"segment.bytes":     "16777216",
}

// coordinators are those of the partitions of __groups that are open on this node.
type coordinators struct {
	node     *Node
	view     GroupView                    // nil: a load reads all of the log. Only the feeder changes it
	unsound  [groupPartitions]atomic.Bool // a load could not use the view, and the feeder is to make it anew
	at       [groupPartitions]atomic.Pointer[coordinator]
	existing atomic.Int64  // groups that exist
	kept     atomic.Int64  // groups in memory, with those that were deleted and are remembered
	turns    atomic.Uint64 // the number of the last turn
	flights  pace          // of all coordinators

	mu    sync.Mutex
	moved chan struct{} // closed when another coordinator is there; guarded by mu
}

func newCoordinators(n *Node, view GroupView) *coordinators {
	s := &coordinators{node: n, view: view, moved: make(chan struct{})}
	// Turns of an earlier run of the node, or of another node, have lower numbers.
	s.turns.Store(uint64(max(time.Now().UnixMicro(), 0)))
	return s
}

// run has a coordinator for every partition of __groups that is open here, until ctx ends.
func (s *coordinators) run(ctx context.Context) error {
	tasks := run.NewGroup(ctx)
	if s.view != nil {
		tasks.Go("feeder", s.feed)
	}
	tasks.Go("partitions", func(ctx context.Context) error {
		for {
			_, moved := s.node.hall.watch()
			s.open(tasks)
			select {
			case <-moved:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return tasks.Wait()
}

// open starts the coordinators that are missing. Those of partitions that are gone end by themselves.
func (s *coordinators) open(tasks *run.Group) {
	t, err := s.node.hall.byName(groupsTopic)
	if err != nil {
		return
	}
	for i, p := range *t.partitions.Load() {
		if p == nil || i >= groupPartitions {
			continue
		}
		if c := s.at[i].Load(); c != nil && c.p == p {
			continue
		}
		c := s.newCoordinator(p)
		s.at[i].Store(c)
		tasks.Go(p.path.String(), c.run)
		s.mu.Lock()
		close(s.moved)
		s.moved = make(chan struct{})
		s.mu.Unlock()
	}
}

// coordinator finds the one of a group. Where make is set, the topic is made when there is none; else
// there is no such group.
func (n *Node) coordinator(ctx context.Context, op string, g topic.GroupName, make bool) (*coordinator, error) {
	if err := n.serving(op); err != nil {
		return nil, err
	}
	i := keyed([]byte(g), groupPartitions)
	if c := n.groups.at[i].Load(); c != nil {
		return c, nil
	}
	c, err := n.groups.await(ctx, op, i, make)
	if fault.Is(err, fault.NoTopic) {
		return nil, noGroup(op, g)
	}
	return c, err
}

// await returns the coordinator of a partition as soon as there is one, or NoTopic.
func (s *coordinators) await(ctx context.Context, op string, i topic.Partition, make bool) (*coordinator, error) {
	timer := time.NewTimer(loadPatience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if c := s.at[i].Load(); c != nil {
			return c, nil
		}
		t, err := s.node.hall.byName(groupsTopic)
		switch {
		case fault.Is(err, fault.NoTopic) && make:
			if err := s.makeTopic(ctx); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		if _, err := t.at(i); err != nil {
			return nil, err
		}
		select {
		case <-moved:
		case <-s.node.hall.closed:
			return nil, stopping(op)
		case <-timer.C:
			return nil, fault.Newf(op, fault.Loading, nil, "the coordinator of groups has not begun yet")
		case <-ctx.Done():
			return nil, fault.Newf(op, fault.Loading, nil, "the coordinator of groups has not begun yet")
		}
	}
}

// makeTopic makes __groups, or finds that another node has, and returns when it is open here.
func (s *coordinators) makeTopic(ctx context.Context) error {
	const op = "broker.makeGroups"
	image := s.node.hall.image.Load()
	replication := cmp.Or(s.node.cfg.DefaultReplication, min(3, len(image.Nodes())))
	if err := s.node.mayGrow(op, image, groupsTopic, groupPartitions*replication); err != nil {
		return err
	}
	_, err := s.node.cluster.Propose(ctx, cluster.Command{Op: cluster.CreateTopic{
		ID: topic.NewID(), Name: groupsTopic, Partitions: groupPartitions, Replication: replication,
		Overrides: groupsSettings, At: topic.Millis(time.Now().UnixMilli()),
	}})
	if err != nil && !fault.Is(err, fault.TopicExists) {
		return err
	}
	_, err = s.node.hall.awaitTopic(ctx, groupsTopic)
	return err
}

func noGroup(op string, g topic.GroupName) error {
	return fault.Newf(op, fault.NoGroup, g, "group %q does not exist", g)
}

// PollGroup answers a member's call: see topic.GroupPoll. It returns when what it has changed is
// committed. A poll that is not a heartbeat has to be ended with EndTurn.
func (n *Node) PollGroup(ctx context.Context, p *topic.GroupPoll) (topic.GroupTurn, error) {
	const op = "broker.PollGroup"
	if p.Member == topic.MadeMember {
		if p.Epoch != topic.NoGroupEpoch {
			return topic.GroupTurn{}, fault.Newf(op, fault.Validation, p.Group, "member %q asks for a name, which only a join does: an epoch belongs to the name that was made", p.Member)
		}
		made := *p
		made.Member = makeMember(p)
		p = &made
	}
	c, err := n.coordinator(ctx, op, p.Group, p.Subscription != nil)
	if fault.Is(err, fault.NoGroup) {
		err = fault.Newf(op, fault.NoMember, p.Group, "%q is no member of the group, or not any more; to join it polls with topics", p.Member)
	}
	if err != nil {
		return topic.GroupTurn{}, err
	}
	return c.poll(ctx, p)
}

// makeMember makes a name. Of the same text it is the same for the same principal, so that a join whose
// answer was lost is repeated and not doubled.
func makeMember(p *topic.GroupPoll) topic.MemberName {
	if p.MadeFrom == "" {
		return topic.MemberName("m-" + strings.ToLower(rand.Text()))
	}
	h := sha256.New()
	for _, part := range []string{string(p.Group), p.Principal, p.MadeFrom} {
		h.Write([]byte{byte(len(part) >> 24), byte(len(part) >> 16), byte(len(part) >> 8), byte(len(part))})
		h.Write([]byte(part))
	}
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
	return topic.MemberName("m-" + strings.ToLower(text[:26]))
}

// EndTurn says that a poll is over. alive is false where its caller is gone: then the poll was no sign of
// life beyond its beginning.
func (n *Node) EndTurn(g topic.GroupName, m topic.MemberName, number uint64, alive bool) {
	if c := n.groups.at[keyed([]byte(g), groupPartitions)].Load(); c != nil {
		c.endTurn(g, m, number, alive)
	}
}

// DisconnectMember says that the connection of a member is closed: its time to come back begins.
func (n *Node) DisconnectMember(g topic.GroupName, m topic.MemberName, e topic.GroupEpoch) {
	if c := n.groups.at[keyed([]byte(g), groupPartitions)].Load(); c != nil {
		c.disconnect(g, m, e)
	}
}

// LeaveGroup commits and takes a member out of its group. With epoch NoGroupEpoch it is whoever has the
// name. It returns what did not count of the acks.
func (n *Node) LeaveGroup(ctx context.Context, g topic.GroupName, m topic.MemberName, e topic.GroupEpoch, acks []topic.GroupCommit) ([]topic.NotCommitted, error) {
	c, err := n.coordinator(ctx, "broker.LeaveGroup", g, false)
	if err != nil {
		return nil, err
	}
	return c.leave(ctx, g, m, e, acks)
}

// SeekGroup moves committed offsets, and returns the positions that hold then.
func (n *Node) SeekGroup(ctx context.Context, s *topic.GroupSeek) ([]topic.GroupPartition, error) {
	const op = "broker.SeekGroup"
	if err := n.serving(op); err != nil {
		return nil, err
	}
	to, err := n.positions(ctx, s)
	if err != nil {
		return nil, err
	}
	c, err := n.coordinator(ctx, op, s.Group, true)
	if err != nil {
		return nil, err
	}
	found, err := c.seek(ctx, s.Group, to)
	if err != nil {
		return nil, err
	}
	for i := range found {
		n.measure(&found[i])
	}
	return found, nil
}

// AlterGroup changes settings of a group; a nil value goes back to the node's.
func (n *Node) AlterGroup(ctx context.Context, g topic.GroupName, overrides map[string]*string) (*topic.GroupDescription, error) {
	c, err := n.coordinator(ctx, "broker.AlterGroup", g, false)
	if err != nil {
		return nil, err
	}
	if err := c.alter(ctx, g, overrides); err != nil {
		return nil, err
	}
	return n.DescribeGroup(ctx, g)
}

// DescribeGroup says what a group is doing, and how far it is behind.
func (n *Node) DescribeGroup(ctx context.Context, g topic.GroupName) (*topic.GroupDescription, error) {
	c, err := n.coordinator(ctx, "broker.DescribeGroup", g, false)
	if err != nil {
		return nil, err
	}
	d, err := c.describe(ctx, g)
	if err != nil {
		return nil, err
	}
	for i := range d.Partitions {
		n.measure(&d.Partitions[i])
	}
	return d, nil
}

// measure fills in the bounds and the lag of a partition, where they are known here.
func (n *Node) measure(p *topic.GroupPartition) {
	p.LogStart, p.End, p.Lag = topic.NoOffset, topic.NoOffset, -1
	one, err := n.hall.partition(p.Ref)
	if err != nil || !one.settled.Load() {
		return
	}
	bounds := one.bounds()
	p.LogStart, p.End = bounds.LogStart, bounds.HighWatermark
	p.Lag = max(0, int64(bounds.HighWatermark-max(p.Committed, bounds.LogStart)))
}

// ListGroups returns up to limit groups with names after a name, by name.
func (n *Node) ListGroups(ctx context.Context, after topic.GroupName, limit int) ([]topic.GroupSummary, error) {
	const op = "broker.ListGroups"
	if err := n.serving(op); err != nil {
		return nil, err
	}
	var found []topic.GroupSummary
	for i := range topic.Partition(groupPartitions) {
		c, err := n.groups.await(ctx, op, i, false)
		if fault.Is(err, fault.NoTopic) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		some, err := c.list(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	slices.SortFunc(found, func(a, b topic.GroupSummary) int { return cmp.Compare(a.Name, b.Name) })
	return found[:min(max(limit, 0), len(found))], nil
}

// DeleteGroup deletes a group that has no members, with its offsets.
func (n *Node) DeleteGroup(ctx context.Context, g topic.GroupName) error {
	c, err := n.coordinator(ctx, "broker.DeleteGroup", g, false)
	if err != nil {
		return err
	}
	return c.remove(ctx, g)
}
