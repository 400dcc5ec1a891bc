package quorum

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/topic"
)

// Config of the metadata quorum.
type Config struct {
	Dir  string       // where raft.db and snapshots/ stand; made when missing
	Node topic.NodeID // this node, from 1 on
	// ClusterID is the cluster that the data directory was made for. With "" an empty Dir founds a new
	// cluster with an id of its own; write [Quorum.ClusterID] down after Open has returned. With an id an
	// empty Dir is a lost log, and Open refuses.
	ClusterID string
	// DiskLimit is how long one operation of the log may take before the disk counts as broken; 0: 5 s.
	DiskLimit time.Duration

	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Quorum is this node's member of the raft group. Make one with [Open] and start it with [Quorum.Run].
type Quorum struct {
	current atomic.Pointer[published]
}

// published is an image and the channel that is closed when a later one is in force.
type published struct {
	image   *cluster.Image
	changed chan struct{}
}

// Open opens or creates the files of a quorum and checks them. It starts nothing.
func Open(cfg Config) (*Quorum, error) { return nil, nil }

// Run takes part in the quorum until ctx ends, then closes the files. An error means that the node must
// not go on: the disk or the metadata is broken.
func (q *Quorum) Run(ctx context.Context) error { return nil }

// Close closes the files of a quorum that was opened and never run. After Run it does nothing.
func (q *Quorum) Close() error { return nil }

// ClusterID is the name of the cluster. It is known as soon as Open has returned.
func (q *Quorum) ClusterID() string { return "" }

// AwaitReady waits until the quorum has a leader, everything that was committed is in the image and this
// process is registered. Before that an image may be one of the past, or empty.
func (q *Quorum) AwaitReady(ctx context.Context) error { return nil }

// Ready is nil when commands can be proposed, otherwise a fault that says why not.
func (q *Quorum) Ready() error { return nil }

// Incarnation of this process, 0 before it is registered.
func (q *Quorum) Incarnation() topic.Incarnation { return 0 }

// Image is the one in force. It includes every command whose Propose has returned.
func (q *Quorum) Image() *cluster.Image { return q.current.Load().image }

// Watch returns the image in force and a channel that is closed when a later one is.
func (q *Quorum) Watch() (image *cluster.Image, changed <-chan struct{}) {
	now := q.current.Load()
	return now.image, now.changed
}

// Propose commits a command and returns its result. An empty id of the command gets a random one. The
// error is the command's refusal, or a fault: of kind NotLeader, Overloaded or Stopping when the command
// was not committed and will not be, of kind Timeout when the outcome is unknown.
func (q *Quorum) Propose(ctx context.Context, c cluster.Command) (cluster.Result, error) {
	return cluster.Result{}, nil
}

// Barrier returns when the image holds everything that had been acknowledged, by any node, before the
// call.
func (q *Quorum) Barrier(ctx context.Context) error { return nil }
