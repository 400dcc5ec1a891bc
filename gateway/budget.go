package gateway

import (
	"sync/atomic"

	"github.com/weirlog/weir/internal/fault"
)

// budget is an amount of bytes that requests hold at one time, in the whole node.
type budget struct {
	what string // holds the bytes, for the error
	most int64
	held atomic.Int64
}

// take reserves n bytes, or refuses with Overloaded.
func (b *budget) take(n int) error {
	if b.held.Add(int64(n)) > b.most {
		b.held.Add(-int64(n))
		return b.spent()
	}
	return nil
}

// look refuses with Overloaded when nothing is left.
func (b *budget) look() error {
	if b.held.Load() >= b.most {
		return b.spent()
	}
	return nil
}

func (b *budget) spent() error {
	return fault.Newf("gateway.Budget", fault.Overloaded, nil, "%s hold as much of this node's memory as they may, %d bytes", b.what, b.most)
}

// force reserves n bytes that are in use already, whatever is left. A negative n gives bytes back.
func (b *budget) force(n int) { b.held.Add(int64(n)) }

// give returns n bytes.
func (b *budget) give(n int) { b.held.Add(-int64(n)) }
