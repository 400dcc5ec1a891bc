package storage

import (
	"sync"
	"syscall"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
)

func fileSize(t *testing.T, fsys vfs.FS, name string) int64 {
	t.Helper()
	stat, err := fsys.Stat(name)
	must(t, err)
	return stat.Size()
}

func TestRoomIsFilledAheadFromTheSecondMiBOn(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, func(c *Config) { c.Settings.SegmentBytes = 11 << 20 })
	step := func(bytes int) {
		t.Helper()
		for range 10 {
			s.append(1, 1, bytes/10)
			s.sync()
		}
		must(t, s.log.Prepare())
	}
	step(900 << 10)
	name := s.segmentNames()[0]
	if size := fileSize(t, mem, name); size != s.size() {
		t.Fatalf("%d bytes of batches take %d in the first MiB", s.size(), size)
	}
	step(300 << 10)
	if size := fileSize(t, mem, name); size != 4<<20 {
		t.Fatalf("filled to %d", size)
	}
	step(900 << 10)
	step(900 << 10) // less than 2 MiB are left
	if size := fileSize(t, mem, name); size != 8<<20 {
		t.Fatalf("filled to %d", size)
	}
	if p := s.log.Stats().PreparedBytes; p != 8<<20-s.size() {
		t.Fatalf("%d bytes are prepared", p)
	}
	for range 5 {
		step(1 << 20)
	}
	if size := fileSize(t, mem, name); size != 11<<20 {
		t.Fatalf("filled to %d, beyond the segment's size", size)
	}
	s.wantWhole()

	// Zeros are no batches, neither after a kill nor after a power cut.
	for seed := range uint64(10) {
		other := *s
		other.reopen(mem.Crash(seed))
		if other.log.End() != s.log.End() || other.found.State != Synced || other.found.CutBytes != 0 {
			t.Fatalf("end %d, was %d: %+v", other.log.End(), s.log.End(), other.found)
		}
		if size := fileSize(t, other.fs, name); size != other.size() {
			t.Fatalf("%d bytes of batches take %d after a recovery", other.size(), size)
		}
		must(t, other.log.Close())
	}

	// A closed segment is cut to size, and the next one of a large partition is filled at once.
	for range 6 {
		step(1 << 20)
	}
	names := s.segmentNames()
	if size := fileSize(t, mem, names[0]); size > 11<<20 || size != s.log.view.Load().segments[0].size.Load() {
		t.Fatalf("the closed segment has %d bytes", size)
	}
	if size := fileSize(t, mem, names[1]); size < 4<<20 {
		t.Fatalf("the next segment is filled to %d", size)
	}
	s.close()
	if size := fileSize(t, mem, names[1]); size >= 4<<20 && size%(4<<20) == 0 {
		t.Fatalf("%d bytes after a close", size)
	}
	s.open()
	s.wantWhole()
}

func TestNothingIsFilledWhereNobodyWaitsForTheDisk(t *testing.T) {
	s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.FlushMessages = 0 })
	s.append(1, 1, 3<<20)
	s.sync()
	must(t, s.log.Prepare())
	if size := fileSize(t, s.fs, s.segmentNames()[0]); size != s.size() {
		t.Fatalf("filled to %d", size)
	}
}

func TestAFullDiskShowsWhenRoomIsFilledAhead(t *testing.T) {
	mem := vfs.NewMem()
	fail := vfs.NewFailing(mem)
	s := newScene(t, fail, nil)
	s.append(1, 1, 2<<20)
	s.sync()
	fail.Plan(vfs.Fault{Ops: vfs.OpWrite, Match: "*.log", Nth: 3, Err: syscall.ENOSPC, Short: 1000, Forever: true})
	if err := s.log.Prepare(); !fault.Is(err, fault.StorageFull) || Final(err) {
		t.Fatal(err)
	}
	if err := s.tryAppend(1, 1, 3<<20); !fault.Is(err, fault.StorageFull) {
		t.Fatal(err)
	}
	fail.Plan()
	for range 30 {
		s.append(1, 1, 100<<10)
		s.sync()
	}
	s.wantWhole()
	fail.Plan(vfs.Fault{Ops: vfs.OpWrite, Match: "*.log", Err: syscall.EIO})
	s.log.fillAfter = s.log.fillAfter.Add(-lookEvery)
	if err := s.log.Prepare(); !Final(err) {
		t.Fatalf("EIO while filling: %v", err)
	}
}

// The syncer writes zeros while the owner appends: never over a batch.
func TestFillingRunsBesideAppends(t *testing.T) {
	s := newScene(t, vfs.OS{}, func(c *Config) { c.Settings.SegmentBytes = 9 << 20 })
	s.append(1, 1, 1<<20)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			_, err := s.log.Sync()
			if err == nil {
				err = s.log.Prepare()
			}
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 300 {
		s.append(1+i%3, 2, 100+i*911%90_000)
	}
	close(stop)
	wg.Wait()
	s.wantWhole()
	s.close()
	s.open()
	s.wantWhole()
}

func TestLargeGroupsAreNotWrittenTwice(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, nil)
	for i := range 60 {
		s.append(1, 1, 1<<20)
		s.sync()
		must(t, s.log.Prepare())
		if prepared := s.log.Stats().PreparedBytes; i > 20 && prepared > 0 {
			t.Fatalf("%d bytes are filled ahead of syncs of 1 MiB", prepared)
		}
	}
	for i := 0; s.log.Stats().PreparedBytes == 0; i++ {
		if i > 30 {
			t.Fatal("nothing is filled ahead of small syncs")
		}
		s.append(1, 1, 1000)
		s.sync()
		must(t, s.log.Prepare())
	}
	s.wantWhole()
}
