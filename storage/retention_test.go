package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestRetentionBySizeKeepsWhatTheSettingAsksFor(t *testing.T) {
	s := newScene(t, vfs.NewMem(), func(c *Config) { small(c); c.Settings.RetentionBytes, c.Settings.RetentionAge = 20<<10, -1 })
	for range 40 {
		s.append(1, 2, 900)
	}
	s.sync()
	before := s.log.Stats()
	did, err := s.log.Retain(s.log.End(), time.Now())
	must(t, err)
	after := s.log.Stats()
	if did.Segments == 0 || before.Bytes-after.Bytes != did.Bytes || after.Bytes < 20<<10 || after.Bytes > 28<<10 {
		t.Fatalf("%+v: %d bytes, then %d", did, before.Bytes, after.Bytes)
	}
	if len(s.segmentNames()) != after.Segments || s.log.Start() == 0 {
		t.Fatalf("%d files, %d segments, start %d", len(s.segmentNames()), after.Segments, s.log.Start())
	}
	s.wantWhole()
	if _, err := s.log.Read(s.log.Start()-1, s.log.End(), 10); !fault.Is(err, fault.OffsetRange) {
		t.Fatal(err)
	}
	start := s.log.Start()
	for seed := range uint64(30) {
		other := *s
		other.reopen(s.fs.(*vfs.Mem).Crash(seed))
		if other.log.Start() != start {
			t.Fatalf("seed %d: the start went from %d to %d", seed, start, other.log.Start())
		}
		other.wantWhole()
		must(t, other.log.Close())
	}
}

func TestRetentionStopsAtTheHighWatermarkAndAtTheActiveSegment(t *testing.T) {
	s := newScene(t, vfs.NewMem(), func(c *Config) { small(c); c.Settings.RetentionBytes, c.Settings.RetentionAge = 0, -1 })
	for range 20 {
		s.append(1, 1, 1800)
	}
	hw := topic.Offset(9)
	_, err := s.log.Retain(hw, time.Now())
	must(t, err)
	if s.log.Start() > hw || s.log.Start() < hw-5 {
		t.Fatalf("start %d with a high watermark of %d", s.log.Start(), hw)
	}
	_, err = s.log.Retain(s.log.End(), time.Now())
	must(t, err)
	if n := len(s.segmentNames()); n != 1 || s.log.Start() >= s.log.End() {
		t.Fatalf("%d segments, start %d", n, s.log.Start())
	}
	s.wantWhole()
}

func TestRetentionByAgeGoesByTheNewestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, vfs.NewMem(), func(c *Config) { small(c); c.Settings.RetentionAge = time.Hour })
		for i := range 8 {
			s.now = topic.Millis(time.Now().UnixMilli())
			if i == 0 {
				s.now += 400 * 24 * 3600 * 1000 // a producer with a wrong clock
			}
			s.append(3, 1, 1800)
			time.Sleep(10 * time.Minute)
		}
		s.sync()
		did, err := s.log.Retain(s.log.End(), time.Now())
		must(t, err)
		if did.Segments == 0 || s.log.Start() < 3 || s.log.Start() > 9 {
			t.Fatalf("%+v: start %d", did, s.log.Start())
		}
		// Its own settings may keep everything, too.
		settings := s.log.Settings()
		settings.RetentionAge = -time.Millisecond
		s.log.SetConfig(settings)
		did, err = s.log.Retain(s.log.End(), time.Now().Add(1000*time.Hour))
		must(t, err)
		if did.Segments != 0 {
			t.Fatalf("retention.ms=-1 deleted: %+v", did)
		}
	})
}

// After a start with a wrong clock nothing tells of the jump, so a pass is bounded.
func TestOnePassDoesNotEmptyALog(t *testing.T) {
	s := newScene(t, vfs.NewMem(), func(c *Config) { small(c); c.Settings.RetentionAge = 24 * time.Hour })
	for range 200 {
		s.append(1, 1, 7000)
	}
	s.sync()
	total := s.log.Stats().Segments
	did, err := s.log.Retain(s.log.End(), time.Now())
	must(t, err)
	if did.Segments != total/4 || !did.More {
		t.Fatalf("%+v of %d segments", did, total)
	}
}

func TestDeletionsForAgeWaitAfterTheClockJumped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, vfs.NewMem(), func(c *Config) { small(c); c.Settings.RetentionAge = 24 * time.Hour })
		s.now = topic.Millis(time.Now().Add(-48 * time.Hour).UnixMilli())
		for range 3 {
			s.append(1, 1, 7000)
		}
		s.sync()
		retain := func() Retained {
			t.Helper()
			did, err := s.log.Retain(s.log.End(), time.Now())
			must(t, err)
			return did
		}
		s.log.pass.held(time.Now())
		time.Sleep(time.Minute)
		s.log.pass.wall -= 24 * time.Hour // so that the clock seems to have gone on by a day and a minute
		if did := retain(); did.Segments != 0 || !did.Held {
			t.Fatalf("right after the jump: %+v", did)
		}
		time.Sleep(59 * time.Minute)
		if did := retain(); did.Segments != 0 || !did.Held {
			t.Fatalf("before an hour was over: %+v", did)
		}
		time.Sleep(2 * time.Minute)
		if did := retain(); did.Segments == 0 || did.Held {
			t.Fatalf("an hour later: %+v", did)
		}
	})
}

func TestDeletedRecordsAreGoneForGood(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, func(c *Config) { small(c); c.Settings.RetentionAge = -1 })
	for range 20 {
		s.append(1, 3, 900)
	}
	s.sync()
	must(t, s.log.AdvanceStart(31))
	must(t, s.log.AdvanceStart(7)) // it only rises
	if s.log.Start() != 31 {
		t.Fatalf("start %d", s.log.Start())
	}
	if err := s.log.AdvanceStart(61); !fault.Is(err, fault.Internal) || Final(err) {
		t.Fatalf("above the end: %v", err)
	}
	for seed := range uint64(20) {
		other := *s
		other.reopen(mem.Crash(seed))
		if other.log.Start() != 31 {
			t.Fatalf("seed %d: start %d", seed, other.log.Start())
		}
		must(t, other.log.Close())
	}
	did, err := s.log.Retain(s.log.End(), time.Now())
	must(t, err)
	if did.Segments == 0 {
		t.Fatal("whole segments below the start stay")
	}
	piece, err := s.log.Read(31, s.log.End(), 1)
	must(t, err)
	if h := headerOf(t, piece.Batches); h.BaseOffset != 30 {
		t.Fatalf("the batch that holds offset 31 begins at %d", h.BaseOffset)
	}
	must(t, s.log.AdvanceStart(60))
	_, err = s.log.Retain(s.log.End(), time.Now())
	must(t, err)
	if piece, err := s.log.Read(60, 60, 1); err != nil || piece.Next != 60 {
		t.Fatalf("%+v, %v", piece, err)
	}
	s.append(1, 3, 10)
	s.close()
	s.open()
	if s.log.Start() != 60 || s.log.End() != 63 || s.found.State != Clean {
		t.Fatalf("%d to %d, %+v", s.log.Start(), s.log.End(), s.found)
	}
	s.wantWhole()
}

func TestASegmentIsClosedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, vfs.NewMem(), func(c *Config) {
			c.Settings.SegmentAge, c.Settings.RetentionAge = 2*time.Hour, 3*time.Hour
		})
		roll := func(want int) {
			t.Helper()
			must(t, s.log.Roll(time.Now()))
			if n := s.log.Stats().Segments; n != want {
				t.Fatalf("%d segments, want %d", n, want)
			}
		}
		roll(0)
		s.now = topic.Millis(time.Now().UnixMilli())
		s.append(1, 1, 10)
		roll(1)
		time.Sleep(90 * time.Minute)
		s.now = topic.Millis(time.Now().UnixMilli())
		s.append(1, 1, 10)
		s.close()
		s.open() // its age is known over a restart
		roll(1)
		time.Sleep(40 * time.Minute)
		roll(2)
		time.Sleep(100 * time.Hour)
		roll(2)            // an empty one stays
		s.append(1, 1, 10) // with old timestamps
		roll(3)            // so that retention reaches it
		s.sync()
		_, err := s.log.Retain(s.log.End(), time.Now())
		must(t, err)
		if s.log.Start() != 3 {
			t.Fatalf("start %d", s.log.Start())
		}
	})
}
