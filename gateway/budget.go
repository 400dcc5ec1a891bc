package gateway

import (
	"sync/atomic"

	"github.com/weirlog/weir/internal/fault"
)

// budget is an amount of bytes that requests hold at one time, in the whole node.
type budget struct {
	most int64
	held atomic.Int64
}

// take reserves n bytes, or refuses with Overloaded.
func (b *budget) take(n int) error {
	if b.held.Add(int64(n)) > b.most {
		b.held.Add(-int64(n))
		return fault.Newf("gateway.Budget", fault.Overloaded, nil, "request bodies hold %d bytes in this node, its most", b.most)
	}
	return nil
}

// give returns n bytes.
func (b *budget) give(n int) { b.held.Add(-int64(n)) }
