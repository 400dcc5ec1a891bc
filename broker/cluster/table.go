package cluster

import (
	"iter"
	"slices"
	"sort"

	"github.com/weirlog/weir/internal/wire"
)

// chunkMost is the most rows of a chunk: a change copies one chunk and the list of chunks.
const chunkMost = 64

// table is an immutable map, sorted by key. A change returns a new table that shares all chunks but
// one with the old one.
type table[K comparable, V any] struct {
	compare func(a, b K) int
	chunks  []*chunk[K, V] // none is empty
	count   int
}

// chunk holds neighbouring rows. It is never written to after it was made.
type chunk[K comparable, V any] struct {
	keys   []K
	values []V
}

// find returns the chunk that has, or would get, a key, and the place in it. In an empty table the
// chunk is -1.
func (t table[K, V]) find(key K) (at, row int, found bool) {
	at = sort.Search(len(t.chunks), func(i int) bool { return t.compare(t.chunks[i].keys[0], key) > 0 }) - 1
	if at < 0 {
		if len(t.chunks) == 0 {
			return -1, 0, false
		}
		return 0, 0, false
	}
	row, found = slices.BinarySearchFunc(t.chunks[at].keys, key, t.compare)
	return at, row, found
}

func (t table[K, V]) get(key K) (value V, ok bool) {
	at, row, found := t.find(key)
	if !found {
		return value, false
	}
	return t.chunks[at].values[row], true
}

// with returns a table in which key has value.
func (t table[K, V]) with(key K, value V) table[K, V] {
	at, row, found := t.find(key)
	if at < 0 {
		t.chunks, t.count = []*chunk[K, V]{{keys: []K{key}, values: []V{value}}}, 1
		return t
	}
	old := t.chunks[at]
	if found {
		values := slices.Clone(old.values)
		values[row] = value
		t.chunks = slices.Clone(t.chunks)
		t.chunks[at] = &chunk[K, V]{keys: old.keys, values: values}
		return t
	}
	t.count++
	grown := &chunk[K, V]{keys: inserted(old.keys, row, key), values: inserted(old.values, row, value)}
	if len(grown.keys) <= chunkMost {
		t.chunks = slices.Clone(t.chunks)
		t.chunks[at] = grown
		return t
	}
	half := len(grown.keys) / 2
	left := &chunk[K, V]{keys: slices.Clip(grown.keys[:half]), values: slices.Clip(grown.values[:half])}
	right := &chunk[K, V]{keys: grown.keys[half:], values: grown.values[half:]}
	t.chunks = inserted(t.chunks, at+1, right)
	t.chunks[at] = left
	return t
}

// without returns a table that lacks key.
func (t table[K, V]) without(key K) table[K, V] {
	at, row, found := t.find(key)
	if !found {
		return t
	}
	t.count--
	old := t.chunks[at]
	if len(old.keys) == 1 {
		t.chunks = removed(t.chunks, at)
		return t
	}
	t.chunks = slices.Clone(t.chunks)
	t.chunks[at] = &chunk[K, V]{keys: removed(old.keys, row), values: removed(old.values, row)}
	t.join(at)
	return t
}

// join merges a chunk that became small with its right neighbour. t.chunks is ours to write to.
func (t *table[K, V]) join(at int) {
	if at+1 >= len(t.chunks) || len(t.chunks[at].keys)+len(t.chunks[at+1].keys) > chunkMost/2 {
		return
	}
	a, b := t.chunks[at], t.chunks[at+1]
	t.chunks[at] = &chunk[K, V]{keys: slices.Concat(a.keys, b.keys), values: slices.Concat(a.values, b.values)}
	t.chunks = slices.Delete(t.chunks, at+1, at+2)
}

// rows builds a table from rows that come in order.
type rows[K comparable, V any] struct{ table table[K, V] }

func builder[K comparable, V any](empty table[K, V]) *rows[K, V] { return &rows[K, V]{empty} }

// add appends a row. One that is not above the last is a mistake in what r reads.
func (b *rows[K, V]) add(r *reader, key K, value V) {
	if r.Err() != nil {
		return
	}
	t := &b.table
	if t.count > 0 {
		last := t.chunks[len(t.chunks)-1]
		if t.compare(last.keys[len(last.keys)-1], key) >= 0 {
			r.Fail(wire.ErrOrder)
			return
		}
	}
	if t.count%chunkMost == 0 {
		t.chunks = append(t.chunks, &chunk[K, V]{keys: make([]K, 0, chunkMost), values: make([]V, 0, chunkMost)})
	}
	last := t.chunks[len(t.chunks)-1]
	last.keys, last.values = append(last.keys, key), append(last.values, value)
	t.count++
}

// mapped returns a table with the same keys and other values. Chunks in which change reports no
// change are shared.
func (t table[K, V]) mapped(change func(V) (V, bool)) table[K, V] {
	chunks := slices.Clone(t.chunks)
	for i, c := range chunks {
		var values []V
		for row, v := range c.values {
			changed, ok := change(v)
			if !ok {
				continue
			}
			if values == nil {
				values = slices.Clone(c.values)
			}
			values[row] = changed
		}
		if values != nil {
			chunks[i] = &chunk[K, V]{keys: c.keys, values: values}
		}
	}
	t.chunks = chunks
	return t
}

// all walks the rows by key.
func (t table[K, V]) all() iter.Seq2[K, V] { return t.walk(0, 0) }

// from walks the rows by key, beginning with the first key that is not below start.
func (t table[K, V]) from(start K) iter.Seq2[K, V] {
	at, row, _ := t.find(start)
	return t.walk(max(at, 0), row)
}

func (t table[K, V]) walk(at, row int) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for at, row := at, row; at < len(t.chunks); at, row = at+1, 0 {
			c := t.chunks[at]
			for ; row < len(c.keys); row++ {
				if !yield(c.keys[row], c.values[row]) {
					return
				}
			}
		}
	}
}

// differences walks the values that two tables do not share, by key: the zero value stands for a key
// that one of them lacks. It steps over whole chunks that both have.
func differences[K comparable, V comparable](old, now table[K, V]) iter.Seq2[V, V] {
	return func(yield func(was, is V) bool) {
		var none V
		a, b := cursor[K, V]{chunks: old.chunks}, cursor[K, V]{chunks: now.chunks}
		for {
			for a.fresh() && b.fresh() && a.chunks[0] == b.chunks[0] {
				a.skip()
				b.skip()
			}
			more := true
			switch {
			case a.done() && b.done():
				return
			case b.done() || !a.done() && old.compare(a.key(), b.key()) < 0:
				more = yield(a.next(), none)
			case a.done() || old.compare(a.key(), b.key()) > 0:
				more = yield(none, b.next())
			default:
				if was, is := a.next(), b.next(); was != is {
					more = yield(was, is)
				}
			}
			if !more {
				return
			}
		}
	}
}

// cursor is a place in a list of chunks.
type cursor[K comparable, V any] struct {
	chunks []*chunk[K, V]
	row    int
}

func (c *cursor[K, V]) done() bool  { return len(c.chunks) == 0 }
func (c *cursor[K, V]) fresh() bool { return len(c.chunks) > 0 && c.row == 0 }
func (c *cursor[K, V]) skip()       { c.chunks, c.row = c.chunks[1:], 0 }
func (c *cursor[K, V]) key() K      { return c.chunks[0].keys[c.row] }

func (c *cursor[K, V]) next() V {
	v := c.chunks[0].values[c.row]
	if c.row++; c.row == len(c.chunks[0].keys) {
		c.skip()
	}
	return v
}

// inserted returns a copy of s with v at place i.
func inserted[T any](s []T, i int, v T) []T {
	grown := make([]T, 0, len(s)+1)
	grown = append(grown, s[:i]...)
	grown = append(grown, v)
	return append(grown, s[i:]...)
}

// removed returns a copy of s without place i.
func removed[T any](s []T, i int) []T {
	return slices.Concat(s[:i], s[i+1:])
}
