package batch

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/weirlog/weir/topic"
)

// The functions of this file change a batch in place. They panic when b is shorter than a header, and
// expect one batch, whole, that [Check] or [Validate] passed or a [Builder] built.

// Stamp gives the batch its place in the log. Both fields stand outside of the checksum, which stays valid.
func Stamp(b []byte, base topic.Offset, epoch topic.Epoch) {
	_ = b[HeaderBytes-1]
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}

// SetAppendTime gives every record the timestamp now, for topics with LogAppendTime, and renews the checksum.
func SetAppendTime(b []byte, now topic.Millis) {
	_ = b[HeaderBytes-1]
	attributes := Attributes(binary.BigEndian.Uint16(b[atAttributes:]))
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(attributes|AppendTime))
	SetMaxTimestamp(b, now)
}

// SetMaxTimestamp corrects the largest timestamp, which some clients do not compute, to the one that
// [Validate] found, and renews the checksum.
func SetMaxTimestamp(b []byte, largest topic.Millis) {
	_ = b[HeaderBytes-1]
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(largest))
	seal(b)
}

// SetProducer says who sent the batch, and renews the checksum.
func SetProducer(b []byte, id int64, epoch int16, sequence int32) {
	_ = b[HeaderBytes-1]
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(sequence))
	seal(b)
}

// seal renews the checksum.
func seal(b []byte) {
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
}
