package broker

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/broker/replica"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
)

// partition is one partition's place on this node. Its owner goroutine alone appends to the log and
// steps the machine, its syncer only syncs, readers only read.
type partition struct {
	node   *Node
	ref    topic.Ref
	path   topic.Path
	log    *storage.Log
	logger *slog.Logger

	inbox  inbox
	orders chan func()       // run by the owner between two appends
	dirty  chan struct{}     // has a ring when there is something to sync
	pace   chan struct{}     // has a ring when flush.messages or flush.ms has changed
	synced chan topic.Offset // from the syncer: everything below is on disk
	tail   tail
	bells  bells

	// Written by the owner, read by anyone.
	settings atomic.Pointer[topic.Settings]
	hw       atomic.Int64 // the high watermark
	epoch    atomic.Int32 // in which this node leads, or led last
	settled  atomic.Bool  // "latest" may be answered
	appends  atomic.Int64 // counts appends; the cleaner sees whether the partition is idle
	rewrites atomic.Int64 // counts passes of compaction; written by the cleaner

	// The owner's own.
	machine *replica.Machine
	waiting []*part // written, not committed yet, in the order of the log
	batches [][]byte
	group   []*staged
	room    []*part

	using sync.RWMutex // held for reading by whoever reads or cleans the log; taken to close it

	gone atomic.Pointer[error] // why the partition cannot be used any more; set by stop
	life context.Context       // ends with stop, after gone was set
	end  context.CancelFunc
	done chan struct{} // closed when the log is closed
}

func partitionDir(topicDir string, p topic.Partition) string {
	return filepath.Join(topicDir, strconv.Itoa(int(p)))
}

// openPartition opens the log of a partition. It starts nothing.
func (n *Node) openPartition(t *topic.Description, number topic.Partition) (*partition, error) {
	path := topic.Path{Topic: t.Name, Partition: number}
	log, found, err := storage.Open(n.fs, partitionDir(n.topicDir(t.ID), number), n.logConfig(t, path))
	if err != nil {
		return nil, err
	}
	settings := t.Settings
	p := &partition{
		node: n, ref: topic.Ref{ID: t.ID, Partition: number}, path: path, log: log,
		logger: n.logger.With("topic", string(path.Topic), "partition", int(path.Partition)),
		inbox:  newInbox(n.cfg.QueuedAppends), orders: make(chan func()),
		dirty: make(chan struct{}, 1), pace: make(chan struct{}, 1), synced: make(chan topic.Offset),
		machine: replica.New(n.cfg.NodeID),
		done:    make(chan struct{}),
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.settings.Store(&settings)
	p.hw.Store(int64(log.Start()))
	p.epoch.Store(int32(topic.NoEpoch))
	p.tellRecovery(found)
	return p, nil
}

// tellRecovery says what was found on disk, where it is not as it should be.
func (p *partition) tellRecovery(found storage.Recovery) {
	if len(found.Rebuilt) > 0 {
		p.logger.Warn("rebuilt files", "files", found.Rebuilt)
	}
	switch found.State {
	case storage.Clean:
	case storage.Synced:
		p.logger.Info("recovered after a crash", "end", int64(p.log.End()), "cut_bytes", found.CutBytes)
	case storage.Lost:
		p.node.metrics.lost.Inc()
		p.logger.Error("records that had been synced are damaged or gone", "end", int64(p.log.End()),
			"promised", int64(found.Promised), "gaps", len(found.Gaps))
	}
}

// run owns the partition until stop is called, then finishes what waits and closes the log.
func (p *partition) run() error {
	defer close(p.done)
	group := run.NewGroup(context.Background())
	group.Go("syncer", p.syncLoop)
	group.Go("owner", func(ctx context.Context) error {
		defer group.Stop() // the syncer has nothing to do without its owner
		return p.own(ctx)
	})
	err := group.Wait()
	if err != nil {
		p.node.fail(err)
		p.stop(p.node.refusal())
	}
	p.release()
	if closed := p.close(); closed != nil && err == nil {
		err = closed
		p.node.fail(err)
	}
	return err
}

// stop makes the owner finish: appends that come from now on get why, those that wait are answered,
// the log is closed. It does not wait; see done.
func (p *partition) stop(why error) {
	if p.gone.CompareAndSwap(nil, &why) {
		p.inbox.close(why)
		p.end()
	}
}

// release answers everyone who is left when the owner and the syncer have ended.
func (p *partition) release() {
	why := p.whyGone()
	p.refuse(p.inbox.take(nil), why)
	unknown := why
	if !fault.Is(why, fault.NoTopic) { // what a deleted topic had is gone for certain
		unknown = fault.Newf("broker.Produce", fault.Timeout, p.path, "the node stopped before the records were acknowledged, the outcome is unknown")
	}
	for _, part := range p.waiting {
		part.finish(unknown)
	}
	p.waiting = nil
	p.bells.close()
}

// close closes the log. Readers that are in it finish, and so does the cleaner; new ones are turned away.
// A disk that hangs under one of them ends the node, as anywhere.
func (p *partition) close() error {
	p.using.Lock()
	defer p.using.Unlock()
	return p.log.Close()
}

// whyGone is why the partition cannot be used any more, or nil while it can.
func (p *partition) whyGone() error {
	if why := p.gone.Load(); why != nil {
		return *why
	}
	return nil
}

// use keeps the log open until the returned func is called, or says why it is not.
func (p *partition) use() (leave func(), err error) {
	p.using.RLock()
	if why := p.whyGone(); why != nil {
		p.using.RUnlock()
		return nil, why
	}
	return p.using.RUnlock, nil
}

// ask runs f on the owner's goroutine and returns when it has, or says why it will not.
func (p *partition) ask(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case p.orders <- func() { defer close(ran); f() }:
	case <-p.life.Done():
		return p.whyGone()
	case <-ctx.Done():
		return fault.Newf("broker.ask", fault.Timeout, p.path, "the partition is busy")
	}
	<-ran
	return nil
}

// bounds are those that a reader may see. The start is read first, so that it is never above the high
// watermark.
func (p *partition) bounds() topic.Bounds {
	start := p.log.Start()
	return topic.Bounds{
		LogStart:      start,
		HighWatermark: max(start, topic.Offset(p.hw.Load())),
		LeaderEpoch:   topic.Epoch(p.epoch.Load()),
		Rewrites:      p.rewrites.Load(),
	}
}
