package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Truncate cuts the log so that it ends at or below to: at the start of the batch that holds offset
// to. When it returns, the cut survives any crash. Owner only, with no Compact running.
func (l *Log) Truncate(to topic.Offset) error {
	if err := l.Failed(); err != nil {
		return err
	}
	switch start, end := l.Start(), l.End(); {
	case to >= end:
		return nil
	case to < start:
		return l.refuse("Truncate", fault.Internal, fmt.Errorf("offset %d is below the log's start %d", to, start))
	}
	return l.change(func() error { return l.truncate(to) })
}

// Reset empties the log and lets it begin, and end, at start. Durable when it returns. Owner only,
// with no Compact running.
func (l *Log) Reset(start topic.Offset) error {
	if err := l.Failed(); err != nil {
		return err
	}
	if start < 0 {
		return l.refuse("Reset", fault.Internal, fmt.Errorf("offset %d is negative", start))
	}
	return l.change(func() error { return l.reset(start) })
}

// change carries out a cut while nobody else changes the log, and lets readers look again after it.
func (l *Log) change(cut func() error) error {
	if err := l.unmark(); err != nil {
		return err
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.structure.Lock()
	defer l.structure.Unlock()
	l.cuts.Add(1)
	defer l.cuts.Add(1)
	l.counts.cuts.Add(1)
	return cut()
}

// place is where a cut falls.
type place struct {
	segment int
	at      int64
	end     topic.Offset
}

func (l *Log) truncate(to topic.Offset) error {
	v := l.view.Load()
	p, err := l.cutPlace(v, to)
	if err != nil {
		return l.refuse("Truncate", fault.Internal, err)
	}
	if start := l.Start(); p.end < start {
		return l.reset(start) // the log's start lies inside the batch that goes: nothing of it is left
	}
	was := v.segments[p.segment]
	s := was.again(p.at) // readers who still hold the old one cannot tell the new one what they saw
	// Whatever happens from here on, a recovery must not miss what is about to go. A floor that is below
	// the cut stays: what lies between was perhaps never synced.
	if mark, known := l.floor.Mark(); known && (mark.End > p.end || mark.Segment > s.base) {
		if err := l.floor.Lower(floorMark{End: p.end, Segment: s.base, Bytes: p.at}); err != nil {
			return l.fail("write the synced floor", err)
		}
	}
	l.synced.Store(min(l.synced.Load(), int64(p.end)))
	l.end.Store(int64(p.end))
	l.view.Store((&view{v.segments[:p.segment]}).with(s))
	for _, gone := range slices.Backward(v.segments[p.segment+1:]) {
		if err := l.removeFiles(gone); err != nil {
			return l.fail("remove "+gone.log.name, err)
		}
	}
	if err := l.cutSegment(s, p); err != nil {
		return err
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	return l.cutTables(was, s, p)
}

// cutPlace finds the start of the batch that holds an offset, or where it would stand.
func (l *Log) cutPlace(v *view, to topic.Offset) (place, error) {
	i := max(0, v.find(to-1))
	s := v.segments[i]
	p := place{segment: i, end: to}
	size, err := s.bytes()
	if err != nil {
		return place{}, err
	}
	f, err := s.log.use()
	if err != nil {
		return place{}, err
	}
	defer s.log.release()
	w := walk{file: f, size: size, limit: v.limit(i, l.End())}
	defer w.close()
	r := reader{log: l, segment: s, limit: w.limit, last: i == len(v.segments)-1}
	if err := r.seek(&w, max(s.base, to-1), 0); err != nil {
		return place{}, err
	}
	for {
		h, _, err := w.peek()
		switch {
		case err == nil && h.Next() > to:
			p.at, p.end = w.at, min(to, h.BaseOffset)
			return p, nil
		case err == nil:
			w.pass(&h)
		case errors.Is(err, io.EOF):
			p.at = w.at
			return p, nil
		case isUnsound(err):
			at := w.at
			next, err := w.resync()
			if err != nil {
				return place{}, err
			}
			if next >= to {
				p.at = at // the damage goes with the cut
				return p, nil
			}
		default:
			return place{}, err
		}
	}
}

// cutSegment cuts the segment that is now the last.
func (l *Log) cutSegment(s *segment, p place) error {
	f, err := s.log.use()
	if err != nil {
		return l.fail("open "+s.log.name, err)
	}
	defer s.log.release()
	l.room.begin(s, p.at)
	if err := f.Truncate(p.at); err != nil {
		return l.fail("truncate "+s.log.name, err)
	}
	return l.syncFile(s, f)
}

// cutTables cuts what was derived from the batches that are gone.
func (l *Log) cutTables(was, s *segment, p place) error {
	if err := l.cutIndex(was, s, p); err != nil {
		return err
	}
	l.epochs.TruncateTo(p.end)
	if _, err := l.saveEpochs(); err != nil {
		return err
	}
	l.tail.reset(topic.Mark{Epoch: l.epochs.EpochAt(p.end - 1), End: p.end}, s, l.idx.facts)
	return l.cutProducers()
}

func (l *Log) cutIndex(was, s *segment, p place) error {
	was.index.mu.Lock()
	defer was.index.mu.Unlock()
	x, held := l.idx, was.index.saved
	if x == nil || x.base != s.base {
		var err error
		if x, held, err = s.loadIndex(); err == nil && (x == nil || x.covers < p.at) {
			held = saved{sequence: held.sequence} // the files know less than what stays
			x, err = s.buildIndex(p.at, p.end)
		}
		if err != nil {
			return l.fail("index of "+s.log.name, err)
		}
	}
	x.made = *x.made.below(p.at)
	x.covers, x.next = p.at, p.end
	s.index.saved = held
	s.index.loaded.Store(x.snapshot())
	l.idx, l.raised = x, p.at
	return l.saveCutIndex(s, x.facts, &x.made)
}

func (t *tail) reset(mark topic.Mark, s *segment, about facts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark, t.segment, t.about, t.snapshot = mark, s, about, nil
}

// cutProducers makes the producer table again from a snapshot below the cut and the batches behind it.
func (l *Log) cutProducers() error {
	if err := pruneProducers(l.fsys, l.dir, l.End(), l.hw()); err != nil {
		return l.fail("remove producer tables", err)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	rebuilt, err := l.loadProducers(time.Now())
	if err != nil {
		return l.fail("rebuild the producer table", err)
	}
	l.producers.Become(rebuilt)
	return nil
}

func (l *Log) reset(start topic.Offset) error {
	v := l.view.Load()
	if len(v.segments) == 0 { // perhaps nothing was appended yet
		if err := l.nameDurably(); err != nil {
			return l.failOrFull("Reset", "make "+l.dir+" durable", err)
		}
	}
	if err := writeStart(l.fsys, l.dir, start); err != nil {
		return l.failOrFull("Reset", "write the log's start", err)
	}
	// A recovery that still finds old segments sees that they end below the start, or that they
	// begin at another offset than the floor, which no acknowledgement covers any more.
	if err := l.floor.Lower(floorMark{End: start, Segment: start}); err != nil {
		return l.fail("write the synced floor", err)
	}
	l.view.Store(&view{})
	for _, gone := range slices.Backward(v.segments) {
		if err := l.removeFiles(gone); err != nil {
			return l.fail("remove "+gone.log.name, err)
		}
	}
	if err := pruneProducers(l.fsys, l.dir, -1, 0); err != nil {
		return l.fail("remove producer tables", err)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	l.idx, l.raised = nil, 0
	l.start.Store(int64(start))
	l.end.Store(int64(start))
	l.synced.Store(int64(start))
	l.epochs.Reset()
	l.producers.Clear()
	l.tail.reset(topic.Mark{Epoch: topic.NoEpoch, End: start}, nil, noFacts(start))
	_, err := l.saveEpochs()
	return err
}
