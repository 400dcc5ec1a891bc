package storage

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

const (
	// mostBatchBytes bounds what a damaged length can make a reader read.
	mostBatchBytes = 64 << 20
	walkBytes      = 256 << 10 // read at once by a walk

	atMagic = 16 // where a batch has its magic number
	magic   = 2
)

// What a walk finds where a batch should begin, beside a batch.
var (
	errUnsound = errors.New("no sound batch")
	errZeros   = errors.New("a zero length") // ends the log in its last segment
)

// walk goes through the batches of one segment, in order, and checks each. The fields up to limit are
// set by who makes one; Close gives its buffer back.
type walk struct {
	file   io.ReaderAt
	size   int64        // bytes of the file that may hold batches
	at     int64        // where the next batch begins
	expect topic.Offset // the least base offset that it may have
	limit  topic.Offset // no batch ends above this offset
	closed bool         // the segment's last batch ends at limit
	// headers leaves the checksums alone, so that records need not be read.
	headers bool

	buf    []byte // bytes of the file from start on
	start  int64
	pooled *[]byte // what buf is a part of, when it is borrowed
}

var walkBuffers = sync.Pool{New: func() any { b := make([]byte, walkBytes); return &b }}

func (w *walk) close() {
	if w.pooled != nil {
		walkBuffers.Put(w.pooled)
	}
	w.buf, w.pooled = nil, nil
}

// bytes returns what the file has from byte at on: at least n bytes unless the walk's size ends
// before. They are valid until the next call.
func (w *walk) bytes(at int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.size-at))
	if n <= 0 {
		return nil, nil
	}
	if at >= w.start && at+int64(n) <= w.start+int64(len(w.buf)) {
		return w.buf[at-w.start:], nil
	}
	if w.pooled == nil {
		w.pooled = walkBuffers.Get().(*[]byte)
	}
	into := *w.pooled
	if n > len(into) {
		into = make([]byte, n)
	}
	into = into[:min(int64(len(into)), w.size-at)]
	got, err := readUpTo(w.file, into, at)
	if err != nil {
		return nil, err
	}
	w.buf, w.start = into[:got], at
	return w.buf, nil
}

// readUpTo reads into b and returns how much there was; the end of the file is no error.
func readUpTo(f io.ReaderAt, b []byte, at int64) (int, error) {
	n, err := f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// header reads the header of the batch at the walk's place and checks it against its surroundings.
func (w *walk) header() (batch.Header, error) {
	if w.at >= w.size {
		return batch.Header{}, io.EOF
	}
	b, err := w.bytes(w.at, batch.HeaderBytes)
	if err != nil {
		return batch.Header{}, err
	}
	if len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == 0 {
		return batch.Header{}, errZeros
	}
	h, err := batch.ParseHeader(b)
	if err != nil || !w.fits(&h, w.at) {
		return batch.Header{}, errUnsound
	}
	if h.BaseOffset > w.expect {
		if ok, err := w.hole(&h); err != nil {
			return batch.Header{}, err
		} else if !ok {
			return batch.Header{}, errUnsound
		}
	}
	return h, nil
}

// hole says whether a batch that leaves offsets out before it can be right: compaction does that, and
// so does a flipped bit in the base offset, which no checksum covers. Then the next batch begins too early.
func (w *walk) hole(h *batch.Header) (ok bool, err error) {
	at := w.at + int64(h.Size())
	if at >= w.size {
		return !w.closed || h.Next() == w.limit, nil
	}
	b, err := w.bytes(at, batch.HeaderBytes)
	if err != nil {
		return false, err
	}
	next, err := batch.ParseHeader(b)
	if err != nil {
		return !w.closed, nil // what follows does not tell
	}
	return next.BaseOffset >= h.Next(), nil
}

// fits says whether a header can stand at a place of the file: the checksum does not cover what says so.
func (w *walk) fits(h *batch.Header, at int64) bool {
	return h.Size() <= mostBatchBytes && at+int64(h.Size()) <= w.size && h.BaseOffset >= w.expect && h.Next() <= w.limit
}

// peek reads the batch at the walk's place and checks it. The bytes are valid until the next call, and
// absent from a walk through headers. The error is io.EOF at the end, errZeros or errUnsound when
// something else than a batch is there, and otherwise the file's.
func (w *walk) peek() (batch.Header, []byte, error) {
	h, err := w.header()
	if err != nil || w.headers {
		return h, nil, err
	}
	raw, err := w.bytes(w.at, h.Size())
	if err != nil {
		return batch.Header{}, nil, err
	}
	if _, err := batch.Check(raw); err != nil {
		return batch.Header{}, nil, errUnsound
	}
	return h, raw[:h.Size():h.Size()], nil
}

// pass moves behind a batch.
func (w *walk) pass(h *batch.Header) {
	w.at += int64(h.Size())
	w.expect = h.Next()
}

// next is peek and pass.
func (w *walk) next() (batch.Header, []byte, error) {
	h, raw, err := w.peek()
	if err == nil {
		w.pass(&h)
	}
	return h, raw, err
}

// soundAt says whether a sound batch begins at a place.
func (w *walk) soundAt(at int64) (batch.Header, bool, error) {
	b, err := w.bytes(at, batch.HeaderBytes)
	if err != nil {
		return batch.Header{}, false, err
	}
	h, err := batch.ParseHeader(b)
	if err != nil || !w.fits(&h, at) {
		return batch.Header{}, false, nil
	}
	if b, err = w.bytes(at, h.Size()); err != nil {
		return batch.Header{}, false, err
	}
	_, err = batch.Check(b)
	return h, err == nil, nil
}

// resync moves from an unsound place to the next sound batch, and returns that batch's base offset:
// what lies between expect and it is damaged. Without a sound batch it moves to the end and returns limit.
func (w *walk) resync() (topic.Offset, error) {
	// Mostly the header is right and the records are not: the next batch begins where it says.
	if h, err := w.header(); err == nil {
		next, ok, err := w.soundAt(w.at + int64(h.Size()))
		if err != nil {
			return 0, err
		}
		if ok && next.BaseOffset >= h.Next() {
			w.at += int64(h.Size())
			w.expect = next.BaseOffset
			return next.BaseOffset, nil
		}
	} else if !errors.Is(err, errUnsound) && !errors.Is(err, errZeros) && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return w.search()
}

// search looks at every byte from the walk's place on. What it checks is bounded: bytes that were made to look
// like the headers of large batches end it early.
func (w *walk) search() (topic.Offset, error) {
	budget := 16*w.size + mostBatchBytes
	for at := w.at + 1; at+batch.HeaderBytes <= w.size && budget > 0; {
		b, err := w.bytes(at, batch.HeaderBytes)
		if err != nil {
			return 0, err
		}
		if len(b) < batch.HeaderBytes {
			break // the file is shorter than it should be
		}
		i := w.candidate(b)
		at += int64(i)
		if i+batch.HeaderBytes > len(b) {
			continue
		}
		h, ok, err := w.soundAt(at)
		if err != nil {
			return 0, err
		}
		if ok {
			w.at, w.expect = at, h.BaseOffset
			return h.BaseOffset, nil
		}
		if size, err := batch.Size(b[i:]); err == nil && size <= mostBatchBytes {
			budget -= int64(size)
		}
		at++
	}
	w.at, w.expect = w.size, w.limit
	return w.limit, nil
}

// candidate is the first place in b that could begin a batch, or one so near to the end of b that it
// cannot be told.
func (w *walk) candidate(b []byte) int {
	i := 0
	for ; i+batch.HeaderBytes <= len(b); i++ {
		if b[i+atMagic] != magic {
			continue
		}
		if base := topic.Offset(binary.BigEndian.Uint64(b[i:])); base >= w.expect && base < w.limit {
			return i
		}
	}
	return i
}

// load reads n bytes from byte at on, or what there is, into a buffer of the caller's own.
func (w *walk) load(at int64, n int) error {
	w.close()
	n = int(max(0, min(int64(n), w.size-at)))
	buf := make([]byte, n)
	got, err := readUpTo(w.file, buf, at)
	w.buf, w.start = buf[:got], at
	return err
}

// buffered says whether the batch at the walk's place is in its buffer as a whole.
func (w *walk) buffered(h *batch.Header) bool {
	return w.at+int64(h.Size()) <= w.start+int64(len(w.buf))
}

func isUnsound(err error) bool { return errors.Is(err, errUnsound) || errors.Is(err, errZeros) }
