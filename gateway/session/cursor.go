package session

import (
	"github.com/weirlog/weir/topic"
)

// ParseCursor reads the text of a cursor.
func ParseCursor(s string) (From, error) {
	c, err := topic.ParseCursor(s)
	return From{Kind: Cursor, Cursor: c}, err
}
