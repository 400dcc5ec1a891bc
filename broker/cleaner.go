package broker

import (
	"context"
	"sync"
	"time"

	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
)

// mostPasses bounds how often the cleaner goes on with one partition before it sees to the others.
const mostPasses = 16

// removals are directories that wait for the cleaner to remove them.
type removals struct {
	wake chan struct{}

	mu   sync.Mutex
	dirs []string
}

func newRemovals() removals { return removals{wake: make(chan struct{}, 1)} }

func (r *removals) push(dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirs = append(r.dirs, dir)
	ring(r.wake)
}

func (r *removals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	dirs := r.dirs
	r.dirs = nil
	return dirs
}

// clean is the node's cleaner: it removes what was deleted, and goes round all partitions to roll,
// retain and compact. It returns when ctx ends or with a final error of the disk.
func (n *Node) clean(ctx context.Context) error {
	ticker := time.NewTicker(n.cfg.CleanInterval)
	defer ticker.Stop()
	seen := map[*partition]int64{}
	for {
		select {
		case <-n.removals.wake:
			for _, dir := range n.removals.take() {
				if err := n.fs.RemoveAll(dir); err != nil {
					n.logger.Warn("cannot remove a deleted topic's directory; the next start tries again", "dir", dir, "err", err)
				}
			}
		case p := <-n.soon:
			if err := p.clean(time.Now()); err != nil {
				return err
			}
		case <-ticker.C:
			now := time.Now()
			quiet := map[*partition]int64{}
			for p := range n.hall.all {
				if ctx.Err() != nil {
					return nil
				}
				appends := p.appends.Load()
				before, known := seen[p]
				quiet[p] = appends
				if err := p.tend(ctx, now, known && before == appends); err != nil {
					return err
				}
			}
			seen = quiet
		case <-ctx.Done():
			return nil
		}
	}
}

// tend does a round's work for one partition.
func (p *partition) tend(ctx context.Context, now time.Time, idle bool) error {
	var failed error
	err := p.ask(ctx, func() {
		if failed = p.log.Roll(now); failed == nil && idle {
			failed = p.log.Rest()
		}
	})
	switch {
	case storage.Final(failed):
		return failed
	case failed != nil:
		p.logger.Warn("cannot close the active segment", "err", failed)
	case err != nil:
		return nil // it is being closed
	}
	p.log.Producers().Expire(now)
	return p.clean(now)
}

// clean deletes and compacts what the topic's settings say.
func (p *partition) clean(now time.Time) error {
	leave, err := p.use()
	if err != nil {
		return nil // it is being closed
	}
	defer leave()
	start := p.log.Start()
	for range mostPasses {
		done, err := p.log.Retain(topic.Offset(p.hw.Load()), now)
		p.node.metrics.deleted(done)
		if storage.Final(err) {
			return err
		}
		if err != nil {
			p.logger.Warn("cannot delete old segments", "err", err)
		}
		if err != nil || !done.More || p.life.Err() != nil {
			break
		}
	}
	if p.log.Start() != start {
		p.bells.ring()
	}
	return p.compact(now)
}

// compact goes on until there is nothing left to compact, or for so long as others can wait.
func (p *partition) compact(now time.Time) error {
	for range mostPasses {
		done, err := p.log.Compact(p.life, topic.Offset(p.hw.Load()), now)
		p.node.metrics.compacted(done)
		if done.Segments > 0 {
			// In this order: who sees the new count reads nothing old.
			p.tail.forget(done.End)
			p.rewrites.Add(1)
		}
		switch {
		case storage.Final(err):
			return err
		case p.life.Err() != nil:
			return nil
		case err != nil:
			p.logger.Warn("cannot compact", "err", err)
			return nil
		case !done.More:
			return nil
		}
	}
	return nil
}
