package topic

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// LatestMillis is the last millisecond of the year 9999, the last that RFC 3339 can say.
const LatestMillis Millis = 253402300799999

// ParseMillis reads a time as people and programs give it: milliseconds since 1970, or RFC 3339, such as
// 2025-11-02T10:00:00Z, from 1970 to 9999. What RFC 3339 says beyond milliseconds is left out, as in the
// timestamps of records.
//
// A + that came in a query without being escaped is a space by now; before an offset from UTC, where no
// time has one, it is taken for the +.
func ParseMillis(s string) (Millis, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 || n > int64(LatestMillis) {
			return 0, errNoTime
		}
		return Millis(n), nil
	}
	if at := len(s) - len("+01:00"); at > 0 && s[at] == ' ' {
		s = s[:at] + "+" + s[at+1:]
	}
	var t time.Time // time.Parse takes more than RFC 3339 does
	if err := t.UnmarshalText([]byte(s)); err != nil || t.UnixMilli() < 0 || strings.ContainsRune(s, ',') {
		return 0, errNoTime
	}
	return Millis(t.UnixMilli()), nil
}

var errNoTime = errors.New("must be milliseconds since 1970 or an RFC 3339 time such as 2025-11-02T10:00:00Z, from 1970 to 9999")
