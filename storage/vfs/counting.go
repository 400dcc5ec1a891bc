package vfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Count of one kind of operation.
type Count struct {
	Ops   int64
	Bytes int64 // read or written
}

// Counts of operations by their kind.
type Counts map[Op]Count

// Of adds up the counts of a set of kinds.
func (c Counts) Of(ops Op) (sum Count) {
	for op, count := range c {
		if op&ops != 0 {
			sum.Ops += count.Ops
			sum.Bytes += count.Bytes
		}
	}
	return sum
}

// Since is what was counted after before.
func (c Counts) Since(before Counts) Counts {
	diff := Counts{}
	for op, count := range c {
		if d := (Count{count.Ops - before[op].Ops, count.Bytes - before[op].Bytes}); d != (Count{}) {
			diff[op] = d
		}
	}
	return diff
}

// String lists the counts, as "open 3, read 12 (4096 bytes)".
func (c Counts) String() string {
	words := make([]string, 0, len(c))
	for _, op := range slices.Sorted(maps.Keys(c)) {
		word := fmt.Sprintf("%v %d", op, c[op].Ops)
		if op&(OpRead|OpWrite) != 0 {
			word += fmt.Sprintf(" (%d bytes)", c[op].Bytes)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Counting is a file system that counts what is done to the one below. Make one with [NewCounting].
type Counting struct {
	wrapped

	mu     sync.Mutex
	counts Counts // guarded by mu
	open   int    // files that are open; guarded by mu
	peak   int    // the most that were open at once; guarded by mu
}

var _ FS = (*Counting)(nil)

// NewCounting wraps a file system.
func NewCounting(below FS) *Counting {
	c := &Counting{wrapped: wrapped{below: below}, counts: Counts{}}
	c.do = c.count
	return c
}

// Counts is what was counted so far: operations that failed too, bytes that were moved.
func (c *Counting) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// OpenFiles is how many files are open now, and the most that were at once.
func (c *Counting) OpenFiles() (now, peak int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.peak
}

func (c *Counting) count(call call, run func(limit int) (int, error)) (int, error) {
	n, err := run(call.bytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.counts[call.op]
	count.Ops++
	count.Bytes += int64(n)
	c.counts[call.op] = count
	switch {
	case err != nil:
	case call.op == OpOpen:
		c.open++
		c.peak = max(c.peak, c.open)
	case call.op == OpClose:
		c.open--
	}
	return n, err
}
