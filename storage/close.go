package storage

import (
	"errors"
	"path/filepath"

	"github.com/weirlog/weir/internal/fault"
)

// Rest lets go of what an idle log can do without: open files and indexes in memory. All of it comes
// back with the next call that needs it. A log with appends that no Sync has covered does not rest yet.
// Owner only.
func (l *Log) Rest() error {
	if err := l.Failed(); err != nil {
		return err
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	s := l.view.Load().active()
	if s == nil || l.End() != l.Synced() {
		return nil
	}
	if l.idx != nil {
		s.index.mu.Lock()
		err := l.hint(s.saveIndex(l.idx.facts, &l.idx.made, false))
		s.index.mu.Unlock()
		if err != nil {
			return err
		}
		l.idx = nil
	}
	s.index.forget()
	s.log.rest()
	l.headers = nil
	if err := l.floor.Rest(); err != nil {
		return l.fail("close the synced floor", err)
	}
	return nil
}

// Close syncs, cuts the active segment to size, writes the side files and last the clean mark. A log
// that has failed writes nothing and only lets go of its files. Owner only, when all others have stopped.
func (l *Log) Close() error {
	if err := l.Failed(); err != nil {
		l.letGo()
		return err
	}
	err := l.closeClean()
	l.letGo()
	if failed := l.Failed(); err == nil && failed != nil { // a close that failed
		return failed
	}
	closed := l.refuse("Log", fault.Closed, errors.New("the log is closed"))
	l.failed.CompareAndSwap(nil, &closed)
	return err
}

func (l *Log) closeClean() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.marked.Load() {
		return nil // nothing was changed since it was opened
	}
	s := l.view.Load().active()
	if s == nil {
		_, err := l.saveEpochs()
		return err // without segments there is nothing that a mark could speak of
	}
	if l.idx == nil && l.prepared(l.view.Load()) > 0 { // zeros behind a log that nobody appended to since it was opened
		if err := l.wake(s); err != nil {
			return err
		}
	}
	if l.idx != nil {
		if err := l.closeActive(s, true); err != nil {
			return err
		}
	}
	if ok, err := l.saveEpochs(); err != nil || !ok {
		return err
	}
	mark := l.Mark()
	table := &tableSnapshot{mark.End, l.producers.encode(mark)}
	if err := l.writeSnapshot(table); err != nil {
		return err
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	size, err := s.bytes()
	if err != nil {
		return l.refuse("Close", fault.Internal, err)
	}
	err = writeCleanMark(l.fsys, l.dir, cleanMark{
		Incarnation: l.cfg.Incarnation,
		Start:       l.Start(),
		Mark:        mark,
		Segment:     s.base,
		Bytes:       size,
		Segments:    int64(len(l.view.Load().segments)),
	})
	switch {
	case err == nil:
		l.marked.Store(true)
		return nil
	case outOfRoom(err):
		return nil // the next start recovers, which needs no mark
	default:
		return l.fail("write "+filepath.Join(l.dir, cleanName), err)
	}
}

// letGo closes all files of the log.
func (l *Log) letGo() {
	for _, s := range l.view.Load().segments {
		s.log.remove()
		s.index.forget()
	}
	if l.floor != nil {
		if err := l.floor.Rest(); err != nil {
			l.closeFailed(err)
		}
	}
	if l.producers != nil {
		l.producers.Clear()
	}
	l.idx = nil
}
