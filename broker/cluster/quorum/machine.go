package quorum

import (
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
)

// machine is what raft applies entries to. Raft calls it from one goroutine, but for Persist.
type machine struct {
	state   *cluster.State
	publish func(*cluster.Image)
	guard   *guard
	failure *failure
	metrics *metrics
}

var _ raft.BatchingFSM = (*machine)(nil)

// Apply applies one entry.
func (m *machine) Apply(log *raft.Log) any { return m.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies entries and makes one image of them. An answer is a []cluster.Result, or the error
// that stops the node: an entry that cannot be read is never stepped over.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand {
			answers[i] = m.apply(log)
		}
	}
	if m.failure.get() == nil {
		m.publish(m.state.Image())
	}
	return answers
}

func (m *machine) apply(log *raft.Log) any {
	if err := m.failure.get(); err != nil {
		return err
	}
	var results []cluster.Result
	err := run.Safely("apply", func() error {
		commands, err := cluster.DecodeEntry(log.Data)
		if err != nil {
			return err
		}
		results = make([]cluster.Result, len(commands))
		for i, c := range commands {
			results[i] = m.state.Apply(log.Index, c)
		}
		return nil
	})
	if err != nil {
		err = fault.New("quorum.Apply", fault.KindOf(err), fmt.Sprintf("entry %d", log.Index), err)
		m.failure.fail(err)
		return err
	}
	return results
}

// Snapshot returns a view that stays as it is while the state goes on.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.failure.get(); err != nil {
		return nil, err
	}
	return &view{snapshot: m.state.Snapshot(), guard: m.guard, metrics: m.metrics}, nil
}

// Restore replaces the state. A snapshot that cannot be read leaves it as it was.
func (m *machine) Restore(source io.ReadCloser) error {
	state, err := readSnapshot(source)
	if err != nil {
		return err
	}
	m.state = state
	m.publish(state.Image())
	return nil
}

func readSnapshot(source io.Reader) (*cluster.State, error) {
	b, err := io.ReadAll(source)
	if err != nil {
		return nil, err
	}
	return cluster.DecodeSnapshot(b)
}

// view is a snapshot on its way to a file.
type view struct {
	snapshot *cluster.Snapshot
	guard    *guard
	metrics  *metrics
}

// Persist writes the view. An error of the disk leaves the log as long as it was; it is tried again.
func (v *view) Persist(sink raft.SnapshotSink) error {
	begun := time.Now()
	b := v.snapshot.Encode()
	defer v.guard.watch("snapshot")()
	if _, err := sink.Write(b); err != nil {
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	v.metrics.snapshots.Observe(time.Since(begun).Seconds())
	return nil
}

// Release has nothing to give back.
func (v *view) Release() {}
