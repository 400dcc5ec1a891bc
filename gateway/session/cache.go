package session

import (
	"context"
	"sync"

	"github.com/weirlog/weir/topic"
)

// cache holds the encodings that readers at the tail share, up to a number of bytes. Who asks for one
// that is being made waits for it instead of making it again.
type cache struct {
	most    int
	metrics *metrics

	mu      sync.Mutex
	entries map[pieceKey]*cacheEntry
	newest  *cacheEntry // the ring of finished entries, most recently used first
	bytes   int
}

// pieceKey names a piece. Within one epoch, and until compaction takes some away, the records at an offset
// never change.
type pieceKey struct {
	ref      topic.Ref
	leader   topic.Epoch
	rewrites int64 // topic.Bounds.Rewrites
	start    topic.Offset
	format   Format
}

type cacheEntry struct {
	key        pieceKey
	piece      *piece
	err        error
	ready      chan struct{} // closed when piece or err is set; nil in an entry that was put in finished
	prev, next *cacheEntry   // in the ring
}

func newCache(most int, m *metrics) *cache {
	return &cache{most: most, metrics: m, entries: map[pieceKey]*cacheEntry{}}
}

// get returns a piece that is there, or nil.
func (c *cache) get(key pieceKey) *piece {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.piece != nil {
		c.touch(e)
		return e.piece
	}
	return nil
}

// load returns the piece of key, and calls make for it when nobody else does. make returns that piece
// and any that follow it.
func (c *cache) load(ctx context.Context, key pieceKey, make func() ([]*piece, error)) (*piece, error) {
	c.mu.Lock()
	if e := c.entries[key]; e != nil {
		c.mu.Unlock()
		if e.ready == nil {
			return e.piece, nil
		}
		select {
		case <-e.ready:
			return e.piece, e.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e := &cacheEntry{key: key, ready: newReady()}
	c.entries[key] = e
	c.mu.Unlock()

	made := false
	defer func() { // also when make panics: nobody may wait for ever
		c.mu.Lock()
		defer c.mu.Unlock()
		if !made && e.err == nil {
			e.err = errNotMade
		}
		if e.err != nil {
			delete(c.entries, key)
		}
		close(e.ready)
	}()
	all, err := make()
	c.mu.Lock()
	defer c.mu.Unlock()
	made = true
	if e.err = err; err != nil {
		return nil, err
	}
	e.piece = all[0]
	c.admit(e)
	for _, p := range all[1:] {
		key.start = p.start
		if c.entries[key] == nil {
			more := &cacheEntry{key: key, piece: p}
			c.entries[key] = more
			c.admit(more)
		}
	}
	return e.piece, nil
}

func newReady() chan struct{} { return make(chan struct{}) }

// admit puts a finished entry in front and drops those at the end that are too many. mu is held.
func (c *cache) admit(e *cacheEntry) {
	c.bytes += e.piece.memory()
	c.link(e)
	for c.bytes > c.most && c.newest.prev != c.newest {
		old := c.newest.prev
		c.unlink(old)
		delete(c.entries, old.key)
		c.bytes -= old.piece.memory()
	}
	c.metrics.cacheSize.Set(float64(c.bytes))
}

func (c *cache) touch(e *cacheEntry) {
	if c.newest != e && e.prev != nil {
		c.unlink(e)
		c.link(e)
	}
}

func (c *cache) link(e *cacheEntry) {
	if c.newest == nil {
		e.prev, e.next = e, e
	} else {
		e.prev, e.next = c.newest.prev, c.newest
		e.prev.next, e.next.prev = e, e
	}
	c.newest = e
}

func (c *cache) unlink(e *cacheEntry) {
	if c.newest == e {
		c.newest = e.next
	}
	if e.next == e {
		c.newest = nil
	}
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
