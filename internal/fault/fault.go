// Package fault gives errors a kind for the program and a sentence for the person.
//
// A [Kind] says what a caller may do about an error: whether the request was refused, whether its
// outcome is unknown, whether to try again. Callers ask for the kind with [Is] or [KindOf] and
// never look at the text. The gateway turns kinds into HTTP statuses and close codes in one place.
//
//	return fault.New("storage.Append", fault.Fenced, path,
//		fmt.Errorf("epoch %d is over, the leader is now in %d", got, l.epoch))
//
// prints "storage.Append orders/3: fenced: epoch 7 is over, the leader is now in 8".
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind is what a program needs to know of an error. The zero Kind is [Internal].
type Kind uint8

// The kinds. Each says one thing, and its String is the code that users see.
const (
	Internal        Kind = iota // a defect or a broken machine; never the caller's fault
	BadRequest                  // the request makes no sense as it stands
	InvalidJSON                 // a body or frame is not the JSON that was expected
	InvalidCursor               // a cursor cannot be read
	Validation                  // readable, but a field has a value that is not allowed
	Unauthorized                // nobody, or a credential that does not hold
	Forbidden                   // a known caller without the right
	NotFound                    // a thing that has no kind of its own here
	NoTopic                     // the topic does not exist
	NoPartition                 // the topic has no such partition
	NoGroup                     // the consumer group does not exist
	NoMember                    // the group has no such member
	TopicExists                 // a topic of this name exists
	GroupNotEmpty               // the group has members, and what was asked needs it to have none
	FencedMember                // the member's name was taken over: another process has it now
	StaleMember                 // nothing of a commit counted, its partitions are no longer the member's
	Superseded                  // another poll of the same member took this one's place
	OffsetMismatch              // If-Last-Offset: the log has moved on
	OffsetRange                 // no record is there; see topic.RangeError
	RecordTooLarge              // one record is over the limit of its topic
	RequestTooLarge             // a body, frame or batch is over its limit
	UnsupportedType             // a media type or content encoding that is not taken
	KeyReused                   // an idempotency key came back with other content
	Fenced                      // the caller acts for an epoch or session that is over
	OutOfSequence               // a producer's sequence number does not follow its last
	QuotaExceeded               // over a byte or request rate
	NotLeader                   // this node is not, or not yet, the one to ask
	Loading                     // the group's coordinator is still reading what was committed
	NotReplicated               // fewer in-sync replicas than min.insync.replicas
	StorageFull                 // too little room on disk to take more
	Overloaded                  // a queue or a memory budget is full
	Stopping                    // the node is shutting down; refused, another node or time will do
	Timeout                     // the wait ended; the outcome is unknown
	Corrupt                     // bytes on disk or on the wire are damaged
	Closed                      // the thing was closed by its owner
	Limit                       // a cap on the number of things is reached (topics, partitions)
	endOfKinds
)

var names = [endOfKinds]string{
	Internal: "internal", BadRequest: "bad_request", InvalidJSON: "invalid_json", InvalidCursor: "invalid_cursor",
	Validation: "validation_failed", Unauthorized: "token_invalid", Forbidden: "forbidden", NotFound: "not_found",
	NoTopic: "topic_not_found", NoPartition: "partition_not_found", NoGroup: "group_not_found", NoMember: "member_not_found",
	TopicExists: "topic_exists", GroupNotEmpty: "group_not_empty", FencedMember: "fenced_member",
	StaleMember: "stale_member_epoch", Superseded: "superseded_poll",
	OffsetMismatch: "offset_mismatch", OffsetRange: "offset_out_of_range", RecordTooLarge: "record_too_large",
	RequestTooLarge: "request_too_large", UnsupportedType: "unsupported_media_type", KeyReused: "idempotency_key_reused",
	Fenced: "fenced", OutOfSequence: "out_of_sequence", QuotaExceeded: "quota_exceeded", NotLeader: "not_leader", Loading: "coordinator_loading",
	NotReplicated: "not_enough_replicas", StorageFull: "storage_full", Overloaded: "overloaded", Stopping: "stopping",
	Timeout: "timeout", Corrupt: "corrupt", Closed: "closed", Limit: "limit_exceeded",
}

// String is the kind's code, as users see it in a problem document.
func (k Kind) String() string {
	if k < endOfKinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds returns every kind, so that a test can walk all of them.
func Kinds() []Kind {
	all := make([]Kind, endOfKinds)
	for k := range all {
		all[k] = Kind(k)
	}
	return all
}

// Retryable says that the same request may succeed later without a change. It was refused, or, for
// [Timeout], its outcome is unknown.
func (k Kind) Retryable() bool {
	switch k {
	case QuotaExceeded, NotLeader, Loading, NotReplicated, StorageFull, Overloaded, Stopping, Timeout:
		return true
	default:
		return false
	}
}

// Unknown says that the request may or may not have taken effect, now or later.
func (k Kind) Unknown() bool { return k == Timeout }

// Error is an error with a kind, the operation that failed and, where it helps, on what.
type Error struct {
	Op    string // "package.Operation"
	Kind  Kind
	Where string // "orders/3"; may be empty
	Err   error  // the sentence, or the error below; never nil
}

// New makes an Error. where may be nil, a string, or anything with a String method.
func New(op string, kind Kind, where any, err error) error {
	e := &Error{Op: op, Kind: kind, Err: err}
	if where != nil {
		e.Where = fmt.Sprint(where)
	}
	if e.Err == nil {
		e.Err = errors.New(kind.String())
	}
	return e
}

// Newf is [New] with the sentence made by fmt.Errorf.
func Newf(op string, kind Kind, where any, format string, args ...any) error {
	return New(op, kind, where, fmt.Errorf(format, args...))
}

// Error prints "op where: kind: sentence".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Where != "" {
		b.WriteByte(' ')
		b.WriteString(e.Where)
	}
	b.WriteString(": ")
	b.WriteString(e.Kind.String())
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of the outermost [Error] in err's chain. A context's deadline counts as
// [Timeout], its cancellation as [Closed], and every other foreign error as [Internal].
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Closed
	default:
		return Internal
	}
}

// Is says whether err is, or wraps, an error of this kind. A nil error has no kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// Sentence is the part of err that is meant for the caller: the text of the outermost [Error]'s
// cause without operation and kind. The text of an [Internal] error is not for callers; see the gateway.
func Sentence(err error) string {
	var e *Error
	for errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}
