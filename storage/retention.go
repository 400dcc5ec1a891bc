package storage

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Retained says what a pass of retention did.
type Retained struct {
	Segments int   // deleted
	Bytes    int64 // deleted
	More     bool  // the pass ended at its bound; another will find more to delete
	Held     bool  // the clock jumped ahead, so nothing was deleted for its age
}

// pass is what the cleaner remembers from one pass to the next.
type pass struct {
	last  time.Time     // the pass before, on the monotonic clock
	wall  time.Duration // the same on the clock that can be set, since 1970
	until time.Time     // nothing is deleted for its age before this time, on the monotonic clock
}

const (
	// A pass deletes at most a quarter of the segments, but may always delete this many. When a clock is
	// wrong, that leaves somebody the time to notice.
	leastPerPass = 16

	// A clock that ran ahead of the monotonic one by this much between two passes was set, or the machine slept.
	clockJump = 5 * time.Minute
	// jumpHold is how long nothing is deleted for its age after that.
	jumpHold = time.Hour
)

// Retain deletes whole closed segments below the high watermark that are below the log's start, older
// than retention.ms or above retention.bytes. A pass is bounded. Cleaner only.
//
// The log's start is raised, durably, before anything is deleted. A file that cannot be read is never
// a reason to delete.
func (l *Log) Retain(hw topic.Offset, now time.Time) (Retained, error) {
	if err := l.Failed(); err != nil {
		return Retained{}, err
	}
	l.committed.Store(int64(hw))
	held := l.pass.held(now)
	doomed, more, heldBack, err := l.doomed(hw, now, held)
	if err != nil || len(doomed) == 0 {
		return Retained{Held: heldBack}, err
	}
	v := l.view.Load()
	start := v.limit(len(doomed)-1, hw)
	if err := l.AdvanceStart(start); err != nil {
		return Retained{}, err
	}
	bytes, err := l.drop(doomed)
	return Retained{Segments: len(doomed), Bytes: bytes, More: more, Held: heldBack}, err
}

// held says whether deletions for age wait because the clock jumped.
func (p *pass) held(now time.Time) bool {
	wall := time.Duration(now.UnixNano())
	if !p.last.IsZero() && wall-p.wall-now.Sub(p.last) > clockJump {
		p.until = now.Add(jumpHold)
	}
	p.last, p.wall = now, wall
	return now.Before(p.until)
}

// doomed are the oldest segments, as far as they are to be deleted. held says that some would be, were
// it not for the clock.
func (l *Log) doomed(hw topic.Offset, now time.Time, hold bool) (doomed []*segment, more, held bool, err error) {
	v, settings, start := l.view.Load(), l.settings.Load(), l.Start()
	most := max(leastPerPass, len(v.segments)/4)
	var over int64
	if settings.Delete && settings.RetentionBytes >= 0 {
		total, err := l.totalBytes(v)
		if err != nil {
			return nil, false, false, err
		}
		over = total - settings.RetentionBytes
	}
	for i, s := range v.segments {
		limit := v.limit(i, hw)
		if i == len(v.segments)-1 || limit > hw {
			break
		}
		size, err := s.bytes()
		if err != nil {
			return nil, false, false, l.refuse("Retain", fault.Internal, err)
		}
		below := limit <= start
		big := over > 0 && over >= size
		old := false
		if !below && !big && settings.Delete && settings.RetentionAge >= 0 {
			about, err := l.factsOf(s, limit)
			if err != nil {
				return nil, false, false, l.refuse("Retain", fault.Internal, err)
			}
			old = expired(about, now, settings.RetentionAge)
			if old && hold {
				return doomed, false, true, nil
			}
		}
		if !below && !big && !old {
			break
		}
		if len(doomed) == most {
			return doomed, true, false, nil
		}
		over -= size
		doomed = append(doomed, s)
	}
	return doomed, false, false, nil
}

func (l *Log) totalBytes(v *view) (total int64, err error) {
	for _, s := range v.segments {
		size, err := s.bytes()
		if err != nil {
			return 0, l.refuse("Retain", fault.Internal, err)
		}
		total += size
	}
	return total, nil
}

// AdvanceStart raises the log's start, durably. Records below are not readable any more; their
// segments go with the next Retain. An offset at or below Start changes nothing. The caller sees to it
// that start is not above the high watermark. Any goroutine.
func (l *Log) AdvanceStart(start topic.Offset) error {
	if err := l.Failed(); err != nil {
		return err
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	if start <= l.Start() {
		return nil
	}
	if end := l.End(); start > end {
		return l.refuse("AdvanceStart", fault.Internal, fmt.Errorf("offset %d is above the log's end %d", start, end))
	}
	if err := l.unmarkLocked(); err != nil {
		return err
	}
	if err := writeStart(l.fsys, l.dir, start); err != nil {
		return l.failOrFull("AdvanceStart", "write the log's start", err)
	}
	l.start.Store(int64(start))
	l.epochs.AdvanceTo(start) // the side file follows with the next sync
	return nil
}

// drop takes the oldest segments out of the log and deletes them, first those that come first.
func (l *Log) drop(doomed []*segment) (bytes int64, err error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	if err := l.unmarkLocked(); err != nil {
		return 0, err
	}
	v := l.view.Load()
	l.view.Store(&view{slices.Clone(v.segments[len(doomed):])})
	for _, s := range doomed {
		bytes += max(0, s.size.Load())
		if err := l.removeFiles(s); err != nil {
			return bytes, l.fail("remove "+s.log.name, err)
		}
		l.counts.deleted.Add(1)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return bytes, l.fail("sync directory "+l.dir, err)
	}
	return bytes, nil
}
