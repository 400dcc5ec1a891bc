package broker

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Cluster is what a node needs of the cluster's metadata; quorum.Quorum is one.
type Cluster interface {
	// AwaitReady returns when the image is not one of the past and this process is registered.
	AwaitReady(ctx context.Context) error
	// Incarnation is the number of this process start, once it is registered.
	Incarnation() topic.Incarnation
	// Watch returns the image in force and a channel that is closed when a later one is.
	Watch() (image *cluster.Image, changed <-chan struct{})
	// Propose commits a command and returns its result, or the refusal as an error.
	Propose(ctx context.Context, c cluster.Command) (cluster.Result, error)
	// Ready is nil when commands can be proposed.
	Ready() error
}

// Deps is what a node is handed.
type Deps struct {
	FS         vfs.FS
	Cluster    Cluster
	Groups     GroupView             // beside the log of __groups; nil: it is read from its start each time
	SameBoot   bool                  // the machine was not started anew since the data directory was last used
	Logger     *slog.Logger          // nil: no logs
	Registerer prometheus.Registerer // nil: no metrics
}

// Node is one node of a cluster: its partitions and the calls that doors make. Make one with [New],
// run it once with [Node.Run]. Its methods are safe for concurrent use, before and after Run too:
// then they refuse with NotLeader or Stopping.
type Node struct {
	cfg      Config
	fs       vfs.FS // watched: each operation that takes longer than DiskLimit ends the node
	cluster  Cluster
	sameBoot bool
	logger   *slog.Logger
	metrics  *metrics

	hall      *hall
	inFlight  budget
	spare     sync.Pool // productions that are done with
	files     *storage.Files
	room      *storage.Room
	ownRoom   *storage.Room // for weir's own topics: what clients leave free
	keys      *storage.KeyBudget
	removals  removals
	described descriptions
	soon      chan *partition // to be cleaned before the next round
	groups    *coordinators

	state      atomic.Int32
	open       atomic.Int64 // partitions that are open
	partitions *run.Group   // a task per open partition
	incarnated topic.Incarnation
	shut       map[topic.ID]struct{} // topics with a partition that could not be opened; the watcher's own

	hurry  chan struct{} // closed when appends in flight have had their time to finish
	failed chan struct{} // closed after err was set
	once   sync.Once
	err    error // the final error
}

// The states of a node.
const (
	isStarting int32 = iota
	isServing
	isStopping
)

// New makes a node. It does no I/O and starts nothing.
func New(cfg Config, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.FS == nil || deps.Cluster == nil {
		return nil, fault.Newf("broker.New", fault.Internal, nil, "a node needs a file system and a cluster")
	}
	n := &Node{
		cfg: cfg, cluster: deps.Cluster, sameBoot: deps.SameBoot, logger: deps.Logger,
		hall:       newHall(),
		inFlight:   budget{most: cfg.InFlightBytes},
		files:      storage.NewFiles(cfg.OpenFiles, cfg.IndexBytes),
		keys:       storage.NewKeyBudget(int64(cfg.IdempotencyKeys)),
		removals:   newRemovals(),
		described:  newDescriptions(),
		soon:       make(chan *partition, 64),
		partitions: run.NewGroup(context.Background()),
		shut:       map[topic.ID]struct{}{},
		hurry:      make(chan struct{}),
		failed:     make(chan struct{}),
	}
	n.fs = vfs.NewWatched(deps.FS, cfg.DiskLimit, n.hung)
	n.room = storage.NewRoom(n.fs, cfg.Dir, cfg.ReserveBytes)
	n.ownRoom = storage.NewRoom(n.fs, cfg.Dir, cfg.ReserveBytes/2)
	n.groups = newCoordinators(n, deps.Groups)
	if n.logger == nil {
		n.logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	var err error
	n.metrics, err = newMetrics(deps.Registerer, n)
	return n, err
}

// Run opens the node's partitions, serves until ctx ends and returns after every log is synced and
// closed. A final error of the disk ends it too, and is returned; the process has to end then. The
// cluster handed in must be running, and go on until Run has returned.
func (n *Node) Run(ctx context.Context) error {
	group := run.NewGroup(ctx)
	started := make(chan error, 1)
	group.Go("start", func(ctx context.Context) error {
		started <- run.Safely("start", func() error { return n.start(ctx) })
		return nil
	})
	var err error
	select {
	case err = <-started:
	case <-n.failed: // the disk hangs, and who starts with it
		err = n.failure()
	}
	if err == nil {
		n.state.Store(isServing)
		group.Go("images", n.watchImages)
		group.Go("cleaner", n.clean)
		group.Go("descriptions", n.describeTopics)
		group.Go("groups", n.groups.run)
		select {
		case <-group.Context().Done():
			err = context.Cause(group.Context())
		case <-n.failed:
		}
	}
	n.state.Store(isStopping)
	if err != nil && ctx.Err() == nil {
		n.fail(err)
	}
	group.Stop()
	return n.stop(group)
}

// start registers the node, and opens what it has.
func (n *Node) start(ctx context.Context) error {
	begun := time.Now()
	if err := n.cluster.AwaitReady(ctx); err != nil {
		return err
	}
	n.incarnated = n.cluster.Incarnation()
	image, _ := n.cluster.Watch()
	if err := n.tidyTopicDirs(image); err != nil {
		return err
	}
	if err := n.act(ctx, image); err != nil {
		return err
	}
	n.logger.Info("serving", "node", int(n.cfg.NodeID), "partitions", n.open.Load(), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// stop closes every partition, for as long as it may take, and returns the final error.
func (n *Node) stop(group *run.Group) error {
	why, limit := stopping("broker.Run"), n.cfg.StopLimit
	if n.failure() != nil {
		why, limit = n.refusal(), min(limit, afterFailure)
	}
	n.hall.close()
	for p := range n.hall.all {
		p.stop(why)
	}
	ended := make(chan error, 1)
	go func() {
		err := group.Wait()
		for p := range n.hall.all { // those that the watcher opened last
			p.stop(why)
		}
		if closing := n.partitions.Wait(); err == nil {
			err = closing
		}
		ended <- err
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	left := int64(-1) // logs that were open when the last patience began; -1 before the first
	for {
		select {
		case err := <-ended:
			if err != nil {
				n.fail(err)
			}
			return n.failure()
		case <-timer.C:
		}
		open := n.open.Load()
		switch {
		case left < 0:
			close(n.hurry)
		case open == left: // the disk hangs, and what uses it cannot be waited for
			n.fail(fault.Newf("broker.Run", fault.Internal, nil, "%d logs were not closed in time", open))
			return n.failure()
		}
		left = open
		timer.Reset(n.cfg.DiskLimit + afterFailure)
	}
}

// afterFailure is how long a node whose disk failed tries to close the logs that are still sound.
const afterFailure = 2 * time.Second

// fail ends the node with a final error. Only the first counts.
func (n *Node) fail(err error) {
	n.once.Do(func() {
		n.err = err
		n.logger.Error("the node cannot go on", "err", err)
		close(n.failed)
	})
}

// failure is the final error, or nil.
func (n *Node) failure() error {
	select {
	case <-n.failed:
		return n.err
	default:
		return nil
	}
}

// refusal is what callers get after a final error.
func (n *Node) refusal() error {
	return fault.Newf("broker.Node", fault.Stopping, nil, "the node cannot go on and stops: %w", n.failure())
}

// patience is closed when a partition that was stopped, for a reason, need not wait for its appends any more.
func (n *Node) patience(why error) <-chan struct{} {
	if fault.Is(why, fault.Stopping) && n.failure() == nil {
		return n.hurry
	}
	now := make(chan struct{})
	close(now)
	return now
}

// hung ends the node when an operation of the disk takes too long.
func (n *Node) hung(op vfs.Op, name string) {
	n.fail(fault.Newf("broker.disk", fault.Internal, name, "%v has taken more than %v, the disk hangs", op, n.cfg.DiskLimit))
}

// serving is nil while calls are taken.
func (n *Node) serving(op string) error {
	switch n.state.Load() {
	case isServing:
		return nil
	case isStarting:
		return starting(op)
	default:
		return stopping(op)
	}
}

func starting(op string) error {
	return fault.Newf(op, fault.NotLeader, nil, "the node is starting")
}

func stopping(op string) error {
	return fault.Newf(op, fault.Stopping, nil, "the node is stopping")
}

// Ready is nil when the node serves, else it says what is missing.
func (n *Node) Ready() error {
	if err := n.failure(); err != nil {
		return err
	}
	if err := n.serving("broker.Ready"); err != nil {
		return err
	}
	return n.cluster.Ready()
}

// ID is the node's number.
func (n *Node) ID() topic.NodeID { return n.cfg.NodeID }

// ClusterID names the cluster.
func (n *Node) ClusterID() string { return n.cfg.ClusterID }

// logConfig is that of a partition's log.
func (n *Node) logConfig(t *topic.Description, path topic.Path) storage.Config {
	cfg := storage.Default(path, t.ID)
	cfg.Incarnation = n.incarnated
	cfg.Settings = t.Settings
	cfg.LatestEpoch = t.Partitions[path.Partition].Epoch
	cfg.Producers.Window = n.cfg.IdempotencyWindow
	cfg.Producers.Keys = n.keys
	cfg.SameBoot = n.sameBoot
	cfg.Files, cfg.Room = n.files, n.room
	if path.Topic.Internal() { // readers must be able to commit while producers are refused
		cfg.Room = n.ownRoom
	}
	return cfg
}

// tailLimit is the share of one partition of the memory for recent batches.
func (n *Node) tailLimit() int {
	return int(n.cfg.TailBytes / max(n.open.Load(), 1))
}
