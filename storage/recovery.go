package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// recovery finds the end of a log that was not closed.
//
// The synced floor divides it. What lies above was never acknowledged: the first place there that is
// not a sound batch ends the log, whatever stands behind it, since pages reach a disk in any order.
// What lies below was: nothing of it is cut, damage is reported, and the log goes on behind it.
type recovery struct {
	log   *Log
	found Recovery

	floor floorMark // where the floor lies in the segments that are there
	known bool      // the floor's file could be read
	mark  topic.Mark
	x     *indexer
	whole bool // the epoch table is made anew: skip nothing

	// latest is the newest epoch that the partition had, 0 when that is not known. An older copy of the
	// metadata may be in force, so the log's own table has a say: it knows all epochs below the floor.
	latest topic.Epoch

	cut  bool // the end was found before the segments ended
	torn bool // what stands last in the file is not a sound batch, and stays
}

func (r *recovery) run() error {
	l := r.log
	promised, known := l.floor.Mark()
	if known {
		r.found.Promised = promised.End
	}
	r.known = known
	emptied := r.emptied(promised)
	if emptied {
		if err := r.remove(l.view.Load().segments, 0); err != nil {
			return err
		}
		r.found.CutBytes = 0
	}
	v := l.view.Load()
	first := r.place(v, promised)
	if err := r.loadEpochs(v.segments, first); err != nil {
		return err
	}
	if emptied {
		l.epochs.Reset()
	}
	// What the table says of places above the floor may be of batches that were cut off since.
	l.epochs.TruncateTo(r.floor.End)
	r.mark = topic.Mark{Epoch: topic.NoEpoch, End: max(l.Start(), r.floor.End)}
	for i := first; i >= 0 && i < len(v.segments) && !r.cut; i++ {
		if err := r.segment(v.segments, i, first); err != nil {
			return fmt.Errorf("recover %s: %w", v.segments[i].log.name, err)
		}
	}
	if err := r.finish(); err != nil {
		return err
	}
	r.judge(len(v.segments) > 0)
	return nil
}

// emptied says that the log was being emptied: its start and its floor were moved to where no segment
// begins, and the old segments were about to go.
func (r *recovery) emptied(promised floorMark) bool {
	segments := r.log.view.Load().segments
	return r.known && promised == floorMark{End: r.log.Start(), Segment: r.log.Start()} && len(segments) > 0 &&
		!slices.ContainsFunc(segments, func(s *segment) bool { return s.base == promised.Segment })
}

// judge says what was found.
func (r *recovery) judge(segments bool) {
	settings := r.log.settings.Load()
	switch {
	case len(r.found.Gaps) > 0, segments && !r.known:
		r.found.State = Lost
	case !segments && r.found.Promised <= r.log.Start():
		r.found.State = Clean // there was nothing to close
	case !segments:
		r.found.State = Lost
	case settings.FlushMessages == 1 || r.log.cfg.SameBoot:
		r.found.State = Synced
	default:
		// Readers were given what was written, and the page cache that had it is gone.
		r.found.State = Lost
	}
}

// place finds the segment that the floor lies in, -1 when there are no segments.
func (r *recovery) place(v *view, promised floorMark) int {
	segments := v.segments
	last := len(segments) - 1
	if last < 0 {
		if r.known {
			r.floor.End = promised.End
		}
		return -1
	}
	if !r.known {
		r.floor = floorMark{End: segments[last].base, Segment: segments[last].base}
		return last
	}
	if i := v.find(r.log.Start()); i >= 0 && promised.End < r.log.Start() && segments[i].base > promised.End {
		// Retention has passed the floor, and perhaps not all that it deleted came back.
		r.floor = floorMark{End: segments[i].base, Segment: segments[i].base}
		return i
	}
	at := func(base topic.Offset) int {
		return slices.IndexFunc(segments, func(s *segment) bool { return s.base == base })
	}
	if i := at(promised.Segment); i >= 0 {
		r.floor = promised
		return i
	}
	// The floor's segment was deleted or compacted away after it was closed: the next one was begun
	// where it ends.
	if i := at(promised.End); i >= 0 {
		r.floor = floorMark{End: promised.End, Segment: promised.End}
		return i
	}
	if promised.End <= segments[0].base {
		r.floor = floorMark{End: segments[0].base, Segment: segments[0].base}
		return 0
	}
	// It is gone, or part of another. All that begins below the promised end is below the floor.
	i := max(0, v.find(promised.End-1))
	r.floor = floorMark{End: promised.End, Segment: segments[i].base, Bytes: math.MaxInt64}
	return i
}

// loadEpochs reads the epoch table, or makes it anew from the batches. The recovery itself reads
// those from segment first on.
func (r *recovery) loadEpochs(segments []*segment, first int) error {
	l := r.log
	table, err := loadEpochs(l.fsys, l.dir)
	switch {
	case err == nil:
		l.epochs, l.savedEpoch = table, table.entries.Load()
		if l.cfg.LatestEpoch != 0 {
			r.latest = max(l.cfg.LatestEpoch, table.Last())
		}
		return nil
	case !missing(err):
		return err
	}
	l.epochs, r.whole = newEpochs(), true
	if first < 0 {
		l.savedEpoch = l.epochs.entries.Load() // a table without entries says no more than none
		return nil
	}
	if r.floor.End > segments[0].base { // else it was never written, since nothing was ever synced
		r.found.Rebuilt = append(r.found.Rebuilt, epochsName)
	}
	for i, s := range segments[:first] {
		err := l.scan(s, segments[i+1].base, s.base, true, func(b found) error {
			l.epochs.Assign(b.header.LeaderEpoch, b.header.BaseOffset)
			return nil
		})
		if err != nil {
			return fmt.Errorf("epochs of %s: %w", s.log.name, err)
		}
	}
	return nil
}

// segment walks segment i from the floor, or from its beginning if it is above.
func (r *recovery) segment(segments []*segment, i, first int) error {
	l, s := r.log, segments[i]
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	size, err := f.Size()
	if err != nil {
		return err
	}
	r.x = newIndexer(s.base)
	floor := int64(0)
	if i == first {
		floor = r.floor.Bytes
		if err := r.begin(s, min(floor, size)); err != nil {
			return err
		}
	} else if s.base != r.mark.End {
		// It does not begin where the log ends, so it was never reached by an acknowledgement.
		r.cut = true
		return r.remove(segments, i)
	}
	w := walk{file: f, size: min(floor, size), at: r.x.covers, expect: r.x.next, limit: r.floor.End}
	defer w.close()
	if i == first {
		if err := r.below(&w, segments, i); err != nil {
			return err
		}
	}
	w = walk{file: f, size: size, at: r.x.covers, expect: r.mark.End, limit: math.MaxInt64, buf: nil, pooled: w.pooled}
	sound, err := r.above(&w)
	if err != nil {
		return err
	}
	s.size.Store(w.at)
	s.index.loaded.Store(nil)
	if w.at < size {
		if err := r.trim(&w, f, size); err != nil {
			return err
		}
	}
	if w.at > floor {
		if err := rewrite(f, min(floor, w.at), w.at); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if !sound {
		r.cut = true
		if i+1 < len(segments) {
			if err := r.remove(segments, i+1); err != nil {
				return err
			}
		}
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.saved = saved{sequence: s.index.saved.sequence}
	return l.saveCutIndex(s, r.x.facts, &r.x.made)
}

// begin takes over what the index files know of the segment below the floor, so that only what is behind
// needs to be read.
func (r *recovery) begin(s *segment, floor int64) error {
	x, held, err := s.loadIndex()
	if err != nil {
		return err
	}
	s.index.saved = held
	switch {
	case x == nil:
		// There may be none yet: the active segment's is written now and then.
		there, err := vfs.Exists(r.log.fsys, s.stem+offsetIndex.suffix)
		if err != nil {
			return err
		}
		if there {
			r.found.Rebuilt = append(r.found.Rebuilt, filepath.Base(s.stem)+offsetIndex.suffix)
			r.log.counts.indexes.Add(1)
		}
	case r.whole:
	case x.covers <= floor:
		r.x = x
	case floor == r.floor.Bytes:
		x.made = *x.made.below(floor)
		x.covers, x.next = floor, r.floor.End
		r.x = x
	}
	r.mark = topic.Mark{Epoch: r.log.epochs.EpochAt(r.x.next - 1), End: r.x.next}
	return nil
}

// below reads what was promised. Nothing here is cut.
func (r *recovery) below(w *walk, segments []*segment, i int) error {
	last := i == len(segments)-1
	for {
		if r.x.next >= r.floor.End && r.floor.Bytes == math.MaxInt64 {
			return nil // nobody knows how many bytes were promised; it was no record more than these
		}
		h, _, err := w.peek()
		switch {
		case err == nil && !r.follows(&h, last):
			err = errUnsound
		case err == nil:
			w.pass(&h)
			r.take(&h)
			continue
		}
		switch {
		case errors.Is(err, io.EOF):
			// The file ends, or the floor is reached. What the file lacks is lost; the log goes on behind it.
			r.torn = r.torn || r.x.next < r.floor.End
			r.lose(r.x.next, r.floor.End)
			r.x.skip(w.at, r.floor.End)
			r.mark.End = r.floor.End
			return nil
		case isUnsound(err):
			start := w.expect
			next, err := w.resync()
			if err != nil {
				return err
			}
			r.torn = true
			r.lose(start, next)
			r.x.skip(w.at, next)
		default:
			return err
		}
	}
}

// follows says whether a sound batch may stand at the end of what was read so far. No checksum covers
// its base offset and epoch.
func (r *recovery) follows(h *batch.Header, active bool) bool {
	if active && r.log.contiguous() && h.BaseOffset != r.x.next {
		return false
	}
	return h.LeaderEpoch >= r.mark.Epoch && (r.latest == 0 || h.LeaderEpoch <= r.latest)
}

// above reads what nobody was promised, up to the first place that is not a sound batch. sound is
// false when that is not the end of the file.
func (r *recovery) above(w *walk) (sound bool, err error) {
	for {
		h, _, err := w.peek()
		switch {
		case err == nil && r.follows(&h, true):
			w.pass(&h)
			r.take(&h)
		case err == nil, isUnsound(err):
			return false, nil
		case errors.Is(err, io.EOF):
			return true, nil
		default:
			return false, err
		}
	}
}

// take takes note of a batch that stays.
func (r *recovery) take(h *batch.Header) {
	r.x.add(h)
	r.torn = false
	r.mark = topic.Mark{Epoch: max(r.mark.Epoch, h.LeaderEpoch), End: h.Next()}
	r.log.epochs.Assign(h.LeaderEpoch, h.BaseOffset)
	r.found.Scanned += int64(h.Size())
}

func (r *recovery) lose(start, end topic.Offset) {
	if start >= end {
		return
	}
	r.found.Gaps = append(r.found.Gaps, topic.Gap{
		Partition: r.log.cfg.Path.Partition, Start: start, End: end, Reason: topic.Damaged,
	})
}

// trim cuts a segment's file at the walk's place, and counts what that takes away; zeros do not count.
func (r *recovery) trim(w *walk, f vfs.File, size int64) error {
	used := int64(0)
	for at := w.at; at < size; {
		b, err := w.bytes(at, 1)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			break
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != 0 {
				used = at + int64(i) + 1 - w.at
				break
			}
		}
		at += int64(len(b))
	}
	r.found.CutBytes += used
	return f.Truncate(w.at)
}

// rewrite writes bytes of a file once more. A sync that failed before the crash may have left pages in
// the system's memory that look as if they were on disk; written again, the next sync covers them.
func rewrite(f vfs.File, from, to int64) error {
	buf := make([]byte, min(to-from, walkBytes))
	for at := from; at < to; {
		n, err := readUpTo(f, buf[:min(int64(len(buf)), to-at)], at)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := f.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// remove removes segments i and later, the last first.
func (r *recovery) remove(segments []*segment, i int) error {
	for _, s := range slices.Backward(segments[i:]) {
		size, err := s.bytes()
		if err != nil {
			return err
		}
		r.found.CutBytes += size
		if err := r.log.removeFiles(s); err != nil {
			return err
		}
	}
	r.log.view.Store(&view{slices.Clone(segments[:i])})
	return nil
}

// finish makes what was found the log's state.
func (r *recovery) finish() error {
	l := r.log
	v := l.view.Load()
	if r.mark.End < l.Start() {
		// All of it lies below the start, which was moved before the segments could go.
		for _, s := range slices.Backward(v.segments) {
			if err := l.removeFiles(s); err != nil {
				return err
			}
		}
		v = &view{}
		l.view.Store(v)
		r.mark.End, r.x = l.Start(), nil
	}
	l.epochs.TruncateTo(r.mark.End)
	r.mark.Epoch = l.epochs.Last()
	if _, err := l.saveEpochs(); err != nil {
		return err
	}
	if err := pruneProducers(l.fsys, l.dir, r.mark.End, l.hw()); err != nil {
		return err
	}
	s := v.active()
	if s == nil {
		l.settle(r.mark, nil, noFacts(r.mark.End))
		if r.known {
			return r.lower(floorMark{End: r.mark.End, Segment: r.mark.End})
		}
		return nil
	}
	if r.x == nil || r.x.base != s.base {
		// The walk ended in a segment that was removed; the one before is whole.
		size, err := s.bytes()
		if err != nil {
			return err
		}
		about, err := l.factsOf(s, r.mark.End)
		if err != nil {
			return err
		}
		about.covers, about.next = size, r.mark.End
		l.settle(r.mark, s, about)
	} else {
		l.settle(r.mark, s, r.x.facts)
	}
	if err := r.lower(floorMark{End: r.mark.End, Segment: s.base, Bytes: s.size.Load()}); err != nil {
		return err
	}
	return r.beginAnew(s)
}

// lower puts the floor at the end that was found, and makes all changes of names durable.
func (r *recovery) lower(m floorMark) error {
	if err := r.log.floor.Lower(m); err != nil {
		return err
	}
	return errors.Join(r.log.floor.Rest(), r.log.fsys.SyncDir(r.log.dir))
}

// beginAnew begins a new segment when the last one does not end in a sound batch: nothing is to be
// appended behind bytes that nobody can read, and offsets that were promised are not given out again.
func (r *recovery) beginAnew(s *segment) error {
	if !r.torn || s.base == r.mark.End {
		return nil
	}
	l := r.log
	fresh := l.segment(r.mark.End, 0)
	if err := fresh.log.create(); err != nil {
		return err
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return err
	}
	l.view.Store(l.view.Load().with(fresh))
	l.settle(r.mark, fresh, noFacts(fresh.base))
	return nil
}

// removeFiles removes the files of a segment. The log file goes last: without it the others mean nothing.
func (l *Log) removeFiles(s *segment) error {
	s.log.remove()
	s.index.forget()
	for _, suffix := range []string{timeIndex.suffix, offsetIndex.suffix, logSuffix} {
		if err := l.fsys.Remove(s.stem + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
