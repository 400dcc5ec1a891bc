package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// Config of the metadata quorum.
type Config struct {
	Dir  string       // where raft.db and snapshots/ stand; made when missing
	Node topic.NodeID // this node, from 1 on
	// ClusterID is the cluster that the data directory belongs to. With "" it is what the log says, and a
	// new cluster gets an id by chance: write [Quorum.ClusterID] down after Open has returned.
	ClusterID string
	// Found allows a new cluster where Dir has no log: the caller knows that nothing hangs on one that was
	// there. Without it a missing log is a lost one, and Open refuses.
	Found bool
	// DiskLimit is how long one operation of the log may take before the disk counts as broken; 0: 5 s.
	DiskLimit time.Duration

	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var mistakes []error
	if c.Dir == "" {
		mistakes = append(mistakes, errors.New("the setting Dir must not be empty"))
	}
	if c.Node < 1 {
		mistakes = append(mistakes, fmt.Errorf("the setting Node must be at least 1, not %d", c.Node))
	}
	if c.DiskLimit < 0 {
		mistakes = append(mistakes, fmt.Errorf("the setting DiskLimit must not be negative, as %v is", c.DiskLimit))
	}
	if len(mistakes) > 0 {
		return fault.New("quorum.Open", fault.Validation, nil, errors.Join(mistakes...))
	}
	return nil
}

const (
	defaultDiskLimit = 5 * time.Second
	stopGrace        = time.Second // for raft's goroutines after a failure; they may hang on the disk

	// A snapshot is written when this many entries came since the last one, and at each clean stop. The
	// entries that stay behind it let the log alone stand in for a damaged newest snapshot.
	snapshotEvery = 2048
	snapshotCheck = 20 * time.Second
	trailingLogs  = 2 * snapshotEvery
)

// Quorum is this node's member of the raft group. Make one with [Open] and start it with [Quorum.Run].
type Quorum struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	files   *files
	guard   *guard
	machine *machine
	failure *failure

	current     atomic.Pointer[published]
	incarnation atomic.Int64
	queue       chan *request
	ready       chan struct{} // closed when this process is registered
	closing     chan struct{} // closed when Run begins to stop
	ended       chan struct{} // closed when nobody takes from the queue any more
	begun       atomic.Bool   // Run or Close was called
	releaseOnce sync.Once     // of ended
}

// published is an image and the channel that is closed when a later one is in force.
type published struct {
	image   *cluster.Image
	changed chan struct{}
}

// Open opens or creates the files of a quorum and checks them. It starts nothing. A log that is damaged
// or missing is a fault of kind Corrupt, whose sentence says what an operator can do.
func Open(cfg Config) (*Quorum, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.DiskLimit == 0 {
		cfg.DiskLimit = defaultDiskLimit
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	files, err := openFiles(cfg, cfg.Logger)
	if err != nil {
		return nil, err
	}
	if err := files.check(cfg.Logger); err != nil {
		return nil, errors.Join(err, files.bolt.Close())
	}
	q := &Quorum{
		cfg:     cfg,
		logger:  cfg.Logger,
		metrics: newMetrics(cfg.Metrics),
		files:   files,
		failure: newFailure(),
		queue:   make(chan *request, queueLength),
		ready:   make(chan struct{}),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	q.guard = &guard{store: files.bolt, limit: cfg.DiskLimit, failure: q.failure}
	q.machine = &machine{state: cluster.NewState(), publish: q.publish, guard: q.guard, failure: q.failure, metrics: q.metrics}
	q.current.Store(&published{image: q.machine.state.Image(), changed: make(chan struct{})})
	q.watchNumbers(cfg.Metrics)
	return q, nil
}

// publish puts an image in force.
func (q *Quorum) publish(image *cluster.Image) {
	old := q.current.Swap(&published{image: image, changed: make(chan struct{})})
	close(old.changed)
}

func serverID(node topic.NodeID) raft.ServerID { return raft.ServerID(strconv.Itoa(int(node))) }

func raftConfig(node topic.NodeID) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = serverID(node)
	conf.HeartbeatTimeout = 2 * time.Second
	conf.ElectionTimeout = 2 * time.Second
	conf.LeaderLeaseTimeout = 1500 * time.Millisecond
	conf.SnapshotInterval = snapshotCheck
	conf.SnapshotThreshold = snapshotEvery
	conf.TrailingLogs = trailingLogs
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	return conf
}

// Run takes part in the quorum until ctx ends, then closes the files. An error means that the node must
// not go on: the disk or the metadata is broken. After an operation of the disk that hangs, Run returns
// without waiting for it, and the process should end.
func (q *Quorum) Run(ctx context.Context) error {
	if !q.begun.CompareAndSwap(false, true) {
		return fault.Newf("quorum.Run", fault.Closed, nil, "the quorum was run or closed before")
	}
	begun := time.Now()
	leader := make(chan bool, 4)
	group, err := q.start(leader)
	if err != nil {
		close(q.closing)
		q.release()
		if failed := q.failure.get(); failed != nil {
			err = failed // what raft made of it says less
		}
		return errors.Join(err, q.files.bolt.Close())
	}
	proposer := run.NewGroup(ctx)
	leads, ready := false, q.ready
	for {
		select {
		case now := <-leader:
			if !now {
				q.failure.fail(fault.Newf("quorum.Run", fault.Internal, nil, "the only voter lost its leadership"))
			} else if !leads {
				leads = true
				proposer.Go("proposer", func(ctx context.Context) error { return q.propose(ctx, group) })
			}
		case <-ready:
			q.logger.Info("metadata is ready", "node", q.cfg.Node, "cluster", q.ClusterID(), "incarnation", q.Incarnation(),
				"topics", q.Image().TopicCount(), "seconds", time.Since(begun).Seconds())
			ready = nil
		case <-q.failure.gone:
			return q.stop(group, proposer)
		case <-proposer.Context().Done(): // ctx ended, or the proposer failed
			return q.stop(group, proposer)
		}
	}
}

// start makes the raft group. It restores the newest snapshot on the way.
func (q *Quorum) start(leader chan<- bool) (group *raft.Raft, err error) {
	conf := raftConfig(q.cfg.Node)
	conf.NotifyCh = leader
	conf.Logger = bridge(q.logger)
	trans := newTransport(conf.LocalID)
	trans.elect()
	// On a goroutine of its own, since the guard ends those of raft when the disk fails, and raft's own are
	// at work before NewRaft returns.
	made := make(chan struct{})
	go func() {
		defer close(made)
		err = run.Safely("start", func() error {
			var err error
			group, err = raft.NewRaft(conf, q.machine, q.guard, q.guard, q.files.snapshots, trans)
			return err
		})
	}()
	<-made
	if group == nil && err == nil {
		err = q.failure.get()
	}
	if err != nil {
		return nil, fault.New("quorum.Run", fault.KindOf(err), q.cfg.Dir, err)
	}
	return group, nil
}

// stop ends the goroutines and closes the files. After a failure it does not wait for long.
func (q *Quorum) stop(group *raft.Raft, proposer *run.Group) error {
	close(q.closing)
	proposer.Stop()
	shutdown := sync.OnceValue(group.Shutdown)
	done := make(chan error, 1)
	go func() { done <- q.wind(group, proposer, shutdown) }()
	select {
	case err := <-done:
		return errors.Join(q.failure.get(), err)
	case <-q.failure.gone:
	}
	shutdown() // the proposer may wait for an entry that nobody commits any more
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return errors.Join(q.failure.get(), err)
	case <-grace.C:
		q.release()
		return q.failure.get()
	}
}

// wind is stop without its impatience.
func (q *Quorum) wind(group *raft.Raft, proposer *run.Group, shutdown func() raft.Future) error {
	if err := proposer.Wait(); err != nil {
		q.failure.fail(err)
	}
	q.release()
	if q.failure.get() == nil && group.State() == raft.Leader {
		if err := group.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			q.logger.Warn("no snapshot at the stop, the next start reads more of the log", "err", err)
		}
	}
	if err := shutdown().Error(); err != nil {
		return err
	}
	return q.files.bolt.Close()
}

// release tells those who wait that nobody takes from the queue any more.
func (q *Quorum) release() { q.releaseOnce.Do(func() { close(q.ended) }) }

// Close closes the files of a quorum that was opened and never run. After Run it does nothing.
func (q *Quorum) Close() error {
	if !q.begun.CompareAndSwap(false, true) {
		return nil
	}
	close(q.closing)
	q.release()
	return q.files.bolt.Close()
}

// ClusterID is the name of the cluster. It is known as soon as Open has returned.
func (q *Quorum) ClusterID() string { return q.files.clusterID }

// AwaitReady waits until the quorum has a leader, everything that was committed is in the image and this
// process is registered. Before that an image may be one of the past, or empty.
func (q *Quorum) AwaitReady(ctx context.Context) error {
	select {
	case <-q.ready:
		return nil
	case <-q.closing:
		return q.Ready()
	case <-ctx.Done():
		return fault.New("quorum.AwaitReady", fault.KindOf(ctx.Err()), nil, ctx.Err())
	}
}

// Ready is nil when commands can be proposed, otherwise a fault that says why not.
func (q *Quorum) Ready() error {
	select {
	case <-q.closing:
		return fault.Newf("quorum.Ready", fault.Stopping, nil, "the metadata quorum is stopping or has stopped")
	default:
	}
	select {
	case <-q.ready:
		return nil
	default:
		return fault.Newf("quorum.Ready", fault.NotLeader, nil, "the metadata has no leader yet")
	}
}

// Incarnation of this process, 0 before it is registered.
func (q *Quorum) Incarnation() topic.Incarnation { return topic.Incarnation(q.incarnation.Load()) }

// Image is the one in force. It includes every command whose Propose has returned.
func (q *Quorum) Image() *cluster.Image { return q.current.Load().image }

// Watch returns the image in force and a channel that is closed when a later one is.
func (q *Quorum) Watch() (image *cluster.Image, changed <-chan struct{}) {
	now := q.current.Load()
	return now.image, now.changed
}
