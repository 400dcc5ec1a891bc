package storage

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
)

var testKind = kind{"wtst", 3}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestASmallFileIsReadAsItWasWritten(t *testing.T) {
	m := vfs.NewMem()
	for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("abc"), 10_000)} {
		must(t, writeSmall(m, "/small", testKind, payload))
		got, err := readSmall(m, "/small", testKind)
		must(t, err)
		if !bytes.Equal(got, payload) {
			t.Fatalf("got %d bytes, want %d", len(got), len(payload))
		}
	}
	if left := m.OpenFiles(); len(left) > 0 {
		t.Fatalf("left open: %v", left)
	}
}

func TestASmallFileWithAnyDamageIsUnreadable(t *testing.T) {
	good := encodeSmall(testKind, []byte("the payload"))
	damaged := func(what string, b []byte) {
		t.Helper()
		m := vfs.NewMem()
		must(t, replaceFile(m, "/small", b))
		if got, err := readSmall(m, "/small", testKind); !errors.Is(err, errUnreadable) || !missing(err) {
			t.Errorf("%s: read %q, %v", what, got, err)
		}
	}
	for n := range good {
		damaged("cut", good[:n])
		for bit := range 8 {
			b := slices.Clone(good)
			b[n] ^= 1 << bit
			damaged("flipped", b)
		}
	}
	damaged("longer", append(slices.Clone(good), 0))
	damaged("another kind", encodeSmall(kind{"wabc", 3}, nil))
	damaged("another version", encodeSmall(kind{"wtst", 4}, nil))
	if _, err := readSmall(vfs.NewMem(), "/small", testKind); !errors.Is(err, fs.ErrNotExist) || !missing(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestACrashLeavesTheOldSmallFileOrTheNewOne(t *testing.T) {
	m := vfs.NewMem()
	must(t, writeSmall(m, "/small", testKind, []byte("old")))
	for nth := 1; ; nth++ {
		before := m.Kill()
		f := vfs.NewFailing(before, vfs.Fault{Ops: vfs.ChangeOps | vfs.OpOpen | vfs.OpClose, Nth: nth, Err: syscall.EIO})
		err := writeSmall(f, "/small", testKind, []byte("new"))
		if f.Fired() == 0 {
			must(t, err)
			break
		}
		if err == nil {
			t.Fatalf("operation %d failed and nobody heard of it", nth)
		}
		for seed := range uint64(50) {
			after := before.Crash(seed)
			got, err := readSmall(after, "/small", testKind)
			if err != nil || string(got) != "old" && string(got) != "new" {
				t.Fatalf("operation %d failed, seed %d: %q, %v", nth, seed, got, err)
			}
			_, err = removeAsides(after, "/")
			must(t, err)
			entries, err := after.ReadDir("/")
			must(t, err)
			if len(entries) != 1 {
				t.Fatalf("left behind: %v", entries)
			}
		}
	}
	must(t, writeSmall(m, "/small", testKind, []byte("new")))
	for seed := range uint64(50) {
		got, err := readSmall(m.Crash(seed), "/small", testKind)
		if err != nil || string(got) != "new" {
			t.Fatalf("seed %d: what was written is gone: %q, %v", seed, got, err)
		}
	}
}

func TestASmallFileHasABound(t *testing.T) {
	err := writeSmall(vfs.NewMem(), "/small", testKind, make([]byte, mostSmallBytes))
	if !errors.Is(err, vfs.ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
}
