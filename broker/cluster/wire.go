package cluster

import (
	"errors"

	"github.com/weirlog/weir/internal/wire"
	"github.com/weirlog/weir/topic"
)

// writer appends values in the format of docs/metadata.md. One value has one form.
type writer struct{ b wire.Writer }

func (w *writer) checksum()           { w.b.Checksum(nil) }
func (w *writer) node(n topic.NodeID) { w.b.Int(int64(n)) }

func (w *writer) nodes(list []topic.NodeID) {
	w.b.Count(len(list))
	for _, n := range list {
		w.node(n)
	}
}

// reader takes values in the format of docs/metadata.md.
type reader struct{ wire.Reader }

func (r *reader) node() topic.NodeID   { return topic.NodeID(r.Int32()) }
func (r *reader) millis() topic.Millis { return topic.Millis(r.Int()) }

func (r *reader) nodes() []topic.NodeID {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	list := make([]topic.NodeID, n)
	for i := range list {
		list[i] = r.node()
	}
	return list
}

var errEmptyRead = errors.New("there are no bytes")

// checked cuts the checksum off the end of b and verifies it.
func checked(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errEmptyRead
	}
	return wire.Checked(nil, b)
}
