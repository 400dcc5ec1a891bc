package batch

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// HeaderBytes is the size of a batch without records, and the least size of any batch.
const HeaderBytes = 61

// Where the fields of a header stand. All numbers are big endian.
const (
	atBaseOffset      = 0
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21 // the checksum covers everything from here on
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	lengthStart = 12 // the length field counts from here
	magic       = 2
)

// The producer fields of a batch whose producer is not idempotent.
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
)

// ErrShort is in the chain of the error when bytes end before their batch does. What is there may be
// sound: a reader of a longer piece can go on.
var ErrShort = errors.New("the bytes end inside a batch")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Codec is how the records of a batch are packed, with the numbers of Kafka's format.
type Codec int8

// The codecs.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// CodecOf is the codec in which weir builds batches for a topic with this setting.
func CodecOf(c topic.Compression) Codec {
	switch c {
	case topic.CompressionGzip:
		return Gzip
	case topic.CompressionSnappy:
		return Snappy
	case topic.CompressionLZ4:
		return LZ4
	case topic.CompressionZstd:
		return Zstd
	default:
		return None
	}
}

// String is the codec's name in compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	default:
		return "unknown"
	}
}

// Attributes of a batch.
type Attributes int16

// The bits of Attributes. The lowest three are the codec; those not named here are unused.
const (
	codecBits     Attributes = 0b111
	AppendTime    Attributes = 1 << 3 // every record's timestamp is the batch's MaxTimestamp
	Transactional Attributes = 1 << 4
	Control       Attributes = 1 << 5 // its records are markers of a transaction
	HasHorizon    Attributes = 1 << 6 // BaseTimestamp is when the batch's tombstones may go
	knownBits                = codecBits | AppendTime | Transactional | Control | HasHorizon
)

// Codec of the records.
func (a Attributes) Codec() Codec { return Codec(a & codecBits) }

// Header is what stands before the records of a batch.
type Header struct {
	BaseOffset      topic.Offset
	Length          int32 // bytes of the batch after the length field; see [Header.Size]
	LeaderEpoch     topic.Epoch
	CRC             uint32 // CRC-32C of everything from the attributes on
	Attributes      Attributes
	LastOffsetDelta int32        // the last offset is BaseOffset + LastOffsetDelta, also when that record was compacted away
	BaseTimestamp   topic.Millis // records have theirs relative to it
	MaxTimestamp    topic.Millis
	ProducerID      int64 // NoProducerID when not idempotent
	ProducerEpoch   int16
	BaseSequence    int32 // of the record at BaseOffset
	Count           int32 // records; fewer than LastOffsetDelta+1 after compaction
}

// Size of the whole batch in bytes.
func (h *Header) Size() int { return lengthStart + int(h.Length) }

// LastOffset is the offset of the last record, or of where it was before compaction.
func (h *Header) LastOffset() topic.Offset { return h.BaseOffset + topic.Offset(h.LastOffsetDelta) }

// Next is the offset after the last.
func (h *Header) Next() topic.Offset { return h.LastOffset() + 1 }

// Codec of the records.
func (h *Header) Codec() Codec { return h.Attributes.Codec() }

// Idempotent says that the batch carries a producer id, and so an epoch and a sequence.
func (h *Header) Idempotent() bool { return h.ProducerID >= 0 }

// LastSequence is the sequence number of the record at LastOffset. Sequence numbers go on at 0 after
// the largest int32.
func (h *Header) LastSequence() int32 { return AddSequence(h.BaseSequence, h.LastOffsetDelta) }

// Horizon is the time from which on the batch's tombstones may be dropped, when compaction has set one.
func (h *Header) Horizon() (topic.Millis, bool) {
	return h.BaseTimestamp, h.Attributes&HasHorizon != 0
}

// AddSequence is the sequence number n records after s. Both are not negative.
func AddSequence(s, n int32) int32 { return int32((int64(s) + int64(n)) & math.MaxInt32) }

// Size reads the size in bytes of the batch that b begins with, from its first 12 bytes; b may be
// shorter than the batch. It checks nothing but that the size is possible.
func Size(b []byte) (int, error) {
	if len(b) < lengthStart {
		return 0, fault.New("batch.Size", fault.Corrupt, nil, ErrShort)
	}
	length := int32(binary.BigEndian.Uint32(b[atLength:]))
	if length < HeaderBytes-lengthStart {
		return 0, fault.Newf("batch.Size", fault.Corrupt, nil, "batch length %d is less than a header's", length)
	}
	return lengthStart + int(length), nil
}

// ParseHeader reads the header that b begins with; b may be shorter than the batch. It checks the
// magic number and that each field has a possible value, and not the checksum.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, fault.New("batch.ParseHeader", fault.Corrupt, nil, ErrShort)
	}
	h := Header{
		BaseOffset:      topic.Offset(binary.BigEndian.Uint64(b[atBaseOffset:])),
		Length:          int32(binary.BigEndian.Uint32(b[atLength:])),
		LeaderEpoch:     topic.Epoch(binary.BigEndian.Uint32(b[atLeaderEpoch:])),
		CRC:             binary.BigEndian.Uint32(b[atCRC:]),
		Attributes:      Attributes(binary.BigEndian.Uint16(b[atAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[atLastOffsetDelta:])),
		BaseTimestamp:   topic.Millis(binary.BigEndian.Uint64(b[atBaseTimestamp:])),
		MaxTimestamp:    topic.Millis(binary.BigEndian.Uint64(b[atMaxTimestamp:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[atProducerID:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[atProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[atBaseSequence:])),
		Count:           int32(binary.BigEndian.Uint32(b[atCount:])),
	}
	if b[atMagic] != magic {
		return Header{}, fault.Newf("batch.ParseHeader", fault.Corrupt, nil, "magic number %d, only %d is known", b[atMagic], magic)
	}
	if why := h.impossible(); why != "" {
		return Header{}, fault.New("batch.ParseHeader", fault.Corrupt, nil, errors.New(why))
	}
	return h, nil
}

// impossible says what no sound header has, or "".
func (h *Header) impossible() string {
	switch {
	case h.Length < HeaderBytes-lengthStart:
		return "the length is less than a header's"
	case h.BaseOffset < 0:
		return "the base offset is negative"
	case h.LeaderEpoch < topic.NoEpoch:
		return "the leader epoch is negative"
	case h.LastOffsetDelta < 0:
		return "the last offset delta is negative"
	case h.BaseOffset > math.MaxInt64-1-topic.Offset(h.LastOffsetDelta):
		return "the last offset is too large"
	case h.Count < 0:
		return "the number of records is negative"
	case int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return "it has more records than offsets"
	case h.Codec() > Zstd:
		return "the codec is not known"
	case h.ProducerID < NoProducerID:
		return "the producer id is negative"
	case h.ProducerID >= 0 && (h.ProducerEpoch < 0 || h.BaseSequence < 0):
		return "it has a producer id without an epoch and a sequence"
	default:
		return ""
	}
}
