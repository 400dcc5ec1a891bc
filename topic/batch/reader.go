package batch

import (
	"errors"
	"math"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Reader walks the records of one or several batches. The zero Reader is ready for [Reader.Reset]; it
// may be used again and again, by one goroutine at a time.
type Reader struct {
	rest    []byte // batches not yet begun
	from    topic.Offset
	header  Header
	records []byte // of the current batch, unpacked
	start   int    // where the current record begins in records
	at      int    // where the next one begins
	left    int32  // records of the current batch that are still to come
	last    topic.Offset
	buffer  *[]byte // what records were unpacked into, when they were packed
	record  Record
	err     error
}

// Reset begins at the first record of batches whose offset is from or above. The bytes must not
// change while they are read.
func (r *Reader) Reset(batches []byte, from topic.Offset) {
	buffer := r.buffer
	*r = Reader{rest: batches, from: from, buffer: buffer}
}

// Close gives back what the Reader borrowed. Records that it returned are not valid any more. The
// Reader can be used again after a Reset.
func (r *Reader) Close() {
	if r.buffer != nil {
		giveBuffer(r.buffer)
	}
	*r = Reader{}
}

// Next steps to the next record. It returns false at the end, and where something is unsound; see [Reader.Err].
func (r *Reader) Next() bool {
	for r.err == nil {
		if r.left == 0 {
			if !r.begin() {
				return false
			}
			continue
		}
		if !r.step() {
			return false
		}
		if r.record.Offset >= r.from {
			return true
		}
	}
	return false
}

// Record is the current one. It and its slices are valid until the next call of Next, Reset or Close.
func (r *Reader) Record() *Record { return &r.record }

// Header is that of the batch that the current record is in.
func (r *Reader) Header() *Header { return &r.header }

// Err is what stopped Next before the end of the batches: a fault of kind Corrupt, or RequestTooLarge
// where a batch unpacks to more than MostUnpackedBytes.
func (r *Reader) Err() error { return r.err }

// begin opens the next batch that may have records to return.
func (r *Reader) begin() bool {
	if r.at != len(r.records) {
		return r.fail("bytes follow its last record")
	}
	for len(r.rest) > 0 {
		var one []byte
		one, r.rest, r.err = Split(r.rest)
		if r.err != nil {
			return false
		}
		if r.header, r.err = ParseHeader(one); r.err != nil {
			return false
		}
		if r.header.Count == 0 || r.header.LastOffset() < r.from {
			continue
		}
		if r.records, r.err = r.unpack(one); r.err != nil {
			return false
		}
		r.at, r.left, r.last = 0, r.header.Count, topic.NoOffset
		return true
	}
	r.records, r.at = nil, 0
	return false
}

func (r *Reader) unpack(one []byte) ([]byte, error) {
	packed := one[HeaderBytes:]
	if r.header.Codec() == None {
		return packed, nil
	}
	if r.buffer == nil {
		r.buffer = takeBuffer()
	}
	var err error
	*r.buffer, err = unpack((*r.buffer)[:0], packed, r.header.Codec(), MostUnpackedBytes)
	return *r.buffer, err
}

// step reads the next record of the current batch.
func (r *Reader) step() bool {
	next, why := parseRecord(r.records, r.at, &r.record)
	if why != "" {
		return r.fail(why)
	}
	if why := place(&r.record, &r.header, r.last); why != "" {
		return r.fail(why)
	}
	r.start, r.at, r.last = r.at, next, r.record.Offset
	r.left--
	return true
}

func (r *Reader) fail(why string) bool {
	r.err = fault.New("batch.Reader", fault.Corrupt, r.header.BaseOffset, errors.New(why))
	return false
}

// place turns the deltas of a record that was just parsed into its offset and timestamp. last is the
// offset of the record before it in the batch, or NoOffset.
func place(r *Record, h *Header, last topic.Offset) (why string) {
	if r.Offset > topic.Offset(h.LastOffsetDelta) {
		return "a record's offset is above the batch's last"
	}
	r.Offset += h.BaseOffset
	if r.Offset <= last {
		return "the offsets of its records do not rise"
	}
	if h.Attributes&AppendTime != 0 {
		r.Timestamp = h.MaxTimestamp
		return ""
	}
	if r.Timestamp > 0 && h.BaseTimestamp > math.MaxInt64-r.Timestamp ||
		r.Timestamp < 0 && h.BaseTimestamp < math.MinInt64-r.Timestamp {
		return "a record's timestamp is too large"
	}
	r.Timestamp += h.BaseTimestamp
	return ""
}
