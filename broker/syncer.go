package broker

import (
	"context"
	"runtime"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
)

// syncLoop makes durable what the owner appends. One sync serves everyone who was appended before it
// began; what comes meanwhile waits for the next.
func (p *partition) syncLoop(ctx context.Context) error {
	for {
		select {
		case <-p.dirty:
		case <-ctx.Done():
			return nil
		}
		if !p.linger(ctx) {
			return nil // the close that follows syncs
		}
		runtime.Gosched() // those whom the last sync released may be about to append: they share this one
		begun := time.Now()
		end, err := p.log.Sync()
		if err != nil {
			return err
		}
		p.node.metrics.synced(time.Since(begun))
		select {
		case p.synced <- end:
		case <-ctx.Done():
			return nil
		}
		err = p.log.Prepare()
		switch {
		case storage.Final(err):
			return err
		case fault.Is(err, fault.StorageFull):
			p.logger.Warn("the disk is nearly full", "err", err)
		case err != nil:
			return err
		}
	}
}

// linger waits for flush.ms where the topic does not sync before it acknowledges. It reports false when
// ctx ended.
func (p *partition) linger(ctx context.Context) bool {
	begun := time.Now()
	for {
		settings := p.settings.Load()
		if settings.FlushMessages != 0 {
			return true
		}
		left := settings.FlushInterval - time.Since(begun)
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-p.pace: // other settings are in force
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}
