package storage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
)

const (
	fillFromBytes = 1 << 20 // a partition is filled ahead from its second MiB on
	fillStepBytes = 4 << 20
	fillLowBytes  = 2 << 20   // fill again when less than this is left
	fillChunk     = 256 << 10 // zeros written at once: the longest that an append may wait for
	// fillMostGroup is how much a sync may cover for which it is filled ahead. Zeros spare a sync the
	// file system's journal, but all bytes are written twice: that pays for small syncs only.
	fillMostGroup = 384 << 10
)

var zeros [fillChunk]byte

// filled is how far the active segment's file reaches: behind the last batch it may hold zeros.
type filled struct {
	// mu is held while zeros are written, and by an append that goes beyond them.
	mu      sync.Mutex
	segment atomic.Pointer[segment]
	to      atomic.Int64 // bytes of the file that hold batches or zeros
}

// end is how far the file of a segment reaches.
func (r *filled) end(s *segment) int64 {
	if r.segment.Load() != s {
		return 0
	}
	return r.to.Load()
}

// begin makes s the segment that is filled; its file has size bytes.
func (r *filled) begin(s *segment, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.segment.Store(s)
	r.to.Store(size)
}

// claim keeps zeros from being written below end from now on.
func (r *filled) claim(s *segment, end int64) {
	if r.segment.Load() == s && r.to.Load() >= end {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.segment.Load() != s {
		r.segment.Store(s)
		r.to.Store(0)
	}
	r.to.Store(max(r.to.Load(), end))
}

// cut truncates the file of the active segment.
func (r *filled) cut(s *segment, f vfs.File, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.segment.Load() == s {
		r.to.Store(size)
	}
	return f.Truncate(size)
}

// fill writes one chunk of zeros, and says whether the file now reaches target.
func (r *filled) fill(s *segment, f vfs.File, target int64) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.to.Load()
	if r.segment.Load() != s || from >= target {
		return true, nil
	}
	n, err := f.WriteAt(zeros[:min(target-from, fillChunk)], from)
	r.to.Store(from + int64(n)) // also after a short write: these bytes are zeros
	return false, err
}

// prepared is the zero-filled room behind the end.
func (l *Log) prepared(v *view) int64 {
	s := v.active()
	if s == nil {
		return 0
	}
	return max(0, l.room.end(s)-s.size.Load())
}

// Prepare does what is due once in some MiB of batches and does not belong into a Sync: it writes
// snapshots that shorten a recovery and, with flush.messages=1, fills room behind the end with zeros,
// so that coming syncs leave the file's metadata alone. Mostly it finds nothing to do. When the disk
// has no room left, the error's kind is StorageFull: the appends that still fit are taken. Syncer only, after Sync.
func (l *Log) Prepare() error {
	if err := l.Failed(); err != nil {
		return err
	}
	if l.tail.waiting() {
		if err := l.checkpoint(); err != nil {
			return err
		}
	}
	s := l.view.Load().active()
	if s == nil || !l.fillWanted(s) {
		return nil
	}
	return l.fill(s)
}

func (l *Log) fillWanted(s *segment) bool {
	size := s.size.Load()
	return l.settings.Load().FlushMessages == 1 && !l.marked.Load() && // the clean mark knows the file's size
		l.group.Load() <= fillMostGroup &&
		(size >= fillFromBytes || size > 0 && len(l.view.Load().segments) > 1) &&
		l.room.end(s)-size < fillLowBytes && l.fillTarget(s) > l.room.end(s)
}

// fillTarget is the end of the next step: never beyond where the segment will be closed.
func (l *Log) fillTarget(s *segment) int64 {
	reached := max(l.room.end(s), s.size.Load())
	return min(reached-reached%fillStepBytes+fillStepBytes, l.settings.Load().SegmentBytes)
}

func (l *Log) fill(s *segment) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if now := time.Now(); now.Before(l.fillAfter) {
		return nil
	}
	if s != l.view.Load().active() {
		return nil
	}
	f, err := s.log.use()
	if err != nil {
		return l.refuse("Prepare", fault.Internal, err)
	}
	defer s.log.release()
	target := l.fillTarget(s)
	if err := l.cfg.Room.take(target - l.room.end(s)); err != nil {
		l.fillAfter = time.Now().Add(lookEvery)
		return l.refuse("Prepare", fault.StorageFull, err)
	}
	for done := false; !done; {
		done, err = l.room.fill(s, f, target)
		switch {
		case err == nil:
		case outOfRoom(err):
			l.fillAfter = time.Now().Add(lookEvery)
			return l.refuse("Prepare", fault.StorageFull, err)
		default:
			return l.fail("write "+s.log.name, err)
		}
	}
	return l.syncFile(s, f)
}

// waiting says whether a snapshot waits to be written.
func (t *tail) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot != nil
}
