package broker

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Deps is what a node is handed. FS and Cluster join it as their packages appear.
type Deps struct {
	Logger     *slog.Logger          // nil: no logs
	Registerer prometheus.Registerer // nil: no metrics
}

// Node is one node of a cluster: its partitions and the calls that doors make. Make one with [New],
// run it once with [Node.Run]. Its methods are safe for concurrent use, before and after Run too:
// then they refuse with NotLeader or Stopping.
type Node struct {
	cfg  Config
	deps Deps
}

// New makes a node. It does no I/O and starts nothing.
func New(cfg Config, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Node{cfg: cfg, deps: deps}, nil
}

// Run registers the node, opens its partitions, serves until ctx ends and returns after every
// log is synced and closed. A final error of the disk ends it too, and is returned; the process has to
// end then. The cluster handed in must be running, and go on until Run has returned.
func (n *Node) Run(ctx context.Context) error { return starting("broker.Run") }

// Ready is nil when the node serves, else it says what is missing.
func (n *Node) Ready() error { return starting("broker.Ready") }

// ID is the node's number.
func (n *Node) ID() topic.NodeID { return n.cfg.NodeID }

// ClusterID names the cluster.
func (n *Node) ClusterID() string { return n.cfg.ClusterID }

// Produce appends a.Records, each to its partition, and fills in a.Results. It encodes them before it
// waits for anything, so the records may be views of the caller's buffers for as long as the call lasts.
// An error refuses the call as a whole, and Results may be unset then.
func (n *Node) Produce(ctx context.Context, a *topic.Append) error { return starting("broker.Produce") }

// Fetch returns whole batches of one partition, from the one with f.Offset on, waiting up to f.Wait
// for f.MinBytes of them. An offset that is not there is a fault of kind OffsetRange that wraps a
// *topic.RangeError. The end of ctx ends the wait with what there is.
func (n *Node) Fetch(ctx context.Context, f topic.Fetch) (topic.Fetched, error) {
	return topic.Fetched{}, starting("broker.Fetch")
}

// Listen rings bell, without ever blocking on it, after the partition's high watermark or log start has
// moved, after partitions were added to its topic or its settings changed, and when it was deleted. A
// bell should have room for one ring. It is rung some milliseconds late at most, and once for several
// events. stop ends it, and may be called more than once.
func (n *Node) Listen(ref topic.Ref, bell chan<- struct{}) (stop func(), err error) {
	return nil, starting("broker.Listen")
}

// Bounds of a partition; cheap.
func (n *Node) Bounds(ref topic.Ref) (topic.Bounds, error) {
	return topic.Bounds{}, starting("broker.Bounds")
}

// Offsets looks up a position in every partition of a topic.
func (n *Node) Offsets(ctx context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error) {
	return nil, starting("broker.Offsets")
}

// Topic describes a topic from the local image, or says NoTopic.
func (n *Node) Topic(name topic.Name) (*topic.Description, error) {
	return nil, starting("broker.Topic")
}

// TopicByID is Topic for one life of a topic.
func (n *Node) TopicByID(id topic.ID) (*topic.Description, error) {
	return nil, starting("broker.TopicByID")
}

// Topics returns up to limit topics with names after a name, by name, weir's own included.
func (n *Node) Topics(after topic.Name, limit int) []*topic.Description { return nil }

// CreateTopic makes a topic, and returns when this node knows it.
func (n *Node) CreateTopic(ctx context.Context, c topic.Creation) (*topic.Description, error) {
	return nil, starting("broker.CreateTopic")
}

// AlterTopic changes settings of a topic or adds partitions, and returns when this node knows.
func (n *Node) AlterTopic(ctx context.Context, name topic.Name, a topic.Alteration) (*topic.Description, error) {
	return nil, starting("broker.AlterTopic")
}

// DeleteTopic deletes a topic with its records.
func (n *Node) DeleteTopic(ctx context.Context, name topic.Name) error {
	return starting("broker.DeleteTopic")
}

// DeleteRecords raises a partition's log start to before, or to its high watermark when before is
// NoOffset, and returns the log start. What is below is not readable any more when it returns.
func (n *Node) DeleteRecords(ctx context.Context, path topic.Path, before topic.Offset) (topic.Offset, error) {
	return topic.NoOffset, starting("broker.DeleteRecords")
}

func starting(op string) error {
	return fault.Newf(op, fault.NotLeader, nil, "the node is starting")
}
