package batch

import (
	"errors"
	"hash/crc32"
	"iter"
	"unicode/utf8"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Split cuts the first batch off b. It looks at the size alone.
func Split(b []byte) (one, rest []byte, err error) {
	size, err := Size(b)
	if err != nil {
		return nil, b, err
	}
	if size > len(b) {
		return nil, b, fault.New("batch.Split", fault.Corrupt, nil, ErrShort)
	}
	return b[:size:size], b[size:], nil
}

// All yields the batches that stand in b, one after the other. It looks at sizes alone, and ends with
// an error when the last batch is not whole.
func All(b []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for len(b) > 0 {
			var one []byte
			var err error
			if one, b, err = Split(b); !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// Check reads the header of the batch that b begins with, and checks it and the checksum. It does not
// look at the records. b may go on behind the batch.
func Check(b []byte) (Header, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Header{}, err
	}
	if h.Size() > len(b) {
		return Header{}, fault.New("batch.Check", fault.Corrupt, h.BaseOffset, ErrShort)
	}
	if got := crc32.Checksum(b[atAttributes:h.Size()], castagnoli); got != h.CRC {
		return Header{}, fault.Newf("batch.Check", fault.Corrupt, h.BaseOffset, "the checksum is %08x and should be %08x", got, h.CRC)
	}
	return h, nil
}

// Mode says what [Validate] lets pass.
type Mode int8

// The modes.
const (
	// Fresh is for a batch from a producer: at least one record, offset deltas 0, 1, 2 and so on, and
	// no attribute that only the log itself or a coordinator sets.
	Fresh Mode = iota
	// Stored is for a batch from a log: compaction may have taken records out, all of them even.
	Stored
)

// Facts are what [Validate] learned of a batch.
type Facts struct {
	Header
	RecordsBytes  int          // all records, unpacked
	LargestRecord int          // bytes of the largest record, as limits count them
	MaxTimestamp  topic.Millis // largest timestamp of a record, which a careless client's header may not have; NoTimestamp without records
	Keyless       bool         // at least one record has no key
}

// Validate checks everything about the one batch that b is: header, checksum, codec, sizes, and each
// record. Over a limit it returns a fault of kind RequestTooLarge or RecordTooLarge, for an attribute
// that a producer may not set Validation, for all else Corrupt.
func Validate(b []byte, mode Mode, limits Limits) (Facts, error) {
	h, err := Check(b)
	if err != nil {
		return Facts{}, err
	}
	bad := func(kind fault.Kind, why string) (Facts, error) {
		return Facts{}, fault.New("batch.Validate", kind, h.BaseOffset, errors.New(why))
	}
	if h.Size() != len(b) {
		return bad(fault.Corrupt, "bytes follow the batch")
	}
	if limits.BatchBytes > 0 && len(b) > limits.BatchBytes {
		return Facts{}, fault.Newf("batch.Validate", fault.RequestTooLarge, nil, "the batch has %d bytes, at most %d are allowed", len(b), limits.BatchBytes)
	}
	if h.Attributes&^knownBits != 0 {
		return bad(fault.Corrupt, "it has an unknown attribute")
	}
	if mode == Fresh {
		if kind, why := h.notFresh(); why != "" {
			return bad(kind, why)
		}
	}
	records := b[HeaderBytes:]
	if h.Codec() != None {
		buffer := takeBuffer()
		defer giveBuffer(buffer)
		if *buffer, err = unpack((*buffer)[:0], records, h.Codec(), limits.unpacked(len(records))); err != nil {
			return Facts{}, err
		}
		records = *buffer
	}
	return walk(h, records, mode, limits)
}

// notFresh says what a producer's batch must not have, or "".
func (h *Header) notFresh() (fault.Kind, string) {
	switch {
	case h.Count == 0:
		return fault.Corrupt, "it has no records"
	case h.LastOffsetDelta != h.Count-1:
		return fault.Corrupt, "the last offset does not fit the number of records"
	case h.Attributes&(Control|HasHorizon) != 0:
		return fault.Validation, "a producer may not set these attributes"
	case h.Attributes&Transactional != 0:
		return fault.Validation, "transactions are not supported"
	default:
		return 0, ""
	}
}

// walk goes through the unpacked records of a batch.
func walk(h Header, records []byte, mode Mode, limits Limits) (Facts, error) {
	facts := Facts{Header: h, RecordsBytes: len(records), MaxTimestamp: topic.NoTimestamp}
	bad := func(why string) (Facts, error) {
		return Facts{}, fault.New("batch.Validate", fault.Corrupt, h.BaseOffset, errors.New(why))
	}
	var r Record
	at, last := 0, topic.NoOffset
	for i := range h.Count {
		next, why := parseRecord(records, at, &r)
		if why != "" {
			return bad(why)
		}
		if mode == Fresh && r.Offset != topic.Offset(i) {
			return bad("the offsets of its records are not 0, 1, 2 and so on")
		}
		if why := place(&r, &h, last); why != "" {
			return bad(why)
		}
		if mode == Fresh && r.Timestamp < topic.NoTimestamp {
			return bad("a record's timestamp is negative")
		}
		if mode == Fresh && !utf8Names(r.Headers) {
			return bad("the name of a record's header is not UTF-8")
		}
		if limits.RecordBytes > 0 && r.Bytes() > limits.RecordBytes {
			return Facts{}, fault.Newf("batch.Validate", fault.RecordTooLarge, nil, "record %d has %d bytes, at most %d are allowed", i, r.Bytes(), limits.RecordBytes)
		}
		facts.LargestRecord = max(facts.LargestRecord, r.Bytes())
		facts.MaxTimestamp = max(facts.MaxTimestamp, r.Timestamp)
		facts.Keyless = facts.Keyless || r.Key == nil
		at, last = next, r.Offset
	}
	if at != len(records) {
		return bad("bytes follow its last record")
	}
	return facts, nil
}

func utf8Names(headers Headers) bool {
	for name := range headers.All() {
		if !utf8.Valid(name) {
			return false
		}
	}
	return true
}
