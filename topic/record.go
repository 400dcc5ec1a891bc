package topic

import (
	"fmt"
	"time"

	"github.com/weirlog/weir/internal/fault"
)

// Header of a record. Order and duplicates are kept; a nil Value is null.
type Header struct {
	Name  string
	Value []byte
}

// Record is what a producer hands in.
//
// Its byte slices and header names may be views of a buffer that the producer reuses: whoever keeps
// them past the call that got them makes a copy.
type Record struct {
	Partition Partition // AnyPartition leaves the choice to the partitioner
	Timestamp Millis    // NoTimestamp takes the node's clock
	Key       []byte    // nil: no key
	Value     []byte    // nil: a tombstone; empty: an empty value
	Headers   []Header
}

// Stored says what became of one record. Err nil: it is at Partition and Offset.
type Stored struct {
	Partition Partition // AnyPartition when the record was refused before one was chosen
	Offset    Offset    // NoOffset unless stored
	Timestamp Millis
	Duplicate bool // an earlier request with the same idempotency key, or sequence, had stored it
	Err       error
}

// Acks says when a produce call is answered.
type Acks int8

// The three levels, with the numbers of Kafka's protocol.
const (
	AcksAll    Acks = -1 // the high watermark passed the record: every in-sync replica has it on disk
	AcksNone   Acks = 0  // the record was handed to the leader
	AcksLeader Acks = 1  // the leader wrote it, but has perhaps not synced it
)

// ParseAcks reads "all", "leader" or "none"; "" is all, and Kafka's -1, 1 and 0 are understood.
func ParseAcks(s string) (Acks, error) {
	switch s {
	case "", "all", "-1":
		return AcksAll, nil
	case "leader", "1":
		return AcksLeader, nil
	case "none", "0":
		return AcksNone, nil
	default:
		return 0, fault.Newf("topic.ParseAcks", fault.Validation, nil, "acks %s: must be all, leader or none", quote(s))
	}
}

// String is the word that [ParseAcks] reads.
func (a Acks) String() string {
	switch a {
	case AcksAll:
		return "all"
	case AcksLeader:
		return "leader"
	case AcksNone:
		return "none"
	default:
		return fmt.Sprintf("acks(%d)", int8(a))
	}
}

// Append is one produce call to one topic: one append per partition, in the order of Records.
type Append struct {
	Topic     Name
	Records   []Record
	Acks      Acks
	Principal string // who produces: "User:alice", or Anonymous

	// IdempotencyKey, when not empty, makes a repeat of the same call store only what is missing.
	IdempotencyKey string
	// Keyed carries an idempotent request that is handed over in several calls (a streamed body). The
	// first call gets a new(KeyedStream), the next ones the same; nil when the request is one call.
	Keyed *KeyedStream

	// IfLast, when not nil, refuses the call with OffsetMismatch unless the last offset of the one
	// partition that it names is this one; -1 asks for an empty log.
	IfLast *Offset

	// Results has the length of Records and is filled in by the call.
	Results []Stored
}

// KeyedStream is what an idempotent request carries from one call to its next: how many records it
// has appended to each partition, which is where the next call's sequence numbers go on.
// The broker owns the content; it is not safe for concurrent use.
type KeyedStream struct {
	Sequences  map[Partition]int32
	Partitions int32 // the number of partitions that its records are spread over; 0 before the first call
}

// Anonymous is the principal of a caller that nobody asked to say who they are.
const Anonymous = "User:ANONYMOUS"

// Fetch asks for the records of one partition from an offset on.
type Fetch struct {
	Topic     Name
	ID        ID // the zero ID takes whatever life the topic has now
	Partition Partition
	Offset    Offset
	// LastEpoch is the epoch of the record before Offset as the reader saw it, or NoEpoch. When the
	// log now has another there it was cut, and the answer is a RangeError with reason Truncated.
	LastEpoch Epoch
	MaxBytes  int           // of whole batches; at least one batch is returned whatever its size
	MinBytes  int           // wait for this much, 0 and 1 for anything at all
	Wait      time.Duration // the longest wait for MinBytes; 0 answers at once
}

// Gap is a range of offsets that is not there any more. Start is its first offset, End the one after
// its last.
type Gap struct {
	Partition Partition
	Start     Offset
	End       Offset
	Reason    GapReason
}

// GapReason says why records are missing, or why an offset is out of range.
type GapReason string

// The reasons.
const (
	Retention GapReason = "retention"  // deleted by age, size or request
	Damaged   GapReason = "damaged"    // the bytes on disk were unsound
	BeyondEnd GapReason = "beyond_end" // above the high watermark
	Truncated GapReason = "truncated"  // the log was cut below what the reader had read
	Recreated GapReason = "recreated"  // the topic was deleted, and made again under its name
)

// Fetched is a piece of a log.
type Fetched struct {
	ID ID
	// Batches is whole RecordBatch v2s, one after the other, verified, all below HighWatermark. It is
	// shared with other readers: nobody writes to it. The first batch may begin before the offset
	// that was asked for, when that lies inside it.
	Batches []byte
	// Next is where to go on: behind the last batch, and behind any gap or compacted range that was
	// stepped over. It equals the offset asked for only when there was nothing to return.
	Next          Offset
	Gaps          []Gap // damaged ranges that lie between the offset asked for and Next
	LogStart      Offset
	HighWatermark Offset
	LeaderEpoch   Epoch
}

// Bounds of a partition as a reader may see it.
type Bounds struct {
	LogStart      Offset
	HighWatermark Offset
	LeaderEpoch   Epoch
	// Rewrites counts the passes of compaction that took something away, on this node and since it
	// started. A copy of records that was made under another count may hold some that are gone.
	Rewrites int64
}

// RangeError is the cause of a fault of kind OffsetRange: it says where the log is.
type RangeError struct {
	Path   Path
	Offset Offset // what was asked for
	Reason GapReason
	Bounds Bounds
	// ResumeAt is the first offset that a reader who wants to go on without a silent jump can take:
	// the log's start for Retention, the end of the matching part for Truncated.
	ResumeAt Offset
}

// Error is a sentence for the caller.
func (e *RangeError) Error() string {
	switch e.Reason {
	case Retention:
		return fmt.Sprintf("offset %d of %s is below the log's start, which is at %d: retention or a request deleted what was there", e.Offset, e.Path, e.Bounds.LogStart)
	case Truncated:
		return fmt.Sprintf("%s was cut below offset %d after you read it, go on at %d", e.Path, e.Offset, e.ResumeAt)
	case BeyondEnd:
		return fmt.Sprintf("offset %d is beyond the end of %s, which is at %d", e.Offset, e.Path, e.Bounds.HighWatermark)
	default:
		return fmt.Sprintf("offset %d of %s is not there (%s)", e.Offset, e.Path, e.Reason)
	}
}
