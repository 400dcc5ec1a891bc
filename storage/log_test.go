package storage

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func TestWhatIsAppendedIsReadFromEachOffset(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS{}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, fsys, small)
			for i := range 60 {
				s.append(1+i%3, 1+i%4, 10+i*7%900)
			}
			if len(s.segmentNames()) < 4 {
				t.Fatalf("%d segments", len(s.segmentNames()))
			}
			s.wantWhole()
			for from := range s.log.End() {
				piece, err := s.log.Read(from, s.log.End(), 1)
				must(t, err)
				h := headerOf(t, piece.Batches)
				if h.BaseOffset > from || h.Next() <= from || piece.Next != h.Next() {
					t.Fatalf("offset %d: batch %d to %d, next %d", from, h.BaseOffset, h.LastOffset(), piece.Next)
				}
			}
			s.close()
			s.open()
			if s.found.State != Clean {
				t.Fatalf("after a close: %+v", s.found)
			}
			s.wantWhole()
			s.append(3, 3, 100)
			s.wantWhole()
		})
	}
}

func TestAReadStopsBelowTheHighWatermark(t *testing.T) {
	s := newScene(t, vfs.NewMem(), nil)
	s.append(5, 10, 50)
	for below := range topic.Offset(51) {
		piece, err := s.log.Read(0, below, 1<<20)
		must(t, err)
		if want := below / 10 * 10; piece.Next != want || len(piece.Gaps) > 0 {
			t.Fatalf("below %d: next is %d, want %d", below, piece.Next, want)
		}
	}
	for _, c := range []struct {
		from, below topic.Offset
		reason      topic.GapReason
	}{{20, 10, topic.BeyondEnd}, {51, 50, topic.BeyondEnd}, {29, 50, topic.Retention}} {
		if c.reason == topic.Retention {
			must(t, s.log.AdvanceStart(30))
		}
		_, err := s.log.Read(c.from, c.below, 100)
		var ranged *topic.RangeError
		if !fault.Is(err, fault.OffsetRange) || !errors.As(err, &ranged) || ranged.Reason != c.reason {
			t.Errorf("from %d below %d: %v", c.from, c.below, err)
		}
	}
}

func TestAnAppendThatDoesNotFitIsRefusedAndLeavesNoTrace(t *testing.T) {
	s := newScene(t, vfs.NewMem(), nil)
	s.append(2, 5, 50)
	s.epoch = 3
	s.append(1, 5, 50)
	good := s.made(15, 2, 10)
	for name, batches := range map[string][][]byte{
		"a hole":         {s.made(16, 1, 10)},
		"an overlap":     {s.made(14, 1, 10)},
		"a short batch":  {good[:len(good)-1]},
		"no header":      {good[:20]},
		"second is off":  {good, s.made(18, 1, 10)},
		"an older epoch": {func() []byte { s.epoch = 2; defer func() { s.epoch = 3 }(); return s.made(15, 1, 10) }()},
	} {
		if err := s.log.Append(batches); !fault.Is(err, fault.Internal) || Final(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, s.log.Append(nil))
	if s.log.Mark() != (topic.Mark{Epoch: 3, End: 15}) {
		t.Fatalf("mark %v", s.log.Mark())
	}
	s.append(1, 2, 10)
	s.wantWhole()
}

func TestEpochsAreKnownByOffset(t *testing.T) {
	s := newScene(t, vfs.NewMem(), small)
	s.append(2, 5, 50)
	s.epoch = 4
	s.append(4, 5, 900)
	s.epoch = 5
	s.append(1, 5, 50)
	check := func() {
		t.Helper()
		for e, want := range map[topic.Epoch]topic.Mark{
			0: {Epoch: topic.NoEpoch, End: 0}, 1: {Epoch: 1, End: 10}, 3: {Epoch: 1, End: 10}, 4: {Epoch: 4, End: 30}, 5: {Epoch: 5, End: 35}, 9: {Epoch: 5, End: 35},
		} {
			if got := s.log.EpochEnd(e); got != want {
				t.Errorf("epoch %d ends at %v, want %v", e, got, want)
			}
		}
		if s.log.EpochAt(9) != 1 || s.log.EpochAt(10) != 4 || s.log.EpochAt(34) != 5 {
			t.Errorf("epochs by offset: %d %d %d", s.log.EpochAt(9), s.log.EpochAt(10), s.log.EpochAt(34))
		}
	}
	check()
	s.sync()
	s.reopen(s.fs.(*vfs.Mem).Kill())
	check()
	s.close()
	for _, remove := range []bool{false, true} {
		if remove {
			must(t, s.fs.Remove(s.dir+"/"+epochsName))
		}
		s.open()
		check()
		s.close()
	}
}

func TestSyncCoversWhatWasWrittenBeforeItBegan(t *testing.T) {
	fsys := &gate{FS: vfs.NewMem(), match: logSuffix}
	s := newScene(t, fsys, nil)
	s.append(1, 3, 10)
	entered, leave := fsys.hold()
	var end topic.Offset
	var err error
	done := make(chan struct{})
	go func() { defer close(done); end, err = s.log.Sync() }()
	<-entered
	s.append(1, 4, 10) // the owner does not wait for the disk
	close(leave)
	<-done
	must(t, err)
	if end != 3 || s.log.Synced() != 3 {
		t.Fatalf("a sync released %d, but 3 was written before it began", end)
	}
	if s.sync() != 7 {
		t.Fatalf("synced %d", s.log.Synced())
	}
}

// gate holds the next sync of a kind of file until it is told to go on.
type gate struct {
	vfs.FS
	match string
	mu    sync.Mutex
	in    chan struct{}
	out   chan struct{}
}

func (g *gate) hold() (entered <-chan struct{}, leave chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in, g.out = make(chan struct{}), make(chan struct{})
	return g.in, g.out
}

func (g *gate) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := g.FS.Open(name, flag, perm)
	if err != nil || len(name) < len(g.match) || name[len(name)-len(g.match):] != g.match {
		return f, err
	}
	return gatedFile{f, g}, nil
}

type gatedFile struct {
	vfs.File
	g *gate
}

func (f gatedFile) Sync() error {
	f.g.mu.Lock()
	in, out := f.g.in, f.g.out
	f.g.in, f.g.out = nil, nil
	f.g.mu.Unlock()
	if in != nil {
		close(in)
		<-out
	}
	return f.File.Sync()
}

func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, small)
	s.append(3, 3, 100)
	for round := range 4 {
		fail := vfs.NewFailing(mem, vfs.Fault{Ops: vfs.OpWrite, Match: "*" + logSuffix, Nth: 1, Err: syscall.ENOSPC, Short: 150 * round})
		s.sync()
		s.close()
		s.fs = fail
		fail.Plan()
		s.open()
		s.append(1, 1, 10)
		before := s.log.Mark()
		fail.Plan(vfs.Fault{Ops: vfs.OpWrite, Match: "*" + logSuffix, Err: syscall.ENOSPC, Short: 150 * round})
		err := s.tryAppend(3, 2, 100)
		if !fault.Is(err, fault.StorageFull) || Final(err) || fail.Fired() != 1 {
			t.Fatalf("round %d: %v", round, err)
		}
		if s.log.Mark() != before {
			t.Fatalf("round %d: mark %v, was %v", round, s.log.Mark(), before)
		}
		// Not even a crash right now brings back what was refused.
		for seed := range uint64(20) {
			other := *s
			other.reopen(mem.Crash(seed))
			if end := other.log.End(); end > before.End {
				t.Fatalf("round %d, seed %d: a refused batch is back, the log ends at %d", round, seed, end)
			}
		}
		fail.Plan()
		s.append(2, 2, 100)
		s.wantWhole()
		s.fs = mem
	}
}

func TestNoRoomIsSeenBeforeTheDiskIsFull(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetSpace(256 << 10)
	s := newScene(t, mem, func(c *Config) { small(c); c.Room = NewRoom(mem, "/", 64<<10) })
	var err error
	for err == nil {
		err = s.tryAppend(1, 1, 4000)
	}
	if !fault.Is(err, fault.StorageFull) || Final(err) {
		t.Fatal(err)
	}
	if space, _ := mem.Space("/"); space.Free < 32<<10 {
		t.Fatalf("only %d bytes are left of the reserve", space.Free)
	}
	s.sync()
	s.wantWhole()
	mem.SetSpace(1 << 20)
	s.append(1, 1, 4000)
	s.wantWhole()
}

func TestADiskErrorIsFinal(t *testing.T) {
	for name, c := range map[string]struct {
		fault vfs.Fault
		do    func(s *scene) error
	}{
		"write":    {vfs.Fault{Ops: vfs.OpWrite, Match: "*.log"}, func(s *scene) error { return s.tryAppend(1, 1, 10) }},
		"fsync":    {vfs.Fault{Ops: vfs.OpSync, Match: "*.log"}, func(s *scene) error { _, err := s.log.Sync(); return err }},
		"truncate": {vfs.Fault{Ops: vfs.OpTruncate, Match: "*.log"}, func(s *scene) error { return s.log.Truncate(2) }},
		"syncdir":  {vfs.Fault{Ops: vfs.OpSyncDir}, func(s *scene) error { return s.log.Truncate(2) }},
		"rename":   {vfs.Fault{Ops: vfs.OpRename}, func(s *scene) error { return s.log.AdvanceStart(2) }},
		"floor":    {vfs.Fault{Ops: vfs.OpWrite, Match: floorName}, func(s *scene) error { _, err := s.log.Sync(); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			fail := vfs.NewFailing(mem)
			s := newScene(t, fail, nil)
			s.append(2, 2, 10)
			s.sync()
			s.append(1, 1, 10)
			synced := s.log.Synced()
			c.fault.Err = syscall.EIO
			fail.Plan(c.fault)
			if err := c.do(s); !Final(err) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("not final: %v", err)
			}
			fail.Plan()
			for what, again := range map[string]error{
				"append": s.tryAppend(1, 1, 10), "truncate": s.log.Truncate(1), "start": s.log.AdvanceStart(1), "roll": s.log.Roll(time.Now()),
			} {
				if !Final(again) {
					t.Errorf("%s goes on: %v", what, again)
				}
			}
			if end, err := s.log.Sync(); !Final(err) || end != 0 {
				t.Errorf("sync goes on: %d, %v", end, err)
			}
			if s.log.Synced() > synced {
				t.Errorf("synced rose to %d", s.log.Synced())
			}
			if err := s.log.Close(); !Final(err) {
				t.Errorf("close: %v", err)
			}
			if open := mem.OpenFiles(); len(open) > 0 {
				t.Errorf("open after close: %v", open)
			}
			if ok, _ := vfs.Exists(mem, s.dir+"/"+cleanName); ok {
				t.Error("a failed log left a clean mark")
			}
		})
	}
}

func TestReadersGoOnBesideTheWriter(t *testing.T) {
	s := newScene(t, vfs.OS{}, func(c *Config) { c.Settings.SegmentBytes = 32 << 10; c.Files = NewFiles(2, 1<<10) })
	s.append(1, 1, 10)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			from := topic.Offset(0)
			for {
				end := s.log.End()
				piece, err := s.log.Read(from, end, 3000)
				if err != nil {
					t.Error(err)
					return
				}
				if len(piece.Gaps) > 0 || from < end && piece.Next == from {
					t.Errorf("at %d below %d: next %d, gaps %v", from, end, piece.Next, piece.Gaps)
					return
				}
				from = piece.Next
				if _, _, err := s.log.OffsetForTime(1_700_000_000_000, end); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					if from == s.log.End() {
						return
					}
				default:
				}
			}
		})
	}
	wg.Go(func() {
		for {
			if _, err := s.log.Sync(); err != nil {
				t.Error(err)
				return
			}
			if err := s.log.Prepare(); err != nil {
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
	for i := range 400 {
		s.append(1+i%3, 1+i%5, 50+i%700)
		if i%50 == 0 {
			must(t, s.log.Rest())
		}
	}
	close(stop)
	wg.Wait()
	s.wantWhole()
}

func headerOf(t *testing.T, b []byte) batch.Header {
	t.Helper()
	h, err := batch.Check(b)
	must(t, err)
	return h
}
