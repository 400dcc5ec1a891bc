package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

const (
	// mostAppendBytes bounds one append, so that positions in a segment fit into 32 bits.
	mostAppendBytes = 1 << 30
	// snapshotBytes of batches lie between two snapshots of the producer table and of the active index.
	snapshotBytes = 16 << 20
)

// Append writes batches at the end, all with one write. They are whole RecordBatch v2s, stamped with
// consecutive offsets from End on and with epochs that do not fall. They can be read at once, and
// survive a crash from the next Sync on. Owner only. What was staged in the producer table is taken
// back; the table then knows those batches that were written.
//
// A refusal has the kind StorageFull, and nothing of the batches is or will be in the log. An error of
// kind Internal that is not [Final] means that the batches were not fit to be appended; they are not.
func (l *Log) Append(batches [][]byte) error {
	defer l.producers.Unstage() // after a refusal, too
	return l.append(batches)
}

func (l *Log) append(batches [][]byte) error {
	if err := l.Failed(); err != nil {
		return err
	}
	total, err := l.examine(batches)
	if err != nil || total == 0 {
		return err
	}
	s, err := l.ready(int64(total))
	if err != nil {
		return err
	}
	data := batches[0]
	if len(batches) > 1 {
		joined := joinBuffers.Get().(*[]byte)
		defer giveJoined(joined)
		data = (*joined)[:0]
		for _, b := range batches {
			data = append(data, b...)
		}
		*joined = data
	}
	if err := l.write(s, data); err != nil {
		return err
	}
	l.accept(s)
	return nil
}

// One write takes one buffer. Buffers that a large append made large are not kept.
var joinBuffers = sync.Pool{New: func() any { return new([]byte) }}

func giveJoined(b *[]byte) {
	if cap(*b) <= 4<<20 {
		joinBuffers.Put(b)
	}
}

// examine checks what the batches' checksums do not cover, leaves their headers in l.headers and
// returns their size.
func (l *Log) examine(batches [][]byte) (total int, err error) {
	bad := func(i int, format string, args ...any) (int, error) {
		return 0, l.refuse("Append", fault.Internal, fmt.Errorf("batch %d of %d: %w", i+1, len(batches), fmt.Errorf(format, args...)))
	}
	l.headers = l.headers[:0]
	mark := l.tail.mark // only the owner changes it
	for i, b := range batches {
		h, err := batch.ParseHeader(b)
		switch {
		case err != nil:
			return bad(i, "%w", err)
		case h.Size() != len(b):
			return bad(i, "%d bytes, the header says %d", len(b), h.Size())
		case h.Size() > mostBatchBytes:
			return bad(i, "%d bytes, at most %d are possible", len(b), mostBatchBytes)
		case h.BaseOffset < mark.End || l.contiguous() && h.BaseOffset != mark.End:
			return bad(i, "it begins at offset %d, the log ends at %d", h.BaseOffset, mark.End)
		case h.LeaderEpoch < mark.Epoch:
			return bad(i, "it is of epoch %d, the log is in %d", h.LeaderEpoch, mark.Epoch)
		}
		mark = topic.Mark{Epoch: h.LeaderEpoch, End: h.Next()}
		total += len(b)
		l.headers = append(l.headers, h)
	}
	if total > mostAppendBytes {
		return 0, l.refuse("Append", fault.Internal, fmt.Errorf("%d bytes at once, at most %d are possible", total, mostAppendBytes))
	}
	return total, nil
}

// contiguous says whether offsets follow each other without holes. A follower of a compacted log copies
// the holes that compaction left at its leader.
func (l *Log) contiguous() bool { return !l.settings.Load().Compact }

// ready returns the active segment, awake and with room for n more bytes.
func (l *Log) ready(n int64) (*segment, error) {
	if err := l.unmark(); err != nil {
		return nil, err
	}
	s := l.view.Load().active()
	if s != nil {
		if err := l.wake(s); err != nil {
			return nil, err
		}
		if l.outgrown(n) {
			s = nil
		}
	}
	if s == nil {
		if err := l.roll(); err != nil {
			return nil, err
		}
		s = l.view.Load().active()
	}
	if more := l.idx.covers + n - l.room.end(s); more > 0 {
		if err := l.cfg.Room.take(more); err != nil {
			return nil, l.refuse("Append", fault.StorageFull, err)
		}
	}
	return s, nil
}

// outgrown says that n more bytes belong into a new segment.
func (l *Log) outgrown(n int64) bool {
	x := l.idx
	if x.covers == 0 {
		return false
	}
	last := l.headers[len(l.headers)-1].LastOffset()
	return x.covers+n > l.settings.Load().SegmentBytes || last-x.base > math.MaxUint32
}

// unmark takes the clean mark away before the first change of the log.
func (l *Log) unmark() error {
	if !l.marked.Load() {
		return nil
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	return l.unmarkLocked()
}

func (l *Log) unmarkLocked() error {
	if !l.marked.Load() {
		return nil
	}
	if err := removeCleanMark(l.fsys, l.dir); err != nil {
		return l.fail("remove the clean mark", err)
	}
	l.marked.Store(false)
	return nil
}

// wake takes the index of the active segment into the owner's hands.
func (l *Log) wake(s *segment) error {
	if l.idx != nil {
		return nil
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	size := s.size.Load()
	x, held, err := s.loadIndex()
	if err == nil && (x == nil || x.covers != size || x.next != l.End()) {
		held = saved{sequence: held.sequence}
		if size > 0 {
			l.counts.indexes.Add(1)
		}
		x, err = s.buildIndex(size, l.End())
	}
	if err != nil {
		return l.refuse("Append", fault.Internal, fmt.Errorf("index of %s: %w", s.log.name, err))
	}
	x.next = l.End() // a damaged end counts, too
	s.index.saved = held
	s.index.loaded.Store(x.snapshot())
	l.idx = x
	return nil
}

// write puts data behind the last good byte of the active segment, with one write.
func (l *Log) write(s *segment, data []byte) error {
	f, err := s.log.use()
	if err != nil {
		return l.refuse("Append", fault.Internal, err)
	}
	defer s.log.release()
	at := l.idx.covers
	l.room.claim(s, at+int64(len(data)))
	n, err := f.WriteAt(data, at)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	s.log.wrote()
	if err != nil {
		return l.takeBack(s, f, at, n, err)
	}
	return nil
}

// takeBack removes what a failed write left, durably: whole batches may be among it, and a refused
// record must not come back after a crash.
func (l *Log) takeBack(s *segment, f vfs.File, at int64, n int, cause error) error {
	if !outOfRoom(cause) {
		return l.fail("write "+s.log.name, cause)
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.Failed(); err != nil {
		return err
	}
	if err := l.room.cut(s, f, at); err != nil {
		return l.fail("truncate "+s.log.name, err)
	}
	writes := s.log.writes()
	if err := f.Sync(); err != nil {
		return l.fail("fsync "+s.log.name, err)
	}
	s.log.didSync(writes)
	return l.refuse("Append", fault.StorageFull, fmt.Errorf("%d bytes were written and taken back: %w", n, cause))
}

// outOfRoom says that a write failed for want of room, or was short: it can be tried again.
func outOfRoom(err error) bool {
	var doubt *doubtError
	if errors.As(err, &doubt) {
		return false // something may have changed
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, io.ErrShortWrite)
}

// accept takes note of the batches that were just written, and lets readers see them.
func (l *Log) accept(s *segment) {
	now := time.Now()
	x := l.idx
	x.last = topic.Millis(now.UnixMilli())
	if x.first == topic.NoTimestamp {
		x.first = x.last
	}
	grown, epoch := false, l.tail.mark.Epoch
	for i := range l.headers {
		h := &l.headers[i]
		if h.LeaderEpoch > epoch {
			epoch = h.LeaderEpoch
			l.epochs.Assign(epoch, h.BaseOffset)
		}
		if h.Idempotent() {
			l.apply(l.producers, h, now)
		}
		l.snapshot += int64(h.Size())
		grown = x.add(h) || grown
	}
	if grown {
		s.index.loaded.Store(x.snapshot())
	}
	mark := topic.Mark{Epoch: epoch, End: x.next}
	var table *tableSnapshot
	if l.snapshot >= snapshotBytes {
		l.snapshot = 0
		table = &tableSnapshot{mark.End, l.producers.encode(mark)}
	}
	s.size.Store(x.covers) // before end: who sees the end finds the bytes
	l.tail.set(mark, s, x.facts, table)
	l.end.Store(int64(mark.End))
	l.counts.appends.Add(1)
}

// apply tells a producer table of a batch.
func (l *Log) apply(table *Producers, h *batch.Header, now time.Time) {
	s := Sequenced{Producer: h.ProducerID, Epoch: h.ProducerEpoch, First: h.BaseSequence, Span: h.LastOffsetDelta + 1}
	table.Apply(s, h.BaseOffset, h.MaxTimestamp, now)
}

func (t *tail) set(mark topic.Mark, s *segment, about facts, table *tableSnapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark, t.segment, t.about = mark, s, about
	if table != nil {
		t.snapshot = table
	}
}
