package batch

import (
	"iter"
	"math"
	"unsafe"

	"github.com/weirlog/weir/topic"
)

// Record is a record as it stands in a batch. Its slices are views: of the batch, or of the buffer
// that it was unpacked into.
type Record struct {
	Offset    topic.Offset
	Timestamp topic.Millis
	Key       []byte // nil: no key
	Value     []byte // nil: a tombstone
	Headers   Headers
}

// Bytes is the size of the record as limits count it; see [RecordBytes].
func (r *Record) Bytes() int { return len(r.Key) + len(r.Value) + r.Headers.bytes }

// Headers of a record, still in their encoded form, which is known to be sound.
type Headers struct {
	count int
	bytes int // of names and values together
	raw   []byte
}

// Len is the number of headers.
func (h Headers) Len() int { return h.count }

// All yields the names and values, in order. A nil value is null.
func (h Headers) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		at := 0
		for range h.count {
			var name, value []byte
			name, value, at = nextHeader(h.raw, at)
			if at < 0 || !yield(name, value) {
				return
			}
		}
	}
}

// Append appends the headers to dst. Names and values are views like those of [Headers.All].
func (h Headers) Append(dst []topic.Header) []topic.Header {
	for name, value := range h.All() {
		dst = append(dst, topic.Header{Name: unsafe.String(unsafe.SliceData(name), len(name)), Value: value})
	}
	return dst
}

// nextHeader reads the header at raw[at:] and returns where the next one is, or -1 when it is unsound.
func nextHeader(raw []byte, at int) (name, value []byte, next int) {
	n, at := varint(raw, at)
	if at < 0 || n < 0 || n > int64(len(raw)-at) {
		return nil, nil, -1
	}
	name = raw[at : at+int(n) : at+int(n)]
	n, at = varint(raw, at+int(n))
	if at < 0 || n < -1 || n > int64(len(raw)-at) {
		return nil, nil, -1
	}
	if n < 0 {
		return name, nil, at
	}
	return name, raw[at : at+int(n) : at+int(n)], at + int(n)
}

// Topic copies r, without its bytes, into dst, as a producer would hand it in. It reuses the room of dst.Headers.
func (r *Record) Topic(dst *topic.Record) {
	dst.Timestamp, dst.Key, dst.Value = r.Timestamp, r.Key, r.Value
	dst.Headers = r.Headers.Append(dst.Headers[:0])
}

// parseRecord reads the record that begins at b[at] and returns where the next one does. why is not
// empty when the record is unsound. Offset and Timestamp are left as deltas.
func parseRecord(b []byte, at int, r *Record) (next int, why string) {
	n, at := varint(b, at)
	if at < 0 || n < 0 || n > int64(len(b)-at) {
		return 0, "a record's length is unsound"
	}
	next = at + int(n)
	b = b[:next]
	if at == next {
		return 0, "a record is empty"
	}
	at++ // the record's attributes: unused, whatever they are
	timestamp, at := varint(b, at)
	if at < 0 {
		return 0, "a record's timestamp is unsound"
	}
	offset, at := varint(b, at)
	if at < 0 || offset < 0 || offset > math.MaxInt32 {
		return 0, "a record's offset is unsound"
	}
	n, at = varint(b, at)
	if at < 0 || n < -1 || n > int64(next-at) {
		return 0, "a record's key is unsound"
	}
	r.Key = nil
	if n >= 0 {
		r.Key = b[at : at+int(n) : at+int(n)]
		at += int(n)
	}
	n, at = varint(b, at)
	if at < 0 || n < -1 || n > int64(next-at) {
		return 0, "a record's value is unsound"
	}
	r.Value = nil
	if n >= 0 {
		r.Value = b[at : at+int(n) : at+int(n)]
		at += int(n)
	}
	n, at = varint(b, at)
	// A header takes two bytes at least.
	if at < 0 || n < 0 || n > int64(next-at)/2 {
		return 0, "the number of a record's headers is unsound"
	}
	r.Offset, r.Timestamp = topic.Offset(offset), topic.Millis(timestamp)
	r.Headers = Headers{count: int(n), raw: b[at:next:next]}
	for range n {
		var name, value []byte
		if name, value, at = nextHeader(b, at); at < 0 {
			return 0, "a record's header is unsound"
		}
		r.Headers.bytes += len(name) + len(value)
	}
	if at != next {
		return 0, "a record is longer than its fields"
	}
	return next, ""
}

// varint reads the zigzag number at b[at:] and returns where the next field is, or -1 when there is
// none or it does not fit an int64.
func varint(b []byte, at int) (v int64, next int) {
	if uint(at) < uint(len(b)) && b[at] < 0x80 {
		u := b[at]
		return int64(u>>1) ^ -int64(u&1), at + 1
	}
	return longVarint(b, at)
}

func longVarint(b []byte, at int) (v int64, next int) {
	if at < 0 {
		return 0, -1
	}
	var u uint64
	for shift := uint(0); at < len(b); shift += 7 {
		c := b[at]
		at++
		if c < 0x80 {
			if shift == 63 && c > 1 {
				return 0, -1
			}
			u |= uint64(c) << shift
			return int64(u>>1) ^ -int64(u&1), at
		}
		if shift == 63 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << shift
	}
	return 0, -1
}

// varintBytes is how many bytes v takes.
func varintBytes(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
