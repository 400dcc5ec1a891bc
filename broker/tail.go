package broker

import (
	"sort"
	"sync"

	"github.com/weirlog/weir/topic"
)

// The sizes of a tail's chunks. A partition with little traffic keeps little.
const (
	leastChunk = 4 << 10
	mostChunk  = 256 << 10
	mostTail   = 1 << 20 // of one partition
)

// unreadMost bytes are kept for nobody. After that a tail keeps nothing until somebody reads: to copy
// what only producers touch costs a node half as much as to write it.
const unreadMost = mostTail

// tail keeps the batches that were appended last, so that those who read at the end of a partition share
// them and never touch the disk. Bytes once written to a chunk are never written again, which is why
// readers may keep what they got after the chunk has left the tail.
type tail struct {
	mu     sync.Mutex
	chunks []*chunk // oldest first, without holes between them
	bytes  int      // room taken by the chunks
	unread int      // bytes added since somebody read last; more are not counted when nothing is kept
}

// chunk is a run of batches in one piece of memory.
type chunk struct {
	buf   []byte
	marks []batchMark
	end   topic.Offset // behind the last batch
}

// batchMark says where in a chunk a batch begins.
type batchMark struct {
	base topic.Offset
	pos  int
}

// add copies a batch with offsets from base to end to the tail, which then takes at most limit bytes. It
// keeps nothing when nobody has read for long.
func (t *tail) add(batch []byte, base, end topic.Offset, limit int) {
	limit = min(limit, mostTail)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread > unreadMost {
		t.drop()
		return
	}
	t.unread += len(batch)
	last := t.last()
	if last != nil && last.end != base {
		t.drop() // the log was cut, or a batch was too large to be kept
		last = nil
	}
	if len(batch) > limit {
		t.drop()
		return
	}
	if last == nil || cap(last.buf)-len(last.buf) < len(batch) {
		size := leastChunk
		if last != nil {
			size = 2 * cap(last.buf)
		}
		size = max(min(size, mostChunk, limit/4), len(batch))
		for len(t.chunks) > 0 && t.bytes+size > limit {
			t.bytes -= cap(t.chunks[0].buf)
			t.chunks[0] = nil
			t.chunks = t.chunks[1:]
		}
		last = &chunk{buf: make([]byte, 0, size)}
		t.chunks = append(t.chunks, last)
		t.bytes += size
	}
	last.marks = append(last.marks, batchMark{base: base, pos: len(last.buf)})
	last.buf = append(last.buf, batch...)
	last.end = end
}

// read returns batches from the one that holds offset from, that end at or below offset below: at most
// maxBytes of them, but always one. It returns none when the tail does not hold the first of them.
func (t *tail) read(from, below topic.Offset, maxBytes int) (batches []byte, next topic.Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unread = 0
	if len(t.chunks) == 0 || from < t.chunks[0].marks[0].base {
		return nil, from
	}
	at := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].end > from })
	if at == len(t.chunks) {
		return nil, from
	}
	c := t.chunks[at]
	first := sort.Search(len(c.marks), func(i int) bool { return c.marks[i].base > from }) - 1
	start := c.marks[first].pos
	// Of the batches behind first, find the first one that does not fit any more.
	fit := first + sort.Search(len(c.marks)-first, func(i int) bool {
		pos, end := c.after(first + i)
		return end > below || i > 0 && pos-start > maxBytes
	})
	if fit == first {
		return nil, from
	}
	stop, next := c.after(fit - 1)
	return c.buf[start:stop:stop], next
}

// forget drops the batches that begin below an offset: the log has others in their place, or none.
func (t *tail) forget(below topic.Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.chunks) > 0 {
		c := t.chunks[0]
		stay := sort.Search(len(c.marks), func(i int) bool { return c.marks[i].base >= below })
		if c.marks = c.marks[stay:]; len(c.marks) > 0 {
			return
		}
		t.bytes -= cap(c.buf)
		t.chunks[0] = nil
		t.chunks = t.chunks[1:]
	}
}

// after is the position and offset behind the i-th batch.
func (c *chunk) after(i int) (pos int, end topic.Offset) {
	if i+1 < len(c.marks) {
		return c.marks[i+1].pos, c.marks[i+1].base
	}
	return len(c.buf), c.end
}

// drop forgets everything.
func (t *tail) drop() { t.chunks, t.bytes = nil, 0 }

func (t *tail) last() *chunk {
	if len(t.chunks) == 0 {
		return nil
	}
	return t.chunks[len(t.chunks)-1]
}
