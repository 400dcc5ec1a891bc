package storage

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Sync makes durable all that was appended before the call and returns the offset behind it. One Sync
// serves everyone whose batches lie below. An error is final. Syncer only.
func (l *Log) Sync() (topic.Offset, error) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	return l.syncTail()
}

// syncTail is Sync with syncing held.
func (l *Log) syncTail() (topic.Offset, error) {
	if err := l.Failed(); err != nil {
		return 0, err
	}
	mark, s, about := l.tail.now()
	if s == nil || mark.End == l.Synced() {
		return l.Synced(), nil
	}
	if err := l.syncBefore(s); err != nil {
		return 0, err
	}
	f, err := s.log.use()
	if err != nil {
		return 0, l.fail("open "+s.log.name, err)
	}
	defer s.log.release()
	if err := l.syncFile(s, f); err != nil {
		return 0, err
	}
	if err := l.raise(mark, s, about.covers); err != nil {
		return 0, err
	}
	l.synced.Store(int64(mark.End))
	return mark.End, nil
}

// syncBefore syncs what a roll with flush.messages=0 left for later: segments before s, and names.
func (l *Log) syncBefore(s *segment) error {
	v := l.view.Load()
	for _, older := range v.segments[max(0, v.find(l.Synced())):] {
		if older.base >= s.base {
			break
		}
		if !older.log.dirty() {
			continue
		}
		f, err := older.log.use()
		if errors.Is(err, errGone) {
			continue // retention was faster
		}
		if err != nil {
			return l.fail("open "+older.log.name, err)
		}
		err = l.syncFile(older, f)
		older.log.release()
		if err != nil {
			return err
		}
	}
	return l.syncNames()
}

// syncNames makes the name of a new segment durable.
func (l *Log) syncNames() error {
	if !l.unnamed {
		return nil
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	l.unnamed = false
	return nil
}

func (t *tail) now() (topic.Mark, *segment, facts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mark, t.segment, t.about
}

// syncFile is the one place that syncs a segment.
func (l *Log) syncFile(s *segment, f vfs.File) error {
	writes := s.log.writes() // a write that is under way now is not covered
	began := time.Now()
	if err := f.Sync(); err != nil {
		return l.fail("fsync "+s.log.name, err)
	}
	l.counts.syncs.Add(1)
	l.counts.syncNanos.Add(int64(time.Since(began)))
	s.log.didSync(writes)
	return nil
}

// raise moves the synced floor up to the end of what a sync has covered.
func (l *Log) raise(mark topic.Mark, s *segment, bytes int64) error {
	// The epoch table goes first: recovery does not look for epochs below the floor.
	if ok, err := l.saveEpochs(); err != nil || !ok {
		return err
	}
	fresh := bytes - l.raised
	if fresh < 0 { // a new segment
		fresh = bytes
	}
	group := l.group.Load()
	l.group.Store(group + (fresh-group)/8)
	if err := l.floor.Raise(floorMark{End: mark.End, Segment: s.base, Bytes: bytes}, fresh); err != nil {
		if outOfRoom(err) {
			return nil // a floor that is too low costs a recovery time, nothing else
		}
		return l.fail("write the synced floor", err)
	}
	l.raised = bytes
	return nil
}

// saveEpochs brings the side file of the epoch table up to date. ok is false when there was no room.
func (l *Log) saveEpochs() (ok bool, err error) {
	table := l.epochs.entries.Load()
	if table == l.savedEpoch {
		return true, nil
	}
	if err := saveEpochs(l.fsys, l.dir, newEpochs(*table...)); err != nil {
		if outOfRoom(err) {
			return false, nil
		}
		return false, l.fail("write the epoch table", err)
	}
	l.savedEpoch = table
	return true, nil
}

// checkpoint writes what lets a recovery begin near the end: the producer table of a moment, and the
// active segment's index. Neither is needed for soundness, so a lack of room only postpones them.
func (l *Log) checkpoint() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.tail.mu.Lock()
	table := l.tail.snapshot
	if table == nil || table.end > l.Synced() {
		l.tail.mu.Unlock()
		return nil // nothing, or the next sync comes first
	}
	l.tail.snapshot = nil
	s, about := l.tail.segment, l.tail.about
	l.tail.mu.Unlock()
	if err := l.saveActiveIndex(s, about, true); err != nil {
		return err
	}
	return l.writeSnapshot(table) // it syncs the directory, for both
}

func (l *Log) writeSnapshot(table *tableSnapshot) error {
	err := writeSmall(l.fsys, filepath.Join(l.dir, producersName(table.end)), producersKind, table.payload)
	if err == nil {
		err = pruneProducers(l.fsys, l.dir, table.end, l.hw())
	}
	if err != nil && !outOfRoom(err) && !errors.Is(err, vfs.ErrTooLarge) { // an older one, and a longer replay, will do
		return l.fail("write the producer table", err)
	}
	return nil
}

// saveActiveIndex writes the index of the active segment while its owner may go on adding to it.
func (l *Log) saveActiveIndex(s *segment, about facts, sync bool) error {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	made := s.index.loaded.Load()
	if made == nil {
		return nil // at rest, and saved before
	}
	return l.hint(s.saveIndex(about, made, sync))
}

// hint looks at the error of writing an index file. Indexes are hints: one that lacks something is
// made anew by whoever needs it. Only a disk that does not take writes at all is worth an end.
func (l *Log) hint(err error) error {
	if err == nil || outOfRoom(err) || errors.Is(err, errGone) {
		return nil
	}
	return l.fail("write an index", err)
}
