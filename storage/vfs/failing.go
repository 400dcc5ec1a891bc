package vfs

import (
	"io/fs"
	"path/filepath"
	"sync"
)

// Fault is a plan for operations to fail.
type Fault struct {
	Ops   Op     // the kinds of operation that it is about; 0 is every kind
	Match string // a pattern of filepath.Match for the last element of the name; "" is every name
	Nth   int    // the first operation to fail among those it is about, from 1; 0 is the first too
	Err   error  // what they fail with

	Forever bool // every operation from then on fails, not one
	// Short is how many bytes a write that fails writes before, or a read reads; less when less was asked.
	Short int
	// Done carries the operation out and then reports the error all the same, as a disk may.
	Done bool
}

func (f Fault) about(c call) bool {
	if f.Ops != 0 && f.Ops&c.op == 0 {
		return false
	}
	if f.Match == "" {
		return true
	}
	ok, err := filepath.Match(f.Match, filepath.Base(c.name))
	return ok && err == nil
}

// Failing is a file system whose operations fail when its faults say so. Make one with [NewFailing].
type Failing struct {
	wrapped

	mu     sync.Mutex
	faults []planned // guarded by mu
	fired  int       // operations that failed; guarded by mu
}

type planned struct {
	Fault
	seen int // operations that it is about
}

var _ FS = (*Failing)(nil)

// NewFailing wraps a file system. A pattern that filepath.Match does not understand panics: it is the
// test's own mistake.
func NewFailing(below FS, faults ...Fault) *Failing {
	f := &Failing{wrapped: wrapped{below: below}}
	f.do = f.perhaps
	f.Plan(faults...)
	return f
}

// Plan replaces the faults; counting starts anew. Without faults every operation passes.
func (f *Failing) Plan(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.fired = nil, 0
	for _, fault := range faults {
		if _, err := filepath.Match(fault.Match, "x"); err != nil {
			panic(err)
		}
		f.faults = append(f.faults, planned{Fault: fault})
	}
}

// Fired is how many operations have failed since the last Plan.
func (f *Failing) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// Seen is how many operations the n-th fault of the plan was about.
func (f *Failing) Seen(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults[n].seen
}

func (f *Failing) perhaps(c call, run func(limit int) (int, error)) (int, error) {
	fault, ok := f.next(c)
	switch {
	case !ok:
		return run(c.bytes)
	case fault.Done:
		n, err := run(c.bytes)
		if err == nil {
			err = fault.Err
		}
		return n, f.error(c, err)
	case c.op&(OpRead|OpWrite) != 0 && fault.Short > 0:
		n, err := run(min(fault.Short, c.bytes))
		if err == nil {
			err = fault.Err
		}
		return n, f.error(c, err)
	default:
		return 0, f.error(c, fault.Err)
	}
}

func (f *Failing) error(c call, err error) error {
	return &fs.PathError{Op: c.op.String(), Path: c.name, Err: err}
}

// next counts an operation with every fault and returns the one that hits it.
func (f *Failing) next(c call) (hit Fault, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.faults {
		p := &f.faults[i]
		if !p.about(c) {
			continue
		}
		p.seen++
		first := max(1, p.Nth)
		if !ok && (p.seen == first || p.Forever && p.seen > first) {
			hit, ok = p.Fault, true
		}
	}
	if ok {
		f.fired++
	}
	return hit, ok
}
