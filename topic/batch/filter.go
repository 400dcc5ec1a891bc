package batch

import (
	"encoding/binary"
	"errors"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Filter says what is to become of a batch that a compaction goes over.
type Filter struct {
	// Keep says whether a record stays. The record is a view that is valid during the call.
	Keep func(r *Record) bool
	// Horizon, unless 0, becomes the time from which on the tombstones of the batch may go.
	Horizon topic.Millis
}

// Append appends the batch b to dst without the records that are not to be kept, and says how many
// were. Offsets, the last offset, sequence numbers, the producer and the leader epoch stay as they
// are, also when no record is left: then the batch is a header that keeps their place. It is packed
// with the codec that it had. b must be one batch that was checked.
func (f Filter) Append(dst, b []byte) (out []byte, kept int, err error) {
	var r Reader
	defer r.Close()
	h, err := ParseHeader(b)
	if err != nil {
		return nil, 0, err
	}
	if h.Size() != len(b) {
		return nil, 0, fault.New("batch.Filter", fault.Corrupt, h.BaseOffset, errors.New("bytes follow the batch"))
	}
	start := len(dst)
	var room [HeaderBytes]byte
	out = append(dst, room[:]...)
	oldBase, largest := h.BaseTimestamp, topic.NoTimestamp
	if f.Horizon != 0 {
		h.Attributes |= HasHorizon
		h.BaseTimestamp = f.Horizon
	}
	r.Reset(b, 0)
	for r.Next() {
		if !f.Keep(&r.record) {
			continue
		}
		out = appendStored(out, &r, h.BaseTimestamp-oldBase)
		largest = max(largest, r.record.Timestamp)
		kept++
	}
	if r.Err() != nil {
		return nil, 0, r.Err()
	}
	// With no record left the largest timestamp stays: retention by time still goes by it.
	if kept > 0 && h.Attributes&AppendTime == 0 {
		h.MaxTimestamp = largest
	}
	h.Count = int32(kept)
	out, err = finish(out, start, h)
	return out, kept, err
}

// appendStored appends the current record of r, its timestamp now relative to a base that is later by shift.
func appendStored(dst []byte, r *Reader, shift topic.Millis) []byte {
	// Length, attributes, timestamp, then a tail that does not change.
	_, at := varint(r.records, r.start)
	attributes := r.records[at]
	delta, tailStart := varint(r.records, at+1)
	tail := r.records[tailStart:r.at]
	if shift == 0 {
		return append(dst, r.records[r.start:r.at]...)
	}
	delta -= int64(shift)
	dst = binary.AppendVarint(dst, int64(1+varintBytes(delta)+len(tail)))
	dst = append(dst, attributes)
	dst = binary.AppendVarint(dst, delta)
	return append(dst, tail...)
}
