package storage

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func TestACutSurvivesAnyCrash(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newScene(t, vfs.NewMem(), small)
		for range 12 {
			s.append(1, 3, 1+r.IntN(900))
			s.epoch += topic.Epoch(r.IntN(2))
		}
		if r.IntN(2) == 0 {
			s.sync()
		}
		to := topic.Offset(r.IntN(36))
		must(t, s.log.Truncate(to))
		want := to / 3 * 3
		if s.log.End() != want || s.log.Synced() > want {
			t.Fatalf("seed %d: cut to %d: end %d, synced %d", seed, to, s.log.End(), s.log.Synced())
		}
		if s.log.Mark().Epoch != s.log.EpochAt(want-1) {
			t.Fatalf("seed %d: mark %v", seed, s.log.Mark())
		}
		s.wantWhole()
		crashed := *s
		crashed.reopen(s.fs.(*vfs.Mem).Crash(seed))
		if crashed.log.End() != want || crashed.found.State != Synced {
			t.Fatalf("seed %d: after a crash the log ends at %d, not at %d: %+v", seed, crashed.log.End(), want, crashed.found)
		}
		crashed.wantWhole()
		must(t, crashed.log.Close())

		// Another history from the cut on.
		s.epoch += 10
		for o := range s.sent {
			if o >= want {
				delete(s.sent, o)
			}
		}
		s.append(4, 3, 700)
		s.sync()
		s.wantWhole()
		s.reopen(s.fs.(*vfs.Mem).Crash(seed + 1000))
		if s.log.End() != want+12 || s.found.State != Synced {
			t.Fatalf("seed %d: end %d, want %d: %+v", seed, s.log.End(), want+12, s.found)
		}
		s.wantWhole()
		must(t, s.log.Close())
	}
}

func TestACutBelowTheStartIsRefused(t *testing.T) {
	s := newScene(t, vfs.NewMem(), nil)
	s.append(4, 3, 10)
	must(t, s.log.AdvanceStart(6))
	if err := s.log.Truncate(5); !fault.Is(err, fault.Internal) || Final(err) {
		t.Fatal(err)
	}
	must(t, s.log.Truncate(100))
	if s.log.End() != 12 {
		t.Fatalf("end %d", s.log.End())
	}
	must(t, s.log.Truncate(6))
	if s.log.End() != 6 || s.log.Start() != 6 {
		t.Fatalf("%d to %d", s.log.Start(), s.log.End())
	}
	s.append(1, 1, 10)
	s.close()
	s.open()
	s.wantWhole()
}

func TestACutTakesBackWhatTheProducerTableKnew(t *testing.T) {
	s := newScene(t, vfs.NewMem(), small)
	put := func(first int32) {
		t.Helper()
		b := s.made(s.log.End(), 2, 900)
		batch.SetProducer(b, 7, 0, first)
		must(t, s.log.Append([][]byte{b}))
		s.sent[headerOf(t, b).BaseOffset] = b
	}
	for i := range int32(12) {
		put(2 * i)
	}
	check := func(first int32, want topic.Offset) {
		t.Helper()
		verdict, err := s.log.Producers().Check(Sequenced{Producer: 7, Epoch: 0, First: first, Span: 2}, time.Now())
		must(t, err)
		if verdict.Duplicate != (want >= 0) || want >= 0 && verdict.Base != want {
			t.Fatalf("sequence %d: %+v, want %d", first, verdict, want)
		}
	}
	check(22, 22)
	check(24, -1)
	s.sync()
	must(t, s.log.Truncate(8))
	check(0, 0) // its window of five reaches further back again
	check(6, 6)
	check(8, -1)
	put(8)
	s.sync()
	s.reopen(s.fs.(*vfs.Mem).Crash(3))
	check(8, 8)
	check(10, -1)
	s.close()
	s.open()
	check(8, 8)
	check(10, -1)
}

func TestAResetBeginsAnew(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMem()
		s := newScene(t, mem, small)
		for range 20 {
			s.append(1, 2, 900)
		}
		if seed%2 == 0 {
			s.sync()
		}
		start := topic.Offset(20 + 10*(seed%4)) // inside, at the end of and beyond what was there
		must(t, s.log.Reset(start))
		if s.log.Start() != start || s.log.End() != start || s.log.Mark().Epoch != topic.NoEpoch || s.log.EpochAt(5) != topic.NoEpoch {
			t.Fatalf("%d to %d, mark %v", s.log.Start(), s.log.End(), s.log.Mark())
		}
		s.sent = map[topic.Offset][]byte{}
		empty := *s
		empty.reopen(mem.Crash(seed))
		if empty.log.Start() != start || empty.log.End() != start || empty.found.State != Clean && empty.found.State != Synced {
			t.Fatalf("seed %d: %d to %d: %+v", seed, empty.log.Start(), empty.log.End(), empty.found)
		}
		must(t, empty.log.Close())
		s.append(3, 2, 900)
		s.sync()
		s.reopen(mem.Crash(seed))
		if s.log.Start() != start || s.log.End() != start+6 {
			t.Fatalf("seed %d: %d to %d: %+v", seed, s.log.Start(), s.log.End(), s.found)
		}
		s.wantWhole()
		must(t, s.log.Close())
	}
}

// Readers below the cut never see half of it.
func TestReadersBesideCuts(t *testing.T) {
	s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.SegmentBytes = 16 << 10 })
	s.append(10, 2, 700)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				for from := topic.Offset(0); from < 20; {
					piece, err := s.log.Read(from, 20, 2000)
					if err != nil || len(piece.Gaps) > 0 || piece.Next <= from {
						t.Errorf("at %d: next %d, gaps %v, %v", from, piece.Next, piece.Gaps, err)
						return
					}
					from = piece.Next
				}
				end := s.log.End()
				if piece, err := s.log.Read(20, max(20, end), 5000); err == nil && len(piece.Gaps) > 0 && s.log.cuts.Load() == 0 {
					t.Errorf("gaps %v", piece.Gaps)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range 60 {
		s.epoch++
		s.append(1+i%20, 2, 700)
		must(t, s.log.Truncate(20+topic.Offset(i%9)))
	}
	close(stop)
	wg.Wait()
}
