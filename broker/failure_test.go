package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// waiters are a producer and a reader that wait for something of a partition.
type waiters struct {
	produced chan error
	fetched  chan error
}

func (r *running) wait(name topic.Name) waiters {
	w := waiters{make(chan error, 1), make(chan error, 1)}
	go func() {
		a := appendTo(name, topic.AcksAll, "waiting")
		err := r.Produce(context.Background(), a)
		if err == nil {
			err = a.Results[0].Err
		}
		w.produced <- err
	}()
	go func() {
		_, err := r.Fetch(context.Background(), topic.Fetch{Topic: name, Offset: r.hwOf(name), LastEpoch: topic.NoEpoch, Wait: time.Hour})
		w.fetched <- err
	}()
	return w
}

func (r *running) hwOf(name topic.Name) topic.Offset {
	d, err := r.Topic(name)
	if err != nil {
		return 0
	}
	b, err := r.Bounds(topic.Ref{ID: d.ID})
	if err != nil {
		return 0
	}
	return b.HighWatermark
}

// TestHangingDisk: a sync that does not come back ends the node, after everyone was told.
func TestHangingDisk(t *testing.T) {
	for _, op := range []string{"sync", "write"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung := make(chan struct{})
				var hang atomic.Bool
				hook := func(name string) {
					if isLog(name) && hang.Load() {
						<-hung
					}
				}
				fsys := &slowFS{FS: newMem(t)}
				if op == "sync" {
					fsys.sync = hook
				} else {
					fsys.write = hook
				}
				r := begin(t, fsys, newOneNode(), testConfig("data"))
				r.create("orders", 1)
				r.create("quiet", 1)
				r.produce("orders", to(0, "v"))
				hang.Store(true)
				begun := time.Now()
				w := r.wait("orders")
				late := make(chan error, 1)
				go func() {
					time.Sleep(time.Second)
					late <- (<-r.wait("orders").produced)
				}()
				if err := <-w.produced; !fault.Is(err, fault.Timeout) {
					t.Errorf("the producer got %v", err)
				}
				if err := <-late; err == nil {
					t.Error("a producer that came later was told that its record is stored")
				}
				if took := time.Since(begun); took < r.cfg.DiskLimit || took > r.cfg.DiskLimit+2*time.Second {
					t.Errorf("told after %v", took)
				}
				if err := <-w.fetched; err == nil {
					t.Error("the reader got no error")
				}
				err := <-r.ended
				if err == nil || !strings.Contains(err.Error(), "hangs") {
					t.Errorf("Run returned %v", err)
				}
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if r.Ready() == nil {
					t.Error("the node says it is ready")
				}
				close(hung)
				synctest.Wait()
			})
		})
	}
}

// TestFailingDisk: an error that says that the disk cannot be trusted ends the node. Nothing was
// acknowledged that is not there afterwards.
func TestFailingDisk(t *testing.T) {
	for _, f := range []vfs.Fault{
		{Ops: vfs.OpSync, Match: "*.log", Err: syscall.EIO},
		{Ops: vfs.OpSync, Match: "*.log", Err: syscall.EIO, Done: true},
		{Ops: vfs.OpWrite, Match: "*.log", Err: syscall.EIO},
		{Ops: vfs.OpSync, Match: "*.log", Err: syscall.EIO, Nth: 3},
		{Ops: vfs.OpWrite, Match: "*.log", Err: syscall.EIO, Nth: 3, Short: 10},
	} {
		t.Run(fmt.Sprint(f.Ops, f.Nth, f.Done), func(t *testing.T) {
			mem := newMem(t)
			failing := vfs.NewFailing(mem)
			r := begin(t, failing, newOneNode(), testConfig("data"))
			r.create("orders", 1)
			r.create("other", 1)
			failing.Plan(f)
			var stored []string
			for i := 0; ; i++ {
				value := fmt.Sprint("v", i)
				a := appendTo("orders", topic.AcksAll, value)
				err := r.Produce(t.Context(), a)
				if err == nil {
					err = a.Results[0].Err
				}
				if err != nil {
					if !fault.Is(err, fault.Timeout) {
						t.Errorf("call %d: %v", i, err)
					}
					break
				}
				stored = append(stored, value)
			}
			if err := <-r.ended; !storage.Final(err) {
				t.Errorf("Run returned %v", err)
			}
			again := begin(t, mem.Crash(1), r.cluster, testConfig("data"))
			got := again.values("orders", 0, 0)
			if len(got) < len(stored) || !slices.Equal(got[:len(stored)], stored) {
				t.Errorf("acknowledged %v, there is %v", stored, got)
			}
			again.stop()
		})
	}
}

// TestFullDisk: without room appends are refused and leave no trace, the node goes on, and takes them
// again when there is room.
func TestFullDisk(t *testing.T) {
	mem := newMem(t)
	mem.SetSpace(3 << 20)
	cfg := testConfig("data")
	cfg.ReserveBytes = 64 << 10
	r := begin(t, mem, newOneNode(), cfg)
	r.create("orders", 1)
	value := strings.Repeat("x", 100_000)
	var stored int
	var refusal error
	for refusal == nil && stored < 1000 {
		a := appendTo("orders", topic.AcksAll, value)
		if err := r.Produce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if refusal = a.Results[0].Err; refusal == nil {
			stored++
		}
	}
	if !fault.Is(refusal, fault.StorageFull) || stored < 5 {
		t.Fatalf("after %d records: %v", stored, refusal)
	}
	if err := r.Ready(); err != nil {
		t.Errorf("a full disk ended the node: %v", err)
	}
	if got := r.values("orders", 0, 0); len(got) != stored {
		t.Errorf("%d records are readable, %d were stored", len(got), stored)
	}
	if _, err := r.CreateTopic(t.Context(), topic.Creation{Name: "more", Partitions: 1}); !fault.Is(err, fault.StorageFull) {
		t.Errorf("a new topic on a full disk: %v", err)
	}
	if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Partitions: 2}); !fault.Is(err, fault.StorageFull) {
		t.Errorf("a new partition on a full disk: %v", err)
	}
	if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"retention.ms": new("3600000")}}); err != nil {
		t.Errorf("a setting that makes room on a full disk: %v", err)
	}
	mem.SetSpace(100 << 20)
	r.await("appends are taken again", func() bool {
		a := appendTo("orders", topic.AcksAll, "again")
		if err := r.Produce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return a.Results[0].Err == nil
	})
	if got := r.records("orders", 0, 0); len(got) != stored+1 || got[stored].Offset != topic.Offset(stored) {
		t.Errorf("%d records, the last at %d", len(got), got[len(got)-1].Offset)
	}
	r.stop()
}

// TestCrash: a power cut at any moment takes nothing that was acknowledged, and what is there is in order.
func TestCrash(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		r, mem := beginMem(t)
		r.create("orders", 2)
		var mu sync.Mutex
		acked := map[topic.Partition]map[topic.Offset]string{0: {}, 1: {}}
		attempts := map[string]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for id := range 4 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					value := fmt.Sprintf("%d:%d", id, i)
					mu.Lock()
					attempts[value] = true
					mu.Unlock()
					a := &topic.Append{Topic: "orders", Acks: topic.AcksAll, Records: []topic.Record{to(topic.Partition(i%2), value)}}
					if err := r.Produce(ctx, a); err != nil || a.Results[0].Err != nil {
						return
					}
					mu.Lock()
					acked[a.Results[0].Partition][a.Results[0].Offset] = value
					mu.Unlock()
				}
			})
		}
		r.await("some are stored", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acked[0])+len(acked[1]) > 20+int(seed)*3
		})
		mu.Lock() // what is acknowledged now must be there
		crashed, metadata := mem.Crash(seed), r.cluster.clone()
		before := map[topic.Partition]map[topic.Offset]string{0: {}, 1: {}}
		for p := range acked {
			for offset, value := range acked[p] {
				before[p][offset] = value
			}
		}
		mu.Unlock()
		cancel()
		wg.Wait()
		r.stop()

		again := begin(t, crashed, metadata, testConfig("data"))
		for p := range topic.Partition(2) {
			read := again.records("orders", p, 0)
			seen := map[string]bool{}
			for i, record := range read {
				value := string(record.Value)
				if record.Offset != topic.Offset(i) || seen[value] || !attempts[value] {
					t.Fatalf("seed %d: %q at offset %d, place %d", seed, value, record.Offset, i)
				}
				seen[value] = true
			}
			for offset, value := range before[p] {
				if int(offset) >= len(read) || string(read[offset].Value) != value {
					t.Fatalf("seed %d: %q was acknowledged at %d of partition %d, and is not there", seed, value, offset, p)
				}
			}
		}
		again.produce("orders", to(0, "after"), to(1, "after"))
		again.stop()
	}
}

// TestStopWithWaiters: appends in flight finish, polls end, new calls are refused, and the logs are clean.
func TestStopWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		var slow atomic.Bool
		fsys := &slowFS{FS: mem, sync: func(name string) {
			if slow.Load() && isLog(name) {
				time.Sleep(time.Second)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		d := r.create("orders", 1)
		slow.Store(true)
		const n = 32
		outcomes := make(chan error, n)
		for range n {
			go func() { outcomes <- (<-r.wait("orders").produced) }()
		}
		poll := r.wait("orders").fetched
		bell := make(chan struct{}, 1)
		if _, err := r.Listen(topic.Ref{ID: d.ID}, bell); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		begun := time.Now()
		r.cancel()
		synctest.Wait()
		if err := r.Produce(t.Context(), appendTo("orders", topic.AcksAll, "late")); !fault.Is(err, fault.Stopping) {
			t.Errorf("a call while stopping: %v", err)
		}
		if r.Ready() == nil {
			t.Error("the node says it is ready")
		}
		r.stop()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if err := <-poll; err != nil {
			t.Errorf("the poll got %v", err)
		}
		if !rung(bell) {
			t.Error("the listener was not rung")
		}
		stored := 0
		for range n {
			if err := <-outcomes; err == nil {
				stored++
			} else if !fault.Is(err, fault.Stopping) {
				t.Errorf("a call in flight: %v", err)
			}
		}
		if len(mem.OpenFiles()) != 0 {
			t.Errorf("still open: %v", mem.OpenFiles())
		}
		log, found, err := storage.Open(mem, partitionDir(r.topicDir(d.ID), 0), storage.Default(topic.Path{Topic: "orders"}, d.ID))
		if err != nil || found.State != storage.Clean {
			t.Fatalf("the log is not clean: %+v, %v", found, err)
		}
		if int(log.End()) < stored || stored < n {
			t.Errorf("%d calls were acknowledged, the log ends at %d", stored, log.End())
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStopIsBounded: a disk that is too slow to finish does not hold the process for ever.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var hang atomic.Bool
		fsys := &slowFS{FS: newMem(t), sync: func(name string) {
			if hang.Load() && isLog(name) {
				<-release
			}
		}}
		cfg := testConfig("data")
		cfg.StopLimit, cfg.DiskLimit = time.Second, time.Hour
		r := begin(t, fsys, newOneNode(), cfg)
		r.create("orders", 1)
		hang.Store(true)
		w := r.wait("orders")
		time.Sleep(time.Second)
		begun := time.Now()
		r.cancel()
		// The syncer hangs, so the owner, which has given up, cannot close the log.
		time.Sleep(2 * time.Second)
		close(release)
		if err := <-r.ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if err := <-w.produced; !fault.Is(err, fault.Timeout) {
			t.Errorf("the producer got %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}

// TestExactlyOnceOverCrashes: producers that repeat what they have no answer for, with the same key, over
// several power cuts, find each of their records once in the end.
func TestExactlyOnceOverCrashes(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		mem, metadata := newMem(t), newOneNode()
		r := begin(t, mem, metadata, testConfig("data"))
		r.create("orders", 3, "max.message.bytes", "2000")
		const producers, calls = 4, 30
		var done [producers]atomic.Int64 // calls that were acknowledged
		work := func(ctx context.Context, r *running) *sync.WaitGroup {
			var wg sync.WaitGroup
			for id := range producers {
				wg.Go(func() {
					for i := done[id].Load(); i < calls && ctx.Err() == nil; {
						a := &topic.Append{Topic: "orders", Acks: topic.AcksAll, Principal: topic.Anonymous, IdempotencyKey: fmt.Sprintf("%d:%d", id, i)}
						for n := range 15 { // some in a partition of their own, in more than one batch
							record := to(topic.AnyPartition, fmt.Sprintf("%d:%d:%d%s", id, i, n, strings.Repeat(" ", 200)))
							if n%3 == 0 {
								record.Key = fmt.Append(nil, id, i, n)
							}
							a.Records = append(a.Records, record)
						}
						if err := r.Produce(ctx, a); err != nil {
							return
						}
						if slices.ContainsFunc(a.Results, func(s topic.Stored) bool { return s.Err != nil }) {
							continue // the same again, as long as there is time
						}
						i = done[id].Add(1)
					}
				})
			}
			return &wg
		}
		for crash := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			wg := work(ctx, r)
			r.await("some more are stored", func() bool {
				sum := int64(0)
				for id := range done {
					sum += done[id].Load()
				}
				return sum >= int64(crash+1)*producers*calls/4
			})
			// What is in flight at the cut has no answer; what was answered before may be repeated too, which
			// must do no harm.
			var answered [producers]int64
			for id := range done {
				answered[id] = max(0, done[id].Load()-3)
			}
			crashed, before := mem.Crash(seed*10+uint64(crash)), metadata.clone()
			cancel()
			wg.Wait()
			r.stop()
			for id := range done {
				done[id].Store(answered[id])
			}
			mem, metadata = crashed, before
			r = begin(t, mem, metadata, testConfig("data"))
		}
		work(t.Context(), r).Wait()
		seen := map[string]int{}
		for p := range topic.Partition(3) {
			for _, record := range r.records("orders", p, 0) {
				seen[strings.TrimSpace(string(record.Value))]++
			}
		}
		for value, n := range seen {
			if n != 1 {
				t.Errorf("seed %d: %s is there %d times", seed, value, n)
			}
		}
		if len(seen) != producers*calls*15 {
			t.Errorf("seed %d: %d records of %d", seed, len(seen), producers*calls*15)
		}
		r.stop()
	}
}
