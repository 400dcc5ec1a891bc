package broker

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/internal/fault"
)

// Buffers come in sizes of powers of two, so that a small append never holds a large one's memory.
const (
	leastBufferBits = 9  // 512 bytes
	mostBufferBits  = 22 // 4 MiB; larger ones are left to the garbage collector
)

var bufferPools [mostBufferBits + 1]sync.Pool

// buffer is a piece of memory for the batches of a part.
type buffer struct{ b []byte }

// takeBuffer returns an empty buffer with room for size bytes.
func takeBuffer(size int) *buffer {
	class := max(bits.Len(uint(max(size, 1)-1)), leastBufferBits)
	if class > mostBufferBits {
		return &buffer{make([]byte, 0, size)}
	}
	if b, ok := bufferPools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 0, 1<<class)}
}

// giveBuffer gives back what takeBuffer returned; bytes are what became of its own, perhaps grown since.
// Nobody may use them any more.
func giveBuffer(b *buffer, bytes []byte) {
	if c := cap(bytes); c >= 1<<leastBufferBits && c <= 1<<mostBufferBits {
		b.b = bytes[:0]
		bufferPools[bits.Len(uint(c))-1].Put(b)
	}
}

// budget bounds the bytes of appends that are between their producer and the log.
type budget struct {
	most int64
	used atomic.Int64
}

func (b *budget) take(n int) error {
	if b.used.Add(int64(n)) > b.most {
		b.used.Add(int64(-n))
		return fault.Newf("broker.Produce", fault.Overloaded, nil, "appends of %d bytes are on their way, no more fit in memory", b.used.Load())
	}
	return nil
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }
