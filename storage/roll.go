package storage

import (
	"fmt"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Roll closes the active segment when its first append is older than segment.ms, or in a compacted topic
// than max.compaction.lag.ms, or when all of it is older than retention.ms, so that retention and
// compaction can reach it. Owner only.
func (l *Log) Roll(now time.Time) error {
	if err := l.Failed(); err != nil {
		return err
	}
	s := l.view.Load().active()
	if s == nil || s.size.Load() == 0 {
		return nil
	}
	about := l.tail.about // only the owner changes it
	if about.first == topic.NoTimestamp {
		// Nobody remembers; count from now on.
		about.first = topic.Millis(now.UnixMilli())
		l.tail.since(about.first)
	}
	settings := l.settings.Load()
	age := now.Sub(time.UnixMilli(int64(about.first)))
	old := age >= settings.SegmentAge || settings.Compact && age >= settings.MaxCompactionLag
	if settings.Delete && settings.RetentionAge >= 0 {
		old = old || expired(about, now, settings.RetentionAge)
	}
	if !old {
		return nil
	}
	if err := l.unmark(); err != nil {
		return err
	}
	if err := l.wake(s); err != nil {
		return err
	}
	return l.roll()
}

// since sets when the active segment got its first batch.
func (t *tail) since(first topic.Millis) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.about.first = first
}

// expired says whether the newest record of a segment is older than age. A timestamp ahead of the
// node's clock at the time of the last append counts as that time: it must not keep a segment for ever.
func expired(about facts, now time.Time, age time.Duration) bool {
	newest := about.largest
	if about.last != topic.NoTimestamp {
		newest = min(newest, about.last)
		if about.largest == topic.NoTimestamp {
			newest = about.last
		}
	}
	return newest != topic.NoTimestamp && now.Sub(time.UnixMilli(int64(newest))) > age
}

// roll closes the active segment, if there is one, and begins the next at the log's end. The order
// matters: the old segment is on disk, and the floor says so, before the new one has a name, and the
// name is on disk before anything is written to it. With flush.messages=0, where an append must not
// wait for a whole segment to reach the disk, the next sync does all of that, in the same order and
// before the floor rises; until then a recovery cuts at the first thing that is missing.
func (l *Log) roll() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.Failed(); err != nil {
		return err
	}
	old := l.view.Load().active()
	durably := old == nil || l.settings.Load().FlushMessages == 1
	if old != nil {
		if err := l.closeActive(old, durably); err != nil {
			return err
		}
		if err := l.snapshotProducers(); err != nil {
			return err
		}
	} else if err := l.firstFloor(); err != nil {
		return err
	}
	s := newSegment(l.fsys, l.files, l.dir, l.End(), 0)
	s.log.closeErr = l.closeFailed
	if err := s.log.create(); err != nil {
		return l.failOrFull("Append", "create "+s.log.name, err)
	}
	l.unnamed = true
	if durably {
		if err := l.syncNames(); err != nil {
			return err
		}
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	l.idx = newIndexer(s.base)
	s.index.loaded.Store(l.idx.snapshot())
	if old != nil {
		l.files.keep(&old.index, old.index.loaded.Load().bytes())
	}
	l.room.begin(s, 0)
	l.tail.set(l.tail.mark, s, l.idx.facts, nil)
	l.raised = 0
	l.view.Store(l.view.Load().with(s))
	return nil
}

// firstFloor writes the floor of a log without segments. It is there before the first of them is: a
// segment without a floor would look as if something was lost. So is everything that leads to the log.
func (l *Log) firstFloor() error {
	if err := l.floor.Lower(floorMark{End: l.End(), Segment: l.End()}); err != nil {
		return l.failOrFull("Append", "write the synced floor", err)
	}
	if err := l.nameDurably(); err != nil {
		return l.failOrFull("Append", "make "+l.dir+" durable", err)
	}
	return nil
}

// closeActive cuts the active segment's file to size, saves its index and, if asked to, makes all of it durable.
func (l *Log) closeActive(s *segment, durably bool) error {
	if durably {
		if _, err := l.syncTail(); err != nil {
			return err
		}
	}
	f, err := s.log.use()
	if err != nil {
		return l.fail("open "+s.log.name, err)
	}
	defer s.log.release()
	size := s.size.Load()
	if reached, err := f.Size(); err != nil {
		return l.fail("size of "+s.log.name, err)
	} else if reached > size {
		if err := l.room.cut(s, f, size); err != nil {
			return l.fail("truncate "+s.log.name, err)
		}
		if err := l.syncFile(s, f); err != nil {
			return err
		}
	}
	if durably {
		if err := l.floor.Sync(); err != nil {
			return l.fail("sync the synced floor", err)
		}
	}
	about := l.idx.facts
	s.facts.Store(&about)
	return l.saveActiveIndex(s, about, durably)
}

// snapshotProducers writes the producer table as it is at the end of a segment. The segment may be
// deleted long before the table forgets what was in it.
func (l *Log) snapshotProducers() error {
	if producers, keys := l.producers.Len(); producers+keys == 0 {
		return nil
	}
	l.snapshot = 0
	l.tail.mu.Lock()
	mark := l.tail.mark
	l.tail.snapshot = nil // one that still waits is older
	l.tail.mu.Unlock()
	return l.writeSnapshot(&tableSnapshot{mark.End, l.producers.encode(mark)})
}

// failOrFull is the error of a step that may find no room before anything has changed.
func (l *Log) failOrFull(op, step string, err error) error {
	if outOfRoom(err) {
		return l.refuse(op, fault.StorageFull, fmt.Errorf("%s: %w", step, err))
	}
	return l.fail(step, err)
}

// closeFailed ends the log when the system reports at the close of a file that it lost something.
func (l *Log) closeFailed(err error) { _ = l.fail("close", err) }
