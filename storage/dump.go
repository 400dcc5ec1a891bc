package storage

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// DumpOptions of [Dump].
type DumpOptions struct {
	Batches bool         // a line per batch, not only per segment
	Records bool         // a line per record, under that of its batch
	From    topic.Offset // leave out batches that end at or below
}

// Dumped says what [Dump] found.
type Dumped struct {
	Segments int
	Batches  int64
	Records  int64
	Bytes    int64 // of sound batches
	Start    topic.Offset
	End      topic.Offset
	Problems int // places where the log itself is damaged
	Notes    int // files that do not fit and are rebuilt by the next start
}

// Dump verifies the log in dir and prints what it finds. It only reads, and needs neither a server nor
// an orderly close. Beside a running server the active end may look unfinished. The error is the file
// system's, or w's; damage is none, and is counted in Problems.
func Dump(fsys vfs.FS, dir string, w io.Writer, opts DumpOptions) (Dumped, error) {
	d := dump{fsys: fsys, dir: dir, out: bufio.NewWriter(w), opts: opts}
	err := d.run()
	return d.Dumped, errors.Join(err, d.out.Flush())
}

type dump struct {
	Dumped
	fsys vfs.FS
	dir  string
	out  *bufio.Writer
	opts DumpOptions

	floor floorMark
	known bool
	next  topic.Offset // behind the last sound batch
	epoch topic.Epoch
	seen  *epochs // as the batches have it
}

func (d *dump) line(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *dump) problem(format string, args ...any) {
	d.Problems++
	d.line("  DAMAGED "+format, args...)
}

func (d *dump) note(format string, args ...any) {
	d.Notes++
	d.line("  note: "+format, args...)
}

func (d *dump) run() error {
	entries, err := d.fsys.ReadDir(d.dir)
	if err != nil {
		return fault.New("storage.Dump", fault.NotFound, d.dir, err)
	}
	var bases []topic.Offset
	for _, e := range entries {
		if base, ok := parseSegmentName(e.Name()); ok {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	if len(bases) == 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == partitionName }) {
		return fault.Newf("storage.Dump", fault.NotFound, d.dir, "there is no partition's log in this directory")
	}
	d.seen, d.epoch = newEpochs(), topic.NoEpoch
	if err := d.head(bases); err != nil {
		return err
	}
	for i, base := range bases {
		if err := d.segment(bases, i); err != nil {
			return fault.New("storage.Dump", fault.Internal, segmentStem(d.dir, base)+logSuffix, err)
		}
	}
	if d.known && d.floor.End > max(d.next, d.Start) {
		d.problem("offsets %d to %d: they were synced, and the log ends before them", d.next, d.floor.End-1)
	}
	if err := d.tables(); err != nil {
		return err
	}
	d.End = max(d.next, d.Start)
	d.line("offsets %d to %d, %d segments, %d batches, %d records, %d bytes, %d damaged places, %d notes",
		d.Start, d.End, d.Segments, d.Batches, d.Records, d.Bytes, d.Problems, d.Notes)
	return nil
}

// head prints what the side files say of the log as a whole.
func (d *dump) head(bases []topic.Offset) error {
	var about partitionFile
	b, err := vfs.ReadFile(d.fsys, filepath.Join(d.dir, partitionName), 1<<16)
	if err == nil {
		err = json.Unmarshal(b, &about)
	}
	if err != nil {
		d.note("%s: %v", partitionName, err)
	} else {
		d.line("partition %s/%d, topic id %s", about.Topic, about.Partition, about.ID)
	}
	start, ok, err := readStart(d.fsys, d.dir)
	if err != nil {
		return err
	}
	if !ok && len(bases) > 0 {
		start = bases[0]
	}
	d.Start, d.next = start, start
	floor, err := openFloor(d.fsys, filepath.Join(d.dir, floorName))
	if err != nil {
		return err
	}
	d.floor, d.known = floor.Mark()
	if d.known {
		d.line("synced up to offset %d, byte %d of segment %d", d.floor.End, d.floor.Bytes, d.floor.Segment)
	} else if len(bases) > 0 {
		d.note("%s: not readable, so nobody knows what was synced", floorName)
	}
	mark, ok, err := readCleanMark(d.fsys, d.dir)
	switch {
	case err != nil:
		return err
	case ok:
		d.line("closed in order by incarnation %d at offset %d, epoch %d", mark.Incarnation, mark.Mark.End, mark.Mark.Epoch)
	case len(bases) > 0:
		d.line("not closed in order: in use, or left by a crash")
	}
	return nil
}

// segment verifies one segment.
func (d *dump) segment(bases []topic.Offset, i int) (err error) {
	base, last := bases[i], i == len(bases)-1
	stem := segmentStem(d.dir, base)
	f, err := d.fsys.Open(stem+logSuffix, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	d.Segments++
	d.line("segment %s: %d bytes", filepath.Base(stem), size)
	switch {
	case i == 0 && base > d.Start:
		d.problem("offsets %d to %d: there is no segment for them", d.Start, base-1)
	case i > 0 && base != d.next && base > d.Start:
		d.problem("offsets %d to %d: no segment has them", d.next, base-1)
	}
	limit := topic.Offset(math.MaxInt64)
	if !last {
		limit = bases[i+1]
	}
	w := walk{file: f, size: size, expect: base, limit: limit, closed: !last}
	defer w.close()
	x := newIndexer(base)
	d.next = base
	for {
		at := w.at
		h, raw, err := w.next()
		switch {
		case err == nil:
			x.add(&h)
			d.batch(&h, raw, at)
			continue
		case errors.Is(err, io.EOF):
		case errors.Is(err, errZeros) && last:
			if err := d.unfinished(&w, base, at, size); err != nil {
				return err
			}
		case isUnsound(err) && last && d.above(base, at):
			if err := d.unfinished(&w, base, at, size); err != nil {
				return err
			}
		case isUnsound(err):
			start := w.expect
			next, err := w.resync()
			if err != nil {
				return err
			}
			x.skip(w.at, next)
			if next == math.MaxInt64 {
				next = max(start, d.floor.End)
			}
			d.next = next
			d.problem("offsets %d to %d, bytes %d to %d: no sound batch", start, next-1, at, w.at-1)
			continue
		default:
			return err
		}
		break
	}
	return d.indexes(stem, &w, x)
}

// above says whether a place of the last segment is above the synced floor.
func (d *dump) above(base topic.Offset, at int64) bool {
	return !d.known || base > d.floor.Segment || base == d.floor.Segment && at >= d.floor.Bytes
}

// unfinished prints what stands behind the last batch of the log.
func (d *dump) unfinished(w *walk, base topic.Offset, at, size int64) error {
	if !d.above(base, at) {
		d.problem("bytes %d to %d: zeros, or the rest of a batch, below what was synced", at, size-1)
		return nil
	}
	for pos := at; pos < size; {
		b, err := w.bytes(pos, 1)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			break
		}
		if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			d.note("%d bytes from byte %d on are not a sound batch and were never acknowledged; the next start cuts them off", size-at, at)
			return nil
		}
		pos += int64(len(b))
	}
	d.line("  %d bytes of zeros, filled ahead", size-at)
	return nil
}

// batch prints one batch and takes note of it.
func (d *dump) batch(h *batch.Header, raw []byte, at int64) {
	d.next = h.Next()
	d.seen.Assign(h.LeaderEpoch, h.BaseOffset)
	d.Batches++
	d.Records += int64(h.Count)
	d.Bytes += int64(len(raw))
	if h.LeaderEpoch < d.epoch {
		d.problem("offset %d: epoch %d comes after epoch %d", h.BaseOffset, h.LeaderEpoch, d.epoch)
	}
	d.epoch = max(d.epoch, h.LeaderEpoch)
	if h.Next() <= d.opts.From {
		return
	}
	if d.opts.Batches || d.opts.Records {
		d.line("  batch %d to %d at byte %d: epoch %d, %d records, %d bytes, %s, to %s%s",
			h.BaseOffset, h.LastOffset(), at, h.LeaderEpoch, h.Count, len(raw), h.Codec(), clock(h.MaxTimestamp), producerOf(h))
	}
	if !d.opts.Records {
		return
	}
	var r batch.Reader
	defer r.Close()
	r.Reset(raw, d.opts.From)
	for r.Next() {
		record := r.Record()
		d.line("    %d %s key %s value %s%s", record.Offset, clock(record.Timestamp), text(record.Key), text(record.Value), headersOf(record))
	}
	if err := r.Err(); err != nil {
		d.problem("records of the batch at offset %d: %s", h.BaseOffset, fault.Sentence(err))
	}
}

// clock prints a time, or that there is none.
func clock(t topic.Millis) string {
	if t < 0 {
		return "none"
	}
	return time.UnixMilli(int64(t)).UTC().Format("2006-01-02T15:04:05.000Z")
}

func producerOf(h *batch.Header) string {
	if !h.Idempotent() {
		return ""
	}
	return fmt.Sprintf(", producer %d epoch %d sequence %d", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
}

// text prints bytes on one line, whatever they are.
func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.QuoteToASCII(string(b))
}

func headersOf(r *batch.Record) string {
	s := ""
	for name, value := range r.Headers.All() {
		s += fmt.Sprintf(" %s=%s", text(name), text(value))
	}
	if s != "" {
		s = " headers" + s
	}
	return s
}

// indexes compares the index files of a segment with its batches.
func (d *dump) indexes(stem string, w *walk, x *indexer) error {
	base := x.base
	offsets, offsetBody, ok, err := readIndexFile(d.fsys, stem+offsetIndex.suffix, offsetIndex, base)
	if err != nil {
		return err
	}
	times, _, okTimes, err := readIndexFile(d.fsys, stem+timeIndex.suffix, timeIndex, base)
	switch {
	case err != nil:
		return err
	case !ok || !okTimes:
		d.note("the indexes of segment %d are missing or not readable", base)
		return nil
	case offsets.covers != x.covers || times.covers != x.covers:
		d.note("the indexes of segment %d speak of %d bytes", base, offsets.covers)
	}
	wrong := 0
	for _, e := range decodeOffsets(offsetBody) {
		b, err := w.bytes(int64(e.pos), batch.HeaderBytes)
		if err != nil {
			return err
		}
		if h, err := batch.ParseHeader(b); err != nil || h.BaseOffset != base+topic.Offset(e.rel) {
			wrong++
		}
	}
	if wrong > 0 {
		d.note("%d of %d entries of the index of segment %d do not fit", wrong, offsets.count, base)
		return nil
	}
	d.line("  indexes: %d entries by offset, %d by time, newest record %s", offsets.count, times.count, clock(times.largest))
	return nil
}

// tables prints the epoch table and the producer tables.
func (d *dump) tables() error {
	table, err := loadEpochs(d.fsys, d.dir)
	switch {
	case missing(err):
		d.note("%s: %v", epochsName, err)
	case err != nil:
		return err
	default:
		for _, e := range table.load() {
			d.line("epoch %d begins at offset %d", e.Epoch, e.Start)
		}
		for _, e := range d.seen.load() {
			if at := table.EpochAt(e.Start); at != e.Epoch && d.known && e.Start < d.floor.End {
				d.note("%s: offset %d is of epoch %d, the table says %d", epochsName, e.Start, e.Epoch, at)
			}
		}
	}
	ends, err := listProducers(d.fsys, d.dir)
	if err != nil {
		return err
	}
	for _, end := range ends {
		if err := d.producers(end); err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) producers(end topic.Offset) error {
	name := producersName(end)
	b, err := readSmall(d.fsys, filepath.Join(d.dir, name), producersKind)
	var table *Producers
	var mark topic.Mark
	if err == nil {
		table, mark, err = decodeProducers(b, DefaultProducers(), time.Now())
	}
	if missing(err) || errors.Is(err, errUnreadable) {
		d.note("%s: %v", name, err)
		return nil
	}
	if err != nil {
		return err
	}
	plain, keyed := table.Len()
	d.line("producers up to offset %d: %d with an id, %d idempotency keys", mark.End, plain, keyed)
	return nil
}
