package quorum

import (
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/topic"
)

// bare is raft as it comes: bbolt with default options, a state machine that does nothing.
type bare struct{}

func (bare) Apply(*raft.Log) any                 { return nil }
func (bare) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (bare) Restore(r io.ReadCloser) error       { return r.Close() }

func bareRaft(b *testing.B) *raft.Raft {
	dir := b.TempDir()
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db")})
	if err != nil {
		b.Fatal(err)
	}
	conf := raft.DefaultConfig()
	conf.LocalID = "1"
	conf.LogOutput = io.Discard
	trans := newTransport("1")
	trans.elect()
	voter := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "1", Address: "1"}}}
	snapshots := raft.NewDiscardSnapshotStore()
	if err := raft.BootstrapCluster(conf, bolt, bolt, snapshots, trans, voter); err != nil {
		b.Fatal(err)
	}
	group, err := raft.NewRaft(conf, bare{}, bolt, bolt, snapshots, trans)
	if err != nil {
		b.Fatal(err)
	}
	<-group.LeaderCh()
	b.Cleanup(func() {
		if err := group.Shutdown().Error(); err != nil {
			b.Error(err)
		}
		if err := bolt.Close(); err != nil {
			b.Error(err)
		}
	})
	return group
}

// callers spreads b.N calls over a number of goroutines.
func callers(b *testing.B, number int, call func(n int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range number {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := call(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func benchNode(b *testing.B, topics int) (*Quorum, []topic.ID) {
	q, err := Open(Config{Dir: b.TempDir(), Node: 1, Found: true})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	ctx := b.Context()
	go func() { done <- q.Run(ctx) }()
	b.Cleanup(func() {
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	if err := q.AwaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	ids := make([]topic.ID, topics)
	var wg sync.WaitGroup
	for i := range ids {
		ids[i] = topic.NewID()
		wg.Go(func() {
			op := cluster.CreateTopic{ID: ids[i], Name: topic.Name(fmt.Sprintf("t-%d", i)), Partitions: 1, Replication: 1}
			if _, err := q.Propose(ctx, cluster.Command{Op: op}); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return q, ids
}

// BenchmarkChange compares changes of settings by 64 callers, and of 1, with applies by bare raft.
func BenchmarkChange(b *testing.B) {
	for _, number := range []int{64, 1} {
		b.Run(fmt.Sprintf("weir/callers=%d", number), func(b *testing.B) {
			q, ids := benchNode(b, 1000)
			values := []string{"1000", "2000", "3000"}
			callers(b, number, func(n int64) error {
				op := cluster.AlterTopic{ID: ids[n%1000], Settings: map[string]*string{"retention.ms": &values[n%3]}}
				_, err := q.Propose(b.Context(), cluster.Command{Op: op})
				return err
			})
		})
		b.Run(fmt.Sprintf("bare/callers=%d", number), func(b *testing.B) {
			group := bareRaft(b)
			data := make([]byte, 60)
			callers(b, number, func(int64) error { return group.Apply(data, time.Second).Error() })
		})
	}
}
