package vfs_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/storage/vfs"
)

func TestWatchedPassesEverythingOn(t *testing.T) {
	boom := errors.New("boom")
	for op := vfs.OpOpen; op&vfs.AllOps != 0; op <<= 1 {
		failing := vfs.NewFailing(vfs.NewMem(), vfs.Fault{Ops: op, Err: boom})
		fsys := vfs.NewWatched(failing, time.Minute, func(op vfs.Op, name string) { t.Errorf("%v of %s hangs", op, name) })
		if failed := everything(fsys); !errors.Is(failed[op], boom) {
			t.Errorf("%v: %v", op, failed)
		}
		failing.Plan()
		if failed := everything(fsys); len(failed) != 0 {
			t.Errorf("%v: without a plan: %v", op, failed)
		}
	}
}

func TestWatchedTellsOfEachOperationThatTakesTooLong(t *testing.T) {
	const limit = 5 * time.Second
	for op := vfs.OpOpen; op&vfs.AllOps != 0; op <<= 1 {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var told []vfs.Op
			took := limit - 1
			hooked := vfs.Hooked(vfs.NewMem(), func(at vfs.Op, _ int) {
				if at == op {
					time.Sleep(took)
				}
			})
			fsys := vfs.NewWatched(hooked, limit, func(op vfs.Op, _ string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, op)
			})
			everything(fsys)
			synctest.Wait()
			if len(told) != 0 {
				t.Errorf("%v was in time, told of %v", op, told)
			}
			took = limit + 1
			everything(fsys)
			time.Sleep(limit) // a timer that was left running would tell
			synctest.Wait()
			want := []vfs.Op{op}
			if op == vfs.OpRemoveAll || op == vfs.OpLock {
				want = nil
			}
			if !slices.Equal(told, want) {
				t.Errorf("%v took too long, told of %v", op, told)
			}
		})
	}
}

// A long read is one of many operations, each of which may take its time.
func TestWatchedReadsInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads []int
		hooked := vfs.Hooked(vfs.NewMem(), func(op vfs.Op, bytes int) {
			if op == vfs.OpRead {
				reads = append(reads, bytes)
				time.Sleep(4 * time.Second)
			}
		})
		f := open(t, vfs.NewWatched(hooked, 5*time.Second, func(op vfs.Op, name string) { t.Errorf("%v of %s hangs", op, name) }), "/f")
		want := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/2/16)
		write(t, f, string(want), 0)
		got := make([]byte, len(want)+9)
		if n, err := f.ReadAt(got[:len(want)], 0); n != len(want) || err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if !slices.Equal(reads, []int{1 << 20, 1 << 20, 1 << 19}) {
			t.Fatalf("reads of %d bytes", reads)
		}
		if n, err := f.ReadAt(got[9:], 9); n != len(want)-9 || err == nil || !bytes.Equal(got[9:9+n], want[9:]) {
			t.Fatalf("past the end: %d bytes, %v", n, err)
		}
		must(t, f.Close())
	})
}
