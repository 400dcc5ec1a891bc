package session

import (
	"strconv"
	"strings"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// From says where a reader begins. The zero From is the beginning of the log.
type From struct {
	Kind    FromKind
	Time    topic.Millis                     // for Time
	Last    int64                            // for Last
	Offsets map[topic.Partition]topic.Offset // for Offsets
	Cursor  topic.Cursor                     // for Cursor
}

// FromKind is a way to say where a reader begins.
type FromKind int8

// The ways.
const (
	Earliest FromKind = iota // the log's start
	Latest                   // the high watermark of the moment
	Time                     // the first record with a timestamp at or after From.Time
	Last                     // the last From.Last offsets of each partition
	Offsets                  // an offset for each partition that is read
	Cursor                   // where an earlier reader stopped
)

// ParseFrom reads a position as it stands in a query: earliest, latest, ts:<ms or RFC 3339>, -<n> or a cursor. Empty
// text is Earliest.
func ParseFrom(s string) (From, error) {
	switch {
	case s == "" || s == "earliest":
		return From{Kind: Earliest}, nil
	case s == "latest":
		return From{Kind: Latest}, nil
	case strings.HasPrefix(s, "ts:"):
		at, err := topic.ParseMillis(s[len("ts:"):])
		if err != nil {
			return From{}, badFrom(s)
		}
		return From{Kind: Time, Time: at}, nil
	case strings.HasPrefix(s, "-"):
		n, err := strconv.ParseInt(s[1:], 10, 64)
		if err != nil || n < 1 {
			return From{}, badFrom(s)
		}
		return From{Kind: Last, Last: n}, nil
	case strings.HasPrefix(s, "c"):
		return ParseCursor(s)
	default:
		return From{}, badFrom(s)
	}
}

func badFrom(s string) error {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fault.Newf("session.ParseFrom", fault.Validation, nil,
		"position %q: must be earliest, latest, ts:<milliseconds since 1970, or RFC 3339>, -<n> for the last n, or a cursor", s)
}

// parseStart reads where a group begins: earliest, latest or ts:<ms or RFC 3339>. Empty text is earliest.
func parseStart(s string) (topic.GroupStart, error) {
	from, err := ParseFrom(s)
	switch {
	case err == nil && from.Kind == Earliest:
		return topic.GroupStart{Kind: topic.AtEarliest}, nil
	case err == nil && from.Kind == Latest:
		return topic.GroupStart{Kind: topic.AtLatest}, nil
	case err == nil && from.Kind == Time:
		return topic.GroupStart{Kind: topic.AtTime, Time: from.Time}, nil
	default:
		return topic.GroupStart{}, fault.Newf("session.parseStart", fault.Validation, nil,
			"start must be earliest, latest or ts:<milliseconds since 1970, or RFC 3339>")
	}
}

// OnGap says how a reader goes on where records that it should read are not there any more.
type OnGap int8

// The policies. All but GapError announce the gap.
const (
	GapEarliest OnGap = iota // go on at the first offset behind the gap
	GapLatest                // go on at the high watermark
	GapError                 // end with the error
)

// ParseOnGap reads earliest, latest or error; empty text is GapEarliest.
func ParseOnGap(s string) (OnGap, error) {
	switch s {
	case "", "earliest":
		return GapEarliest, nil
	case "latest":
		return GapLatest, nil
	case "error":
		return GapError, nil
	default:
		return 0, fault.Newf("session.ParseOnGap", fault.Validation, nil, "on_gap must be earliest, latest or error")
	}
}
