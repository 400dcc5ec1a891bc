package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// The new file of a group of segments is written aside under a name with the first suffix, "<base>-<limit>",
// both with 20 digits. When it is durable it gets the second suffix, and from then on it stands for
// all segments from base to below limit: they are removed, and it takes the name of the first. Each
// step is on disk before the next begins, and finishCompaction goes on where a crash left off.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// ofCompaction says whether a file is of a compaction that did not end.
func ofCompaction(name string) bool {
	return strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, swapSuffix)
}

func groupStem(dir string, base, limit topic.Offset) string {
	return filepath.Join(dir, fmt.Sprintf("%020d-%020d", int64(base), int64(limit)))
}

// parseSwapName reads the range of offsets in the name of a swap file.
func parseSwapName(name string) (base, limit topic.Offset, ok bool) {
	stem, ok := strings.CutSuffix(name, swapSuffix)
	first, second, both := strings.Cut(stem, "-")
	if !ok || !both || len(first) != 20 || len(second) != 20 {
		return 0, 0, false
	}
	b, err1 := strconv.ParseInt(first, 10, 64)
	e, err2 := strconv.ParseInt(second, 10, 64)
	return topic.Offset(b), topic.Offset(e), err1 == nil && err2 == nil && b >= 0 && b < e
}

// finishCompaction brings the directory of a log that nobody has open to where no compaction is under
// way. names is what it holds.
func finishCompaction(fsys vfs.FS, dir string, names []string) error {
	for _, name := range names {
		base, limit, ok := parseSwapName(name)
		switch {
		case ok:
			var olds []topic.Offset
			for _, other := range names {
				if b, ok := parseSegmentName(other); ok && b >= base && b < limit {
					olds = append(olds, b)
				}
			}
			if err := swapIn(fsys, dir, base, limit, olds); err != nil {
				return err
			}
		case ofCompaction(name):
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// swapIn puts a swap file in the place of the segments it stands for.
func swapIn(fsys vfs.FS, dir string, base, limit topic.Offset, olds []topic.Offset) error {
	for _, old := range append(olds, base) { // base: its index may be left without its log
		for _, suffix := range []string{logSuffix, offsetIndex.suffix, timeIndex.suffix} {
			err := fsys.Remove(segmentStem(dir, old) + suffix)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	// Otherwise an old segment, or an index that fits by chance, could stand beside the new one after a
	// power cut.
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	if err := fsys.Rename(groupStem(dir, base, limit)+swapSuffix, segmentStem(dir, base)+logSuffix); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// rewrite makes one segment of a group of them, without what compaction removes.
func (c *compaction) rewrite(group []closedSegment) error {
	w := groupWriter{compaction: c, group: group, index: newIndexer(group[0].base), horizon: c.horizon}
	err := w.write()
	switch {
	case errors.Is(err, errDamaged) && len(group) > 1:
		if err := w.discard(); err != nil {
			return err
		}
		for i := range group { // one of them is damaged, the others need not wait for it
			if err := c.rewrite(group[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, errDamaged):
		c.did.Damaged++
		c.damaged = true
		return w.discard()
	case err != nil:
		return errors.Join(err, w.discard())
	}
	c.horizon = w.horizon
	if !w.changed && len(group) == 1 {
		return w.discard()
	}
	return w.swap()
}

// groupWriter writes the new file of a group.
type groupWriter struct {
	*compaction
	group   []closedSegment
	file    vfs.File // nil before the first write and after the last
	buf     []byte   // not yet written
	written int64
	synced  int64 // of what was written
	index   *indexer
	changed bool // something was removed, or a horizon set
	removed int64
	horizon topic.Millis // as in compaction, with the tombstones of this group
}

const (
	writeBytes = 1 << 20 // written at once
	// A sync covers about this much: one of a whole segment would hold up those of the appends, and on
	// a slow disk take as long as one that hangs.
	syncBytes = 32 << 20
)

func (w *groupWriter) limit() topic.Offset { return w.group[len(w.group)-1].limit }

func (w *groupWriter) stem() string { return groupStem(w.log.dir, w.group[0].base, w.limit()) }

func (w *groupWriter) write() error {
	var most int64
	for _, s := range w.group {
		most += s.bytes
	}
	if err := w.room(most); err != nil {
		return err
	}
	f, err := w.log.fsys.Open(w.stem()+cleanedSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if outOfRoom(err) {
		return w.log.refuse("Compact", fault.StorageFull, err)
	}
	if err != nil {
		return err
	}
	w.file = f
	for _, s := range w.group {
		damaged, err := w.each(s, w.add)
		if err != nil {
			return err
		}
		if damaged {
			return errDamaged
		}
		w.index.first = earlier(w.index.first, s.about.first)
		w.index.last = max(w.index.last, s.about.last)
	}
	return w.flush()
}

// earlier of two times, either of which may not be known.
func earlier(a, b topic.Millis) topic.Millis {
	if a == topic.NoTimestamp || b == topic.NoTimestamp {
		return max(a, b)
	}
	return min(a, b)
}

// room asks for the room that the new file takes at most. Compaction frees room in the end, so where
// the log's reserve says no it takes up to half of what there is.
func (w *groupWriter) room(most int64) error {
	refused := w.log.cfg.Room.take(most)
	if refused == nil {
		return nil
	}
	space, err := w.log.fsys.Space(w.log.dir)
	if err != nil {
		return err
	}
	if most > space.Free/2 {
		return w.log.refuse("Compact", fault.StorageFull, refused)
	}
	return nil
}

// add puts what stays of a batch into the new file.
func (w *groupWriter) add(h *batch.Header, raw []byte) error {
	kept, total, tombstones, err := w.weigh(h, raw)
	if err != nil {
		// Sound by its checksum, and still not to be read: whoever wrote it has to look at it.
		return errDamaged
	}
	last := h.Next() == w.limit()
	filter := batch.Filter{Keep: func(r *batch.Record) bool { return w.keep(h, r) }}
	horizon, has := h.Horizon()
	if tombstones > 0 {
		if !has && w.covered(h) && !w.damaged {
			horizon = topic.Millis(w.now.Add(w.settings.DeleteRetention).UnixMilli())
			filter.Horizon = horizon
			has = true
		}
		if has && !w.damaged && (w.horizon == 0 || horizon < w.horizon) {
			w.horizon = horizon
		}
	}
	w.removed += int64(total - kept)
	switch {
	case kept == total && filter.Horizon == 0 && (kept > 0 || last || w.held(h)):
		w.buf = append(w.buf, raw...)
	case kept == 0 && !last && !w.held(h):
		w.changed = true
		return nil
	default:
		w.changed = true
		start := len(w.buf)
		if w.buf, _, err = filter.Append(w.buf, raw); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		if *h, err = batch.ParseHeader(w.buf[start:]); err != nil {
			return err
		}
	}
	w.index.add(h)
	if len(w.buf) < writeBytes {
		return nil
	}
	return w.spill()
}

// covered says whether this pass is the one that comes to the end of a batch: what its tombstones delete
// is gone once it has ended.
func (w *groupWriter) covered(h *batch.Header) bool {
	return h.Next() > w.done.Mark.End && h.Next() <= w.end
}

func (w *groupWriter) held(h *batch.Header) bool {
	return h.Idempotent() && w.log.producers.Holds(h.ProducerID, h.BaseOffset)
}

// weigh counts the records of a batch, those that stay, and the tombstones among these.
func (w *groupWriter) weigh(h *batch.Header, raw []byte) (kept, total, tombstones int, err error) {
	var r batch.Reader
	defer r.Close()
	r.Reset(raw, 0)
	for r.Next() {
		total++
		if w.keep(h, r.Record()) {
			kept++
			if r.Record().Value == nil && h.Attributes&batch.Control == 0 {
				tombstones++
			}
		}
	}
	return kept, total, tombstones, r.Err()
}

// keep says whether a record stays.
func (w *groupWriter) keep(h *batch.Header, r *batch.Record) bool {
	switch {
	case r.Offset >= w.end, h.Attributes&batch.Control != 0:
		return true
	case r.Offset < w.log.Start():
		return false
	case r.Key == nil, w.keys.superseded(r.Key, r.Offset):
		return false
	case r.Value == nil && !w.damaged:
		horizon, has := h.Horizon()
		return !has || topic.Millis(w.now.UnixMilli()) < horizon
	default:
		return true
	}
}

func (w *groupWriter) spill() error {
	if len(w.buf) == 0 {
		return nil
	}
	n, err := w.file.WriteAt(w.buf, w.written)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return w.log.failOrFull("Compact", "write "+w.file.Name(), err)
	}
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	if w.written-w.synced < syncBytes {
		return nil
	}
	return w.sync()
}

func (w *groupWriter) sync() error {
	if err := w.file.Sync(); err != nil {
		return w.log.fail("fsync "+w.file.Name(), err)
	}
	w.synced = w.written
	return nil
}

// flush makes the new file durable, if it is to be used.
func (w *groupWriter) flush() error {
	if err := w.spill(); err != nil {
		return err
	}
	if !w.changed && len(w.group) == 1 {
		return nil
	}
	if err := w.sync(); err != nil {
		return err
	}
	return w.close()
}

func (w *groupWriter) close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return w.log.fail("close "+w.stem()+cleanedSuffix, err)
	}
	return nil
}

// discard removes the new file.
func (w *groupWriter) discard() error {
	if err := w.close(); err != nil {
		return err
	}
	if err := w.log.fsys.Remove(w.stem() + cleanedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w.log.fail("remove "+w.stem()+cleanedSuffix, err)
	}
	return nil
}

// swap puts the new file in the place of the group, on disk and for readers.
func (w *groupWriter) swap() error {
	l, stem := w.log, w.stem()
	if err := l.fsys.Rename(stem+cleanedSuffix, stem+swapSuffix); err != nil {
		return l.fail("rename "+stem+cleanedSuffix, err)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	about := w.index.facts
	about.next = w.limit()
	fresh := l.segment(w.group[0].base, w.written)
	fresh.facts.Store(&about)
	fresh.index.loaded.Store(w.index.snapshot())

	l.structure.Lock()
	defer l.structure.Unlock()
	olds := make([]*segment, len(w.group))
	bases := make([]topic.Offset, len(w.group))
	var before int64
	for i, s := range w.group {
		// A reader that has the old file open goes on with it. One that comes later must not open the
		// new file by the same name, and look into it with the old index.
		s.log.remove()
		olds[i], bases[i] = s.segment, s.base
		before += s.bytes
	}
	if err := swapIn(l.fsys, l.dir, fresh.base, w.limit(), bases); err != nil {
		return l.fail("put "+stem+swapSuffix+" in place", err)
	}
	l.view.Store(l.view.Load().replace(olds, fresh))
	for _, old := range olds {
		old.index.forget()
	}
	l.files.keep(&fresh.index, fresh.index.loaded.Load().bytes())
	w.did.Segments += len(w.group)
	w.did.End = max(w.did.End, w.limit())
	w.did.Records += w.removed
	w.did.Bytes += before - w.written

	fresh.index.mu.Lock()
	defer fresh.index.mu.Unlock()
	return l.hint(fresh.saveIndex(about, w.index.snapshot(), false))
}
