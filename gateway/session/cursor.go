package session

import (
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// ParseCursor reads the text of a cursor.
func ParseCursor(s string) (From, error) {
	return From{}, fault.Newf("session.ParseCursor", fault.InvalidCursor, nil, "cursors cannot be read yet")
}

// appendCursor appends the text of a cursor.
func appendCursor(dst []byte, c *topic.Cursor) []byte { return append(dst, "c1."...) }
