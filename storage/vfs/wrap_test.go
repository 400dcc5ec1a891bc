package vfs_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
)

// everything does each operation once and returns the errors by kind.
func everything(fsys vfs.FS) map[vfs.Op]error {
	failed := map[vfs.Op]error{}
	note := func(op vfs.Op, err error) {
		if err != nil {
			failed[op] = err
		}
	}
	note(vfs.OpMkdirAll, fsys.MkdirAll("/d", 0o755))
	_, err := fsys.ReadDir("/")
	note(vfs.OpReadDir, err)
	_, err = fsys.Stat("/")
	note(vfs.OpStat, err)
	_, err = fsys.Space("/")
	note(vfs.OpSpace, err)
	note(vfs.OpSyncDir, fsys.SyncDir("/"))
	lock, err := fsys.Lock("/lock")
	note(vfs.OpLock, err)
	if err == nil {
		_ = lock.Close()
	}
	f, err := fsys.Open("/f", 0x42, 0o644) // O_RDWR|O_CREATE
	note(vfs.OpOpen, err)
	if err == nil {
		_, err = f.WriteAt([]byte("content"), 0)
		note(vfs.OpWrite, err)
		_, err = f.ReadAt(make([]byte, 7), 0)
		note(vfs.OpRead, err)
		note(vfs.OpSync, f.Sync())
		_, err = f.Size()
		note(vfs.OpSize, err)
		note(vfs.OpTruncate, f.Truncate(7))
		note(vfs.OpClose, f.Close())
		note(vfs.OpRename, fsys.Rename("/f", "/g"))
		note(vfs.OpRemove, fsys.Remove("/g"))
	}
	note(vfs.OpRemoveAll, fsys.RemoveAll("/g"))
	return failed
}

func TestFailingFailsEachKindOfOperation(t *testing.T) {
	boom := errors.New("boom")
	for op := vfs.OpOpen; op&vfs.AllOps != 0; op <<= 1 {
		m := vfs.NewMem()
		f := vfs.NewFailing(m, vfs.Fault{Ops: op, Err: boom})
		failed := everything(f)
		if !errors.Is(failed[op], boom) {
			t.Errorf("%v: %v", op, failed)
		}
		if f.Fired() != 1 || f.Seen(0) < 1 {
			t.Errorf("%v: fired %d, seen %d", op, f.Fired(), f.Seen(0))
		}
		f.Plan()
		if again := everything(f); len(again) != 0 {
			t.Errorf("%v: without a plan: %v", op, again)
		}
	}
}

func TestFailingCountsAmongThoseThatMatch(t *testing.T) {
	write := func(f vfs.File) error { _, err := f.WriteAt([]byte("abc"), 0); return err }
	boom := errors.New("boom")
	for _, c := range []struct {
		fault vfs.Fault
		want  []bool // which of three writes to each of a.log and b.idx fail, a first
	}{
		{vfs.Fault{Ops: vfs.OpWrite}, []bool{true, false, false, false, false, false}},
		{vfs.Fault{Ops: vfs.OpWrite, Nth: 4}, []bool{false, false, false, true, false, false}},
		{vfs.Fault{Ops: vfs.OpWrite, Match: "*.idx", Nth: 2}, []bool{false, false, false, true, false, false}},
		{vfs.Fault{Ops: vfs.OpWrite, Match: "*.log", Nth: 2, Forever: true}, []bool{false, false, true, false, true, false}},
		{vfs.Fault{Ops: vfs.OpSync}, make([]bool, 6)},
	} {
		c.fault.Err = boom
		fsys := vfs.NewFailing(vfs.NewMem(), c.fault)
		a, b := open(t, fsys, "/a.log"), open(t, fsys, "/b.idx")
		var got []bool
		for range 3 {
			got = append(got, errors.Is(write(a), boom), errors.Is(write(b), boom))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.fault, got, c.want)
		}
	}
}

func TestFailingWritesShortOrDoesItAllTheSame(t *testing.T) {
	m := vfs.NewMem()
	fsys := vfs.NewFailing(m, vfs.Fault{Ops: vfs.OpWrite, Short: 2, Err: syscall.ENOSPC})
	f := open(t, fsys, "/f")
	n, err := f.WriteAt([]byte("abcd"), 0)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) || content(t, m, "/f") != "ab" {
		t.Fatalf("%d, %v, %q", n, err, content(t, m, "/f"))
	}
	fsys.Plan(vfs.Fault{Ops: vfs.OpRename, Done: true, Err: syscall.EIO})
	if err := fsys.Rename("/f", "/g"); !errors.Is(err, syscall.EIO) || content(t, m, "/g") != "ab" {
		t.Fatalf("%v", err)
	}
	fsys.Plan(vfs.Fault{Ops: vfs.OpOpen, Done: true, Err: syscall.EMFILE})
	if _, err := fsys.Open("/g", 2, 0); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("%v", err)
	}
	must(t, f.Close())
	if left := m.OpenFiles(); len(left) != 0 {
		t.Fatalf("left open: %v", left)
	}
}

func TestCountingCountsOperationsBytesAndOpenFiles(t *testing.T) {
	c := vfs.NewCounting(vfs.NewMem())
	if failed := everything(c); len(failed) != 0 {
		t.Fatal(failed)
	}
	counts := c.Counts()
	for op := vfs.OpOpen; op&vfs.AllOps != 0; op <<= 1 {
		if counts[op].Ops != 1 {
			t.Errorf("%v: %+v", op, counts[op])
		}
	}
	if sum := counts.Of(vfs.OpRead | vfs.OpWrite); sum != (vfs.Count{Ops: 2, Bytes: 14}) {
		t.Errorf("reads and writes: %+v", sum)
	}
	if now, peak := c.OpenFiles(); now != 0 || peak != 1 {
		t.Errorf("open: %d, peak %d", now, peak)
	}
	_, _ = c.Stat("/")
	diff := c.Counts().Since(counts)
	if diff.Of(vfs.AllOps) != (vfs.Count{Ops: 1}) || diff.String() != "stat 1" {
		t.Errorf("since: %v", diff)
	}
	if got := (vfs.OpWrite | vfs.OpSync).String(); got != "write|sync" {
		t.Errorf("got %q", got)
	}
}
