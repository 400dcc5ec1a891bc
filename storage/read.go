package storage

import (
	"errors"
	"io"
	"math"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Read returns whole batches from the one that holds offset from, or the next one there is, that end
// at or below offset below: at most maxBytes of them, but always one when there is one. Damaged ranges
// are stepped over and reported. It allocates what it returns. Any goroutine.
//
// An offset below the log's start, or above below, is refused with kind OffsetRange and a
// *topic.RangeError. The caller sees to it that below is at most End.
func (l *Log) Read(from, below topic.Offset, maxBytes int) (Piece, error) {
	for {
		if err := l.Failed(); err != nil {
			return Piece{}, err
		}
		cuts := l.cuts.Load()
		piece, err := l.readOnce(from, below, maxBytes)
		if cuts != l.cuts.Load() || cuts%2 == 1 || errors.Is(err, errGone) {
			// The log was cut, or a segment left it, while we read: what we saw may be half of it.
			l.await()
			continue
		}
		return piece, err
	}
}

// await waits for a change of the log's structure that is under way.
func (l *Log) await() {
	l.structure.Lock()
	defer l.structure.Unlock()
}

func (l *Log) readOnce(from, below topic.Offset, maxBytes int) (Piece, error) {
	v := l.view.Load()
	if start := l.Start(); from < start || from > below {
		reason := topic.Retention
		if from > below {
			reason = topic.BeyondEnd
		}
		return Piece{}, l.refuse("Read", fault.OffsetRange, &topic.RangeError{
			Path: l.cfg.Path, Offset: from, Reason: reason, ResumeAt: max(start, min(from, below)),
			Bounds: topic.Bounds{LogStart: start, HighWatermark: below, LeaderEpoch: l.epochs.Last()},
		})
	}
	piece := Piece{Next: from}
	for piece.Next < below && piece.Batches == nil {
		i := v.find(piece.Next)
		if i < 0 { // the segments begin later than the log
			i = 0
			if len(v.segments) == 0 || v.segments[0].base >= below {
				piece.lose(piece.Next, below)
				break
			}
			piece.lose(piece.Next, v.segments[0].base)
		}
		r := reader{log: l, segment: v.segments[i], below: below, last: i == len(v.segments)-1}
		if !r.last {
			r.limit = v.segments[i+1].base
		}
		if err := r.read(&piece, maxBytes); err != nil {
			return Piece{}, err
		}
		if r.done {
			break
		}
	}
	l.mark(piece.Gaps)
	return piece, nil
}

func (l *Log) mark(gaps []topic.Gap) {
	for i := range gaps {
		gaps[i].Partition = l.cfg.Path.Partition
	}
}

// lose steps over a range that is not there.
func (p *Piece) lose(start, end topic.Offset) {
	if start >= end {
		return
	}
	if n := len(p.Gaps); n > 0 && p.Gaps[n-1].End == start {
		p.Gaps[n-1].End = end
	} else {
		p.Gaps = append(p.Gaps, topic.Gap{Start: start, End: end, Reason: topic.Damaged})
	}
	p.Next = max(p.Next, end)
}

// reader reads from one segment.
type reader struct {
	log     *Log
	segment *segment
	below   topic.Offset
	limit   topic.Offset // where the segment's offsets end
	last    bool         // it is the active one
	done    bool         // there is more in the segment, but not for this read
}

// read adds to the piece what the segment has from piece.Next on: batches, or a step over damage, or
// a step to the segment's end.
func (r *reader) read(piece *Piece, maxBytes int) error {
	s := r.segment
	size, err := s.bytes()
	if err != nil {
		return r.wrap(err)
	}
	if r.last {
		r.limit = r.log.End() // after size: it is then the end of all that size covers, or more
	}
	f, err := s.log.use()
	if err != nil {
		return r.wrap(err)
	}
	defer s.log.release()
	w := walk{file: f, size: size, limit: r.limit, closed: !r.last}
	defer w.close()
	if err := r.seek(&w, piece.Next, maxBytes); err != nil {
		return r.wrap(err)
	}
	for piece.Next < r.below {
		more, err := r.advance(&w, piece, maxBytes)
		if err != nil {
			return r.wrap(err)
		}
		if !more {
			return nil
		}
	}
	r.done = true
	return nil
}

// advance looks at one place of the segment. more is false when the read has what it came for, or the
// segment has no more.
func (r *reader) advance(w *walk, piece *Piece, maxBytes int) (more bool, err error) {
	h, raw, err := w.peek()
	switch {
	case isUnsound(err), err == nil && !r.believable(&h):
		return true, r.step(w, piece)
	case errors.Is(err, io.EOF):
		r.finish(w, piece)
		return false, nil
	case err != nil:
		return false, err
	case h.Next() <= piece.Next: // before what was asked for
		w.pass(&h)
		return true, nil
	case h.Next() > r.below:
		r.done = true
		piece.Next = min(r.below, max(piece.Next, h.BaseOffset))
		return false, nil
	default:
		return false, r.collect(w, piece, &h, len(raw), maxBytes)
	}
}

// wrap gives an error of the file system its place.
func (r *reader) wrap(err error) error {
	if errors.Is(err, errGone) {
		return err
	}
	return r.log.refuse("Read", fault.Internal, err)
}

// believable checks a header, which no checksum covers in full, against the epoch table.
func (r *reader) believable(h *batch.Header) bool {
	known := r.log.epochs.EpochAt(h.BaseOffset)
	return known == topic.NoEpoch || known == h.LeaderEpoch
}

// seek puts the walk at a batch at or before an offset, with one read of what is likely to be needed.
func (r *reader) seek(w *walk, from topic.Offset, maxBytes int) error {
	for fresh := false; ; fresh = true {
		made, err := r.log.indexOf(r.segment, r.limit, fresh)
		if err != nil {
			return err
		}
		e := made.floor(uint32(max(0, min(from-r.segment.base, math.MaxUint32))))
		w.at, w.expect = int64(e.pos), r.segment.base+topic.Offset(e.rel)
		if err := w.load(w.at, max(maxBytes, batch.HeaderBytes)+2*indexEveryBytes); err != nil {
			return err
		}
		if e == (indexEntry{}) || made.proved || fresh {
			return nil
		}
		h, err := w.header()
		if err == nil && h.BaseOffset == w.expect {
			return nil
		}
		if err != nil && !isUnsound(err) && !errors.Is(err, io.EOF) {
			return err
		}
		// The entry does not say what the segment has: either the index is wrong or the batch is. Only
		// the batches can tell.
	}
}

// collect puts the sound batches at the walk's place into the piece; the first was checked.
func (r *reader) collect(w *walk, piece *Piece, h *batch.Header, size, maxBytes int) error {
	if w.pooled != nil { // the buffer goes back to the pool, and may be larger than what it holds for us
		if err := w.load(w.at, max(size, maxBytes)); err != nil {
			return err
		}
	}
	buf, start := w.buf, w.start // the walk may take another buffer to look ahead
	begin := w.at - start
	end := begin
	for {
		end += int64(h.Size())
		piece.Next = h.Next()
		w.pass(h)
		if int64(len(buf))-end < batch.HeaderBytes {
			break
		}
		next, err := w.header()
		if err != nil || w.start != start || !w.buffered(&next) || next.Next() > r.below || !r.believable(&next) ||
			end-begin+int64(next.Size()) > int64(maxBytes) {
			break
		}
		if _, err := batch.Check(buf[end:]); err != nil {
			break // the next read steps over it
		}
		h = &next
	}
	piece.Batches = buf[begin:end:end]
	return nil
}

// step steps over an unsound place.
func (r *reader) step(w *walk, piece *Piece) error {
	s := r.segment
	d, known := s.damageAt(w.at)
	if !known {
		d = damage{at: w.at, start: w.expect}
		next, err := w.resync()
		if err != nil {
			return err
		}
		d.to, d.end = w.at, next
		// Damage up to the end of the active segment is not remembered: that end moves.
		if d.to < w.size || !r.last {
			if s.addDamage(d) {
				r.log.counts.damaged.Add(1)
			}
		}
	}
	w.at, w.expect = d.to, d.end
	piece.lose(max(d.start, piece.Next), min(d.end, r.below))
	return nil
}

// finish steps to the end of the segment. What it lacks there is lost: compaction keeps a segment's
// last offset. The active segment has all below its end, and what lies above is not for this read.
func (r *reader) finish(w *walk, piece *Piece) {
	end := min(r.limit, r.below)
	if w.expect < end {
		piece.lose(max(piece.Next, w.expect), end)
	}
	piece.Next = max(piece.Next, end)
	r.done = piece.Next >= r.below
}

// indexOf returns the entries of a segment, from memory, from its files or, with fresh, from its batches.
func (l *Log) indexOf(s *segment, limit topic.Offset, fresh bool) (*indexEntries, error) {
	x := &s.index
	x.used.Store(true)
	if made := x.loaded.Load(); made != nil && !fresh {
		return made, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if made := x.loaded.Load(); made != nil && (!fresh || made.proved) {
		return made, nil // somebody else was faster
	}
	size, err := s.bytes()
	if err != nil {
		return nil, err
	}
	var made *indexer
	if !fresh {
		if made, x.saved, err = s.loadIndex(); err != nil {
			return nil, err
		}
		if made != nil && made.covers != size {
			made, x.saved = nil, saved{sequence: x.saved.sequence}
		}
	}
	active := s == l.view.Load().active()
	if active {
		limit = l.End() // after size
	}
	if made == nil {
		if made, err = s.buildIndex(size, limit); err != nil {
			return nil, err
		}
		if size > 0 {
			l.counts.indexes.Add(1)
		}
		if size > 0 && !active { // the files of the active one are the syncer's
			x.saved.offsets, x.saved.stamps = 0, 0
			if err := l.hint(s.saveIndex(made.facts, &made.made, false)); err != nil {
				return nil, err
			}
		}
	}
	entries := made.snapshot()
	x.loaded.Store(entries)
	if !active {
		s.facts.CompareAndSwap(nil, &made.facts)
		l.files.keep(x, entries.bytes())
	}
	return entries, nil
}
