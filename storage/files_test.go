package storage

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestClosedSegmentsAndIdleLogsKeepFewFilesOpen(t *testing.T) {
	counting := vfs.NewCounting(vfs.NewMem())
	files := NewFiles(8, 1<<20)
	s := newScene(t, counting, func(c *Config) { small(c); c.Files = files })
	for range 100 {
		s.append(1, 2, 2000)
	}
	s.sync()
	s.wantWhole()
	if n := len(s.segmentNames()); n < 40 {
		t.Fatalf("%d segments", n)
	}
	if now, peak := counting.OpenFiles(); now > 10 || peak > 13 {
		t.Fatalf("%d files are open, %d were", now, peak)
	}
	must(t, s.log.Rest())
	s.append(1, 1, 10)
	must(t, s.log.Rest()) // it does not rest before it is synced
	if s.log.idx == nil {
		t.Fatal("rested with something to sync")
	}
	s.sync()
	must(t, s.log.Rest())
	active := s.log.view.Load().active()
	if s.log.idx != nil || active.index.loaded.Load() != nil || active.log.f != nil {
		t.Fatal("the log does not rest")
	}
	s.wantWhole()
	s.append(1, 1, 10)
	s.wantWhole()
	s.close()
	if now, _ := counting.OpenFiles(); now != 0 {
		t.Fatalf("%d files are open after a close", now)
	}
	if files.Open() != 0 {
		t.Fatalf("the set counts %d", files.Open())
	}
}

// A file with something to sync stays open, whoever needs room: after an error of the disk, another
// descriptor would not be told.
func TestAFileThatWaitsForASyncStaysOpen(t *testing.T) {
	mem := vfs.NewMem()
	files := NewFiles(1, 1<<20)
	var logs []*scene
	for i := range 4 {
		s := &scene{t: t, fs: mem, dir: fmt.Sprintf("/topics/a/%d", i), cfg: Default(topic.Path{Topic: "a", Partition: topic.Partition(i)}, topic.ID{1}), sent: map[topic.Offset][]byte{}}
		s.cfg.Files = files
		s.open()
		s.append(1, 1, 10)
		logs = append(logs, s)
	}
	if files.Open() != 4 {
		t.Fatalf("%d files are open, 4 wait for a sync", files.Open())
	}
	for _, s := range logs {
		s.sync()
		s.wantWhole()
	}
	if files.Open() != 1 {
		t.Fatalf("%d files are open", files.Open())
	}
	for _, s := range logs {
		s.close()
	}
}

func TestIndexesInMemoryAreBounded(t *testing.T) {
	files := NewFiles(8, 1200)
	s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.SegmentBytes = 100 << 10; c.Files = files })
	for range 300 {
		s.append(1, 1, 5000)
	}
	s.sync()
	s.wantWhole()
	loaded := 0
	for _, g := range s.log.view.Load().segments {
		if g.index.loaded.Load() != nil {
			loaded++
		}
	}
	if n := len(s.segmentNames()); n < 12 || loaded > 8 {
		t.Fatalf("of %d segments %d have their index in memory", n, loaded)
	}
}

func TestOpeningALargeLogTakesNoMoreThanASmallOne(t *testing.T) {
	measure := func(batches int) vfs.Counts {
		s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.SegmentBytes = 1 << 20 })
		for range batches {
			s.append(1, 1, 100<<10)
			s.sync()
		}
		s.close()
		counting := vfs.NewCounting(s.fs)
		s.fs = counting
		before := counting.Counts()
		s.open()
		if s.found.State != Clean || s.found.Scanned != 0 {
			t.Fatalf("%+v", s.found)
		}
		return counting.Counts().Since(before)
	}
	few, many := measure(5), measure(500)
	if few.String() != many.String() {
		t.Fatalf("a log of half a MiB: %v\nof 50 MiB: %v", few, many)
	}
	if n := few.Of(vfs.OpSync | vfs.OpWrite | vfs.OpTruncate).Ops; n != 0 {
		t.Fatalf("an open after a close writes: %v", few)
	}
}

func TestAnIdleLogCostsLittleMemory(t *testing.T) {
	const logs = 300
	files := NewFiles(64, 1<<20)
	mem := vfs.NewMem()
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var all []*Log
	for i := range logs {
		s := &scene{t: t, fs: mem, dir: fmt.Sprintf("/topics/a/%d", i), cfg: Default(topic.Path{Topic: "a", Partition: topic.Partition(i)}, topic.ID{1}), sent: map[topic.Offset][]byte{}}
		s.cfg.Files = files
		s.open()
		s.append(30, 1, 300)
		s.sync()
		s.close()
	}
	before := heap()
	for i := range logs {
		cfg := Default(topic.Path{Topic: "a", Partition: topic.Partition(i)}, topic.ID{1})
		cfg.Files = files
		l, _, err := Open(mem, fmt.Sprintf("/topics/a/%d", i), cfg)
		must(t, err)
		_, err = l.Read(0, l.End(), 1000)
		must(t, err)
		must(t, l.Append([][]byte{(&scene{t: t, epoch: 1}).made(l.End(), 1, 10)}))
		_, err = l.Sync()
		must(t, err)
		must(t, l.Rest())
		all = append(all, l)
	}
	if each := (heap() - before) / logs; each > 20<<10 {
		t.Errorf("an idle log takes %d bytes", each)
	} else {
		t.Logf("an idle log takes %d bytes", each)
	}
	for _, l := range all {
		must(t, l.Close())
	}
}
