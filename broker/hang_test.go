package broker

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// awaitHung waits until a node has ended for its disk.
func (r *running) awaitHung() {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err == nil || !strings.Contains(err.Error(), "hangs") {
			r.t.Errorf("Run returned %v", err)
		}
	case <-time.After(20 * time.Second):
		r.t.Error("Run did not return")
	}
	if r.Ready() == nil {
		r.t.Error("the node says it is ready")
	}
}

// hangingConfig is impatient. What waits for a lock does so in real time.
func hangingConfig() Config {
	cfg := testConfig("data")
	cfg.DiskLimit, cfg.CleanInterval = 200*time.Millisecond, 10*time.Millisecond
	return cfg
}

// TestHangingWork: the node does not stay, and say that it is ready, when the disk hangs under anything
// else than an append.
func TestHangingWork(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		op       vfs.Op
		match    string // what the name of what hangs ends with
		settings []string
		do       func(r *running)
	}{
		"roll":    {vfs.OpSyncDir, "/0", []string{"segment.ms", "1"}, nil},
		"retain":  {vfs.OpRemove, ".log", []string{"retention.ms", "1"}, nil},
		"compact": {vfs.OpSync, ".cleaned", []string{"cleanup.policy", "compact", "segment.ms", "1", "min.cleanable.dirty.ratio", "0"}, nil},
		"delete records": {vfs.OpSync, "/start.tmp", nil, func(r *running) {
			if _, err := r.DeleteRecords(r.t.Context(), topic.Path{Topic: "orders"}, 1); err != nil {
				r.t.Error(err) // the disk went on in the end
			}
		}},
		"read and delete": {vfs.OpRead, ".log", nil, func(r *running) {
			if _, err := r.Fetch(r.t.Context(), topic.Fetch{Topic: "orders", LastEpoch: topic.NoEpoch}); err != nil {
				r.t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hang atomic.Bool
			release, began := make(chan struct{}), make(chan struct{}, 1)
			hook := func(op vfs.Op, name string) {
				if hang.Load() && op == scene.op && strings.HasSuffix(name, scene.match) {
					ring(began)
					<-release
				}
			}
			fsys := &slowFS{FS: newMem(t), other: hook, sync: func(name string) { hook(vfs.OpSync, name) }}
			r := begin(t, fsys, newOneNode(), testConfig("data"))
			r.create("orders", 1, scene.settings...)
			for _, v := range []string{"v0", "v1"} {
				record := to(0, v)
				record.Key = []byte("k")
				r.produce("orders", record)
			}
			r.stop() // so that readers find nothing in memory
			hang.Store(scene.do == nil)
			r = begin(t, fsys, r.cluster, hangingConfig())
			var wg sync.WaitGroup
			if scene.do != nil {
				hang.Store(true)
				wg.Go(func() { scene.do(r) })
			}
			select {
			case <-began:
			case <-time.After(20 * time.Second):
				t.Error("it does not hang")
			}
			if name == "read and delete" {
				if err := r.DeleteTopic(t.Context(), "orders"); err == nil {
					t.Error("the topic was deleted under its reader")
				}
			}
			r.awaitHung()
			close(release)
			wg.Wait()
		})
	}
}

// TestHangingStart: nobody waits for ever for a node whose disk hangs from the beginning.
func TestHangingStart(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	r := begin(t, mem, newOneNode(), testConfig("data"))
	r.create("orders", 1)
	r.produce("orders", to(0, "v"))
	r.stop()
	release := make(chan struct{})
	r = launch(t, &slowFS{FS: mem, other: func(op vfs.Op, _ string) {
		if op == vfs.OpRead {
			<-release
		}
	}}, r.cluster, hangingConfig())
	r.awaitHung()
	close(release)
}

// TestSlowWork: what takes many operations may take longer than one of them.
func TestSlowWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed atomic.Int32
		fsys := &slowFS{FS: newMem(t), other: func(op vfs.Op, _ string) {
			if op == vfs.OpRemove {
				removed.Add(1)
				time.Sleep(3 * time.Second)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		r.create("orders", 1, "retention.ms", "60000")
		r.produce("orders", to(0, "v"))
		time.Sleep(time.Hour)
		if n := removed.Load(); n < 3 || r.hwOf("orders") != 1 {
			t.Errorf("%d files were removed", n)
		}
		if _, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", LastEpoch: topic.NoEpoch}); !fault.Is(err, fault.OffsetRange) {
			t.Errorf("what has expired: %v", err)
		}
		r.stop()
	})
}
