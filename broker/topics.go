package broker

import (
	"context"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Topic describes a topic from the local image, or says NoTopic.
func (n *Node) Topic(name topic.Name) (*topic.Description, error) {
	t, err := n.hall.find(name)
	if err != nil {
		return nil, err
	}
	return t.Description, nil
}

// TopicByID is Topic for one life of a topic.
func (n *Node) TopicByID(id topic.ID) (*topic.Description, error) {
	image := n.hall.image.Load()
	if image == nil {
		return nil, starting("broker.TopicByID")
	}
	t, ok := image.TopicByID(id)
	if !ok {
		return nil, noTopicID(id)
	}
	return t.Description, nil
}

// Topics returns up to limit topics with names after a name, by name, weir's own included.
func (n *Node) Topics(after topic.Name, limit int) []*topic.Description {
	image := n.hall.image.Load()
	if image == nil || limit <= 0 {
		return nil
	}
	topics := image.Topics(after, limit)
	found := make([]*topic.Description, len(topics))
	for i, t := range topics {
		found[i] = t.Description
	}
	return found
}

func ownTopic(op string, name topic.Name) error {
	return fault.Newf(op, fault.Forbidden, name, "topics whose names begin with \"__\" are weir's own")
}

// CreateTopic makes a topic, and returns when this node serves it.
func (n *Node) CreateTopic(ctx context.Context, c topic.Creation) (*topic.Description, error) {
	const op = "broker.CreateTopic"
	if err := n.serving(op); err != nil {
		return nil, err
	}
	name, err := topic.ParseName(string(c.Name))
	if err != nil {
		return nil, err
	}
	if name.Internal() {
		return nil, ownTopic(op, name)
	}
	image := n.hall.image.Load()
	if _, ok := image.Topic(name); ok {
		return nil, fault.Newf(op, fault.TopicExists, name, "topic %q exists", name)
	}
	if c.Partitions == 0 {
		c.Partitions = n.cfg.DefaultPartitions
	}
	if c.Replication == 0 {
		c.Replication = n.cfg.DefaultReplication
	}
	if c.Replication == 0 {
		c.Replication = min(3, len(image.Nodes()))
	}
	if err := n.mayCreate(image, c); err != nil {
		return nil, err
	}
	return n.propose(ctx, cluster.CreateTopic{
		ID: topic.NewID(), Name: name, Partitions: c.Partitions, Replication: c.Replication,
		Overrides: c.Overrides, Creator: c.Principal, At: topic.Millis(time.Now().UnixMilli()),
	})
}

// mayCreate holds this node's caps, which may be tighter than the cluster's own.
func (n *Node) mayCreate(image *cluster.Image, c topic.Creation) error {
	const op = "broker.CreateTopic"
	if c.Partitions > n.cfg.MaxTopicPartitions {
		return fault.Newf(op, fault.Limit, c.Name, "partitions %d: a topic may have at most %d", c.Partitions, n.cfg.MaxTopicPartitions)
	}
	if have := image.TopicsOf(c.Principal); have >= n.cfg.MaxTopics {
		return fault.Newf(op, fault.Limit, c.Name, "%s has %d topics, which is the most that one principal may have", c.Principal, have)
	}
	return n.mayGrow(op, image, c.Name, c.Partitions*c.Replication)
}

// What new partitions take on the disk: a directory with its side files each, and the metadata of all.
const (
	partitionRoom = 16 << 10
	metadataRoom  = 1 << 20
)

// mayGrow holds the cap on the partitions of a node, and leaves the disk's reserve to what makes room: with
// thousands of partitions it would be gone, and the metadata with it, whose failed write ends the node.
func (n *Node) mayGrow(op string, image *cluster.Image, name topic.Name, more int) error {
	held := 0
	nodes := image.Nodes()
	for _, node := range nodes {
		held += node.Partitions
	}
	if most := n.cfg.MaxPartitions * len(nodes); held+more > most {
		return fault.Newf(op, fault.Limit, name, "the cluster's nodes hold %d partitions, %d more would be over the limit of %d", held, more, most)
	}
	if err := n.room.Look(metadataRoom + int64(more)*partitionRoom); err != nil {
		return fault.New(op, fault.KindOf(err), name, err)
	}
	return nil
}

// AlterTopic changes settings of a topic or adds partitions, and returns when this node has done so.
func (n *Node) AlterTopic(ctx context.Context, name topic.Name, a topic.Alteration) (*topic.Description, error) {
	const op = "broker.AlterTopic"
	t, err := n.changeable(op, name)
	if err != nil {
		return nil, err
	}
	if a.Partitions > n.cfg.MaxTopicPartitions {
		return nil, fault.Newf(op, fault.Limit, name, "partitions %d: a topic may have at most %d", a.Partitions, n.cfg.MaxTopicPartitions)
	}
	if more := a.Partitions - len(t.Partitions); more > 0 {
		if err := n.mayGrow(op, n.hall.image.Load(), name, more*t.Replication); err != nil {
			return nil, err
		}
	}
	return n.propose(ctx, cluster.AlterTopic{
		ID: t.ID, Settings: a.Settings, Partitions: a.Partitions, At: topic.Millis(time.Now().UnixMilli()),
	})
}

// DeleteTopic deletes a topic with its records, and returns when this node serves it no more.
func (n *Node) DeleteTopic(ctx context.Context, name topic.Name) error {
	t, err := n.changeable("broker.DeleteTopic", name)
	if err != nil {
		return err
	}
	_, err = n.propose(ctx, cluster.DeleteTopic{ID: t.ID})
	return err
}

// changeable finds a topic that callers may change.
func (n *Node) changeable(op string, name topic.Name) (*cluster.Topic, error) {
	if err := n.serving(op); err != nil {
		return nil, err
	}
	if name.Internal() {
		return nil, ownTopic(op, name)
	}
	return n.hall.find(name)
}

// propose has the cluster decide, and waits until this node has carried it out.
func (n *Node) propose(ctx context.Context, op cluster.Op) (*topic.Description, error) {
	result, err := n.cluster.Propose(ctx, cluster.Command{Op: op})
	if err != nil {
		return nil, err
	}
	if err := n.hall.awaitVersion(ctx, result.Version); err != nil {
		return nil, err
	}
	return result.Topic.Description, nil
}
