package quorum

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
)

// failure is the first error after which the node must not go on.
type failure struct {
	once sync.Once
	err  error         // set before gone is closed
	gone chan struct{} // closed by the first fail
}

func newFailure() *failure { return &failure{gone: make(chan struct{})} }

func (f *failure) fail(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.gone)
	})
}

// get is nil while nothing failed.
func (f *failure) get() error {
	select {
	case <-f.gone:
		return f.err
	default:
		return nil
	}
}

// store is what raft keeps its log and its votes in.
type store interface {
	raft.LogStore
	raft.StableStore
}

// guard watches a store. An error of the disk is final, and so is an operation that takes longer than
// the limit: a leader that hangs in a sync would go on to answer for its peers and hold up everybody
// who waits, for ever. After the first failure nothing reaches the store any more, above all no second
// sync, which may succeed without having written what the first one lost.
type guard struct {
	store   store
	limit   time.Duration
	failure *failure
}

// do carries out an operation. Errors in expected are answers.
func (g *guard) do(name string, operation func() error, expected ...error) error {
	if err := g.failure.get(); err != nil {
		return err
	}
	over := g.watch(name)
	err := run.Safely(name, operation)
	over()
	if err == nil {
		return g.failure.get()
	}
	for _, answer := range expected {
		if errors.Is(err, answer) {
			return err
		}
	}
	err = fault.New("quorum.Disk", fault.Internal, name, fmt.Errorf("the metadata log failed: %w", err))
	g.failure.fail(err)
	return err
}

// watch fails the quorum unless the operation is over within the limit.
func (g *guard) watch(name string) (over func()) {
	slow := time.AfterFunc(g.limit, func() {
		g.failure.fail(fault.Newf("quorum.Disk", fault.Internal, name,
			"the disk of the metadata log did not answer for %v; the node stops, so that nobody waits for it", g.limit))
	})
	return func() { slow.Stop() }
}

// leave ends raft's goroutine instead of returning an error where raft would panic over it and take the
// process down before Run can say why. Its deferred functions run, so a shutdown finds it ended.
func (g *guard) leave(err error) error {
	if err != nil {
		runtime.Goexit()
	}
	return err
}

func (g *guard) FirstIndex() (index uint64, err error) {
	err = g.do("first_index", func() error { index, err = g.store.FirstIndex(); return err })
	return index, err
}

func (g *guard) LastIndex() (index uint64, err error) {
	err = g.do("last_index", func() error { index, err = g.store.LastIndex(); return err })
	return index, err
}

func (g *guard) GetLog(index uint64, log *raft.Log) error {
	err := g.do("get_log", func() error { return g.store.GetLog(index, log) }, raft.ErrLogNotFound)
	if g.failure.get() != nil {
		return g.leave(err)
	}
	return err
}

func (g *guard) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

func (g *guard) StoreLogs(logs []*raft.Log) error {
	return g.do("store_logs", func() error { return g.store.StoreLogs(logs) })
}

func (g *guard) DeleteRange(first, last uint64) error {
	return g.do("delete_range", func() error { return g.store.DeleteRange(first, last) })
}

func (g *guard) Set(key, value []byte) error {
	return g.leave(g.do("set", func() error { return g.store.Set(key, value) }))
}

func (g *guard) Get(key []byte) (value []byte, err error) {
	err = g.do("get", func() error { value, err = g.store.Get(key); return err }, raftboltdb.ErrKeyNotFound)
	return value, err
}

func (g *guard) SetUint64(key []byte, value uint64) error {
	return g.leave(g.do("set_uint64", func() error { return g.store.SetUint64(key, value) }))
}

func (g *guard) GetUint64(key []byte) (value uint64, err error) {
	err = g.do("get_uint64", func() error { value, err = g.store.GetUint64(key); return err }, raftboltdb.ErrKeyNotFound)
	return value, err
}
