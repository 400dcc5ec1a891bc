package batch

import (
	"encoding/binary"
	"math"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Options of a batch to build.
type Options struct {
	Codec Codec
	// Producer, when not nil, makes the batch idempotent.
	Producer *Producer
}

// Producer is who sends an idempotent batch, and the sequence number of its first record.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
}

// Builder builds one batch at the end of a buffer, record by record, without allocating once the
// buffer is large enough. The zero Builder is ready for [Builder.Reset].
type Builder struct {
	buf     []byte
	start   int // where the batch begins in buf
	options Options
	count   int32
	base    topic.Millis // timestamp of the first record
	largest topic.Millis
}

// Reset begins a batch behind the bytes of dst. With a dst of capacity for what is to come nothing is allocated.
func (b *Builder) Reset(dst []byte, o Options) {
	start := len(dst)
	var header [HeaderBytes]byte
	*b = Builder{buf: append(dst, header[:]...), start: start, options: o, largest: topic.NoTimestamp}
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size of the batch so far, header and all, before compression.
func (b *Builder) Size() int { return len(b.buf) - b.start }

// SizeWith is what Size will be after the record is appended. A finished batch is never larger than
// the last Size, so who cuts before SizeWith passes a limit stays under it.
func (b *Builder) SizeWith(r *topic.Record, timestamp topic.Millis) int {
	body := b.bodyBytes(r, timestamp)
	return b.Size() + varintBytes(int64(body)) + body
}

// Append adds a record with this timestamp, whatever its own is. Its bytes are copied.
func (b *Builder) Append(r *topic.Record, timestamp topic.Millis) {
	body := b.bodyBytes(r, timestamp)
	if b.count == 0 {
		b.base = timestamp
	}
	b.largest = max(b.largest, timestamp)
	buf := binary.AppendVarint(b.buf, int64(body))
	buf = append(buf, 0) // attributes
	buf = binary.AppendVarint(buf, int64(timestamp-b.base))
	buf = binary.AppendVarint(buf, int64(b.count))
	buf = appendBytes(buf, r.Key)
	buf = appendBytes(buf, r.Value)
	buf = binary.AppendVarint(buf, int64(len(r.Headers)))
	for i := range r.Headers {
		buf = binary.AppendVarint(buf, int64(len(r.Headers[i].Name)))
		buf = append(buf, r.Headers[i].Name...)
		buf = appendBytes(buf, r.Headers[i].Value)
	}
	b.buf = buf
	b.count++
}

// bodyBytes is the size of the record behind its length field, were it appended now.
func (b *Builder) bodyBytes(r *topic.Record, timestamp topic.Millis) int {
	var delta topic.Millis
	if b.count > 0 {
		delta = timestamp - b.base
	}
	n := 1 + varintBytes(int64(delta)) + varintBytes(int64(b.count)) +
		sizedBytes(r.Key) + sizedBytes(r.Value) + varintBytes(int64(len(r.Headers)))
	for i := range r.Headers {
		name := len(r.Headers[i].Name)
		n += varintBytes(int64(name)) + name + sizedBytes(r.Headers[i].Value)
	}
	return n
}

// Finish packs the records, seals the batch, and returns the dst of Reset with the batch behind it.
// Where packing does not make the batch smaller it stays plain. Its base offset is 0 and its leader
// epoch NoEpoch until it is stamped. The Builder needs a Reset before it can go on.
//
// A batch without records, or over 2 GiB, is an error of kind Internal: the caller has a defect.
func (b *Builder) Finish() ([]byte, error) {
	if b.count == 0 {
		return nil, fault.Newf("batch.Finish", fault.Internal, nil, "the batch has no records")
	}
	h := Header{
		LeaderEpoch:     topic.NoEpoch,
		Attributes:      Attributes(b.options.Codec),
		LastOffsetDelta: b.count - 1,
		BaseTimestamp:   b.base,
		MaxTimestamp:    b.largest,
		ProducerID:      NoProducerID,
		ProducerEpoch:   NoProducerEpoch,
		BaseSequence:    NoSequence,
		Count:           b.count,
	}
	if p := b.options.Producer; p != nil {
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = p.ID, p.Epoch, p.Sequence
	}
	buf, err := finish(b.buf, b.start, h)
	*b = Builder{}
	return buf, err
}

// finish makes a batch of buf[start:], which is room for a header and then plain records. It packs
// them as h.Attributes asks, if that makes them smaller, and fills in h with its length and checksum.
func finish(buf []byte, start int, h Header) ([]byte, error) {
	records := buf[start+HeaderBytes:]
	if codec := h.Codec(); codec != None {
		scratch := takeBuffer()
		defer giveBuffer(scratch)
		packed, err := pack((*scratch)[:0], records, codec)
		if err != nil {
			return nil, err
		}
		*scratch = packed
		if len(packed) < len(records) {
			copy(records, packed)
			buf = buf[:start+HeaderBytes+len(packed)]
		} else {
			h.Attributes &^= codecBits
		}
	}
	size := len(buf) - start
	if size-lengthStart > math.MaxInt32 {
		return nil, fault.Newf("batch.Finish", fault.Internal, nil, "the batch has %d bytes", size)
	}
	h.Length = int32(size - lengthStart)
	h.put(buf[start:])
	seal(buf[start:])
	return buf, nil
}

// put writes all fields but the checksum.
func (h *Header) put(b []byte) {
	_ = b[HeaderBytes-1]
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[atLength:], uint32(h.Length))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(h.LeaderEpoch))
	b[atMagic] = magic
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[atLastOffsetDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[atBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[atCount:], uint32(h.Count))
}

// appendBytes appends a length and bytes; nil is the length -1.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // zigzag of -1
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func sizedBytes(b []byte) int {
	return varintBytes(int64(len(b))) + len(b) // of nil: -1 takes a byte, as 0 does
}
