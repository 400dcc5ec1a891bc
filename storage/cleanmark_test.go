package storage

import (
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

var aMark = cleanMark{
	Incarnation: 9, Start: 100, Mark: topic.Mark{Epoch: 3, End: 250}, Segment: 200, Bytes: 4711, Segments: 2,
}

func TestTheCleanMarkStandsUntilItIsRemoved(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/p", 0o755))
	must(t, m.SyncDir("/"))
	read := func(fsys vfs.FS) (cleanMark, bool) {
		t.Helper()
		mark, ok, err := readCleanMark(fsys, "/p")
		must(t, err)
		return mark, ok
	}
	if _, ok := read(m); ok {
		t.Fatal("a mark out of nothing")
	}
	must(t, removeCleanMark(m, "/p"))
	must(t, writeCleanMark(m, "/p", aMark))
	for seed := range uint64(100) {
		if mark, ok := read(m.Crash(seed)); !ok || mark != aMark {
			t.Fatalf("seed %d: %+v, %v", seed, mark, ok)
		}
	}
	must(t, removeCleanMark(m, "/p"))
	for seed := range uint64(100) {
		if mark, ok := read(m.Crash(seed)); ok {
			t.Fatalf("seed %d: a mark that was removed is back: %+v", seed, mark)
		}
	}
}

func TestACleanMarkThatMakesNoSenseIsNone(t *testing.T) {
	for name, change := range map[string]func(m *cleanMark){
		"start above end":       func(m *cleanMark) { m.Start = 251 },
		"negative start":        func(m *cleanMark) { m.Start = -1 },
		"segment above end":     func(m *cleanMark) { m.Segment = 251 },
		"negative size":         func(m *cleanMark) { m.Bytes = -1 },
		"no segment":            func(m *cleanMark) { m.Segments = 0 },
		"epoch below NoEpoch":   func(m *cleanMark) { m.Mark.Epoch = -2 },
		"nothing that is wrong": func(*cleanMark) {},
	} {
		m, mark := vfs.NewMem(), aMark
		change(&mark)
		must(t, writeCleanMark(m, "/", mark))
		if _, ok, err := readCleanMark(m, "/"); err != nil || ok != (mark == aMark) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	m := vfs.NewMem()
	must(t, writeSmall(m, "/"+cleanName, cleanKind, []byte("short")))
	if _, ok, err := readCleanMark(m, "/"); ok || err != nil {
		t.Errorf("a short payload: %v, %v", ok, err)
	}
}
