package cluster

import (
	"math"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func (op RegisterNode) apply(s *State) Result {
	if op.Node < 1 {
		return refuse("RegisterNode", fault.Validation, nil, "node id %d: must be at least 1", op.Node)
	}
	node, _ := s.image.nodes.get(op.Node)
	node.ID = op.Node
	node.Incarnation++
	node.RegisteredAt = op.At
	s.image.nodes = s.image.nodes.with(op.Node, node)
	s.image.topics = s.image.topics.mapped(func(t *Topic) (*Topic, bool) { return t.reigned(op.Node, s.image.version) })
	return Result{Incarnation: node.Incarnation}
}

// reigned returns the topic with a new epoch in every partition that a node leads, and whether there
// is any.
func (t *Topic) reigned(leader topic.NodeID, version uint64) (*Topic, bool) {
	led := func(p topic.PartitionDescription) bool { return p.Leader == leader }
	if !slices.ContainsFunc(t.Partitions, led) {
		return t, false
	}
	next := t.changed(version)
	for i := range next.Partitions {
		if p := &next.Partitions[i]; led(*p) {
			p.Epoch++
			p.Changes++
		}
	}
	return next, true
}

// changed returns a copy whose partitions may be written to until it is in an image.
func (t *Topic) changed(version uint64) *Topic {
	description := *t.Description
	description.Partitions = slices.Clone(description.Partitions)
	return &Topic{Description: &description, Creator: t.Creator, Growth: t.Growth, Version: version}
}

// led finds a partition for a proposer that must lead it, in the process that is registered now.
func (s *State) led(what string, ref topic.Ref, by topic.NodeID, incarnation topic.Incarnation) (*Topic, topic.PartitionDescription, error) {
	refuse := func(kind fault.Kind, where any, format string, args ...any) (*Topic, topic.PartitionDescription, error) {
		return nil, topic.PartitionDescription{}, fault.Newf("cluster."+what, kind, where, format, args...)
	}
	t, ok := s.image.TopicByID(ref.ID)
	if !ok {
		return refuse(fault.NoTopic, ref.ID, "topic %s does not exist", ref.ID)
	}
	path := topic.Path{Topic: t.Name, Partition: ref.Partition}
	if ref.Partition < 0 || int(ref.Partition) >= len(t.Partitions) {
		return refuse(fault.NoPartition, path, "the topic has %d partitions", len(t.Partitions))
	}
	p := t.Partitions[ref.Partition]
	if by != p.Leader {
		return refuse(fault.Fenced, path, "node %d leads, node %d has nothing to propose", p.Leader, by)
	}
	if node, _ := s.image.nodes.get(by); incarnation != node.Incarnation {
		return refuse(fault.Fenced, path, "incarnation %d of node %d is over, it is now in %d", incarnation, by, node.Incarnation)
	}
	return t, p, nil
}

func (op ChangePartition) apply(s *State) Result {
	const what = "ChangePartition"
	t, p, err := s.led(what, op.Partition, op.By, op.Incarnation)
	if err != nil {
		return Result{Err: err}
	}
	path := topic.Path{Topic: t.Name, Partition: op.Partition.Partition}
	switch {
	case op.Epoch != p.Epoch:
		return refuse(what, fault.Fenced, path, "epoch %d is over, the leader is now in %d", op.Epoch, p.Epoch)
	case op.Changes != p.Changes:
		return refuse(what, fault.Fenced, path, "the proposal builds on partition epoch %d, the partition is now in %d", op.Changes, p.Changes)
	case !slices.Contains(op.InSync, op.Leader):
		return refuse(what, fault.Validation, path, "node %d cannot lead outside of the in-sync set %v", op.Leader, op.InSync)
	}
	for i, n := range op.InSync {
		if !slices.Contains(p.Replicas, n) || slices.Contains(op.InSync[:i], n) {
			return refuse(what, fault.Validation, path, "the in-sync set %v is not a part of the replicas %v", op.InSync, p.Replicas)
		}
	}
	next := t.changed(s.image.version)
	np := &next.Partitions[op.Partition.Partition]
	np.InSync = slices.Clone(op.InSync)
	np.Changes++
	if op.Leader != p.Leader {
		np.Leader = op.Leader
		np.Epoch++
	}
	s.image.topics = s.image.topics.with(next.Name, next)
	return Result{Topic: next}
}

func (op RaiseEpoch) apply(s *State) Result {
	const what = "RaiseEpoch"
	t, p, err := s.led(what, op.Partition, op.By, op.Incarnation)
	switch {
	case err != nil:
		return Result{Err: err}
	case op.Above == math.MaxInt32:
		return refuse(what, fault.Validation, topic.Path{Topic: t.Name, Partition: p.Partition}, "there is no epoch above %d", op.Above)
	case p.Epoch > op.Above:
		return Result{Topic: t}
	}
	next := t.changed(s.image.version)
	np := &next.Partitions[p.Partition]
	np.Epoch = op.Above + 1
	np.Changes++
	s.image.topics = s.image.topics.with(next.Name, next)
	return Result{Topic: next}
}
