package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func TestAKillLosesNothingThatWasWritten(t *testing.T) {
	s := newScene(t, vfs.NewMem(), small)
	for i := range 30 {
		s.append(2, 2, 300)
		if i%4 == 0 {
			s.sync()
		}
		end := s.log.End()
		other := *s
		other.reopen(s.fs.(*vfs.Mem).Kill())
		if other.log.End() != end || other.found.State != Synced || other.found.CutBytes != 0 || len(other.found.Gaps) > 0 {
			t.Fatalf("end %d, was %d: %+v", other.log.End(), end, other.found)
		}
		if other.log.Synced() != end {
			t.Fatalf("what was recovered up to %d is synced up to %d", end, other.log.Synced())
		}
		other.wantWhole()
		// The recovery itself made it durable.
		again := other
		again.reopen(other.fs.(*vfs.Mem).Crash(uint64(i)))
		if again.log.End() != end {
			t.Fatalf("after a power cut: end %d, was %d", again.log.End(), end)
		}
	}
}

func TestAPowerCutLosesNothingThatWasSynced(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newScene(t, vfs.NewMem(), small)
		synced := topic.Offset(0)
		for range 1 + r.IntN(25) {
			s.append(1+r.IntN(3), 1+r.IntN(3), r.IntN(900))
			if r.IntN(3) == 0 {
				synced = s.sync()
			}
		}
		s.reopen(s.fs.(*vfs.Mem).Crash(seed))
		if s.log.End() < synced || s.found.State != Synced || len(s.found.Gaps) > 0 {
			t.Fatalf("seed %d: end %d, synced %d: %+v", seed, s.log.End(), synced, s.found)
		}
		s.wantWhole()
		s.append(2, 2, 100)
		s.sync()
		s.wantWhole()
	}
}

// What is above the floor was promised to nobody: the first bad byte there ends the log, whatever
// stands behind it.
func TestAboveTheFloorTheFirstBadBatchEndsTheLog(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, nil)
	s.append(4, 2, 40)
	s.sync()
	floor := s.log.idx.covers
	var ends []int64
	for range 3 {
		s.append(1, 2, 40)
		ends = append(ends, s.log.idx.covers)
	}
	name := s.segmentNames()[0]
	content, err := vfs.ReadFile(mem, name, 1<<20)
	must(t, err)
	for at := floor; at < ends[2]; at++ {
		for what, edit := range map[string]func([]byte) []byte{
			"cut":     func(b []byte) []byte { return b[:at] },
			"flipped": func(b []byte) []byte { b[at] ^= 0x10; return b },
			"zero":    func(b []byte) []byte { clear(b[at:]); return b },
		} {
			other := *s
			killed := mem.Kill()
			other.change(killed, name, edit)
			other.reopen(killed)
			want := topic.Offset(8)
			for _, end := range ends {
				if at >= end || what == "zero" && len(bytes.Trim(content[at:end], "\x00")) == 0 {
					want += 2
				}
			}
			got := other.log.End()
			first := floor
			for _, end := range ends {
				if end <= at {
					first = end
				}
			}
			if what == "flipped" && at-first >= 12 && at-first < 16 {
				// The epoch is outside of the checksum: one that is too high shows in the next batch.
				if got < want || got > want+2 {
					t.Fatalf("byte %d, in an epoch: end %d, want %d or one batch more", at, got, want)
				}
				must(t, other.log.Close())
				continue
			}
			if got != want || other.found.State != Synced || len(other.found.Gaps) > 0 {
				t.Fatalf("byte %d %s: end %d, want %d: %+v", at, what, got, want, other.found)
			}
			other.wantWhole()
			other.append(1, 1, 10)
			other.wantWhole()
			must(t, other.log.Close())
		}
	}
}

// What is below the floor was promised: nothing of it is cut, what is sound is served, the rest is
// announced, and no offset is given out again.
func TestBelowTheFloorDamageIsAnnouncedAndStaysWhereItIs(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, nil)
	const batches = 5
	var starts []int64
	for range batches {
		starts = append(starts, s.size())
		s.append(1, 2, 40)
	}
	size := s.size()
	s.sync()
	name := s.segmentNames()[0]
	for at := int64(0); at < size; at++ {
		hit := 0
		for hit+1 < batches && starts[hit+1] <= at {
			hit++
		}
		for what, edit := range map[string]func([]byte) []byte{
			"cut":     func(b []byte) []byte { return b[:at] },
			"flipped": func(b []byte) []byte { b[at] ^= 0x04; return b },
		} {
			other := *s
			killed := mem.Kill()
			other.change(killed, name, edit)
			other.reopen(killed)
			label := fmt.Sprintf("byte %d (%d of batch %d) %s", at, at-starts[hit], hit, what)
			if other.log.End() != 10 {
				t.Fatalf("%s: end %d", label, other.log.End())
			}
			lost := topic.Gap{Partition: 3, Start: topic.Offset(2 * hit), End: topic.Offset(2*hit + 2), Reason: topic.Damaged}
			if what == "cut" {
				lost.End = 10
			}
			// The epoch is outside of the checksum. One that is too high cannot be told from the truth
			// when it is the last, and shows in the next batch otherwise.
			epoch := what == "flipped" && at-starts[hit] >= 12 && at-starts[hit] < 16
			if !epoch && (other.found.State != Lost || len(other.found.Gaps) != 1 || other.found.Gaps[0] != lost) {
				t.Fatalf("%s: %+v, want %v", label, other.found, lost)
			}
			if epoch {
				must(t, other.log.Close())
				continue
			}
			wantGap(t, &other, label, lost)
			other.append(2, 2, 30)
			other.sync()
			wantGap(t, &other, label+", after an append", lost)
			other.close()
			other.open()
			if other.found.State != Clean || other.log.End() != 14 {
				t.Fatalf("%s, after a close: end %d, %+v", label, other.log.End(), other.found)
			}
			wantGap(t, &other, label+", after a close", lost)
			must(t, other.log.Close())
		}
	}
}

func (s *scene) size() int64 {
	if a := s.log.view.Load().active(); a != nil {
		return a.size.Load()
	}
	return 0
}

// wantGap reads the whole log from each offset and expects all of it but a gap.
func wantGap(t *testing.T, s *scene, label string, lost topic.Gap) {
	t.Helper()
	for from := range s.log.End() {
		got, gaps := s.readAll(from, s.log.End(), 150)
		have := map[topic.Offset]bool{}
		for _, h := range got {
			for o := h.BaseOffset; o < h.Next(); o++ {
				have[o] = true
			}
		}
		for o := from; o < s.log.End(); o++ {
			if inGap := o >= lost.Start && o < lost.End; have[o] == inGap {
				t.Fatalf("%s, from %d: offset %d is there: %v", label, from, o, have[o])
			}
		}
		want := lost
		want.Start = max(want.Start, from)
		switch {
		case want.Start >= want.End && len(gaps) == 0:
		case want.Start < want.End && len(gaps) == 1 && gaps[0] == want:
		default:
			t.Fatalf("%s, from %d: gaps %v, want %v", label, from, gaps, want)
		}
	}
}

func TestAnEpochThatNoLeaderHadIsDamage(t *testing.T) {
	for _, synced := range []bool{false, true} {
		mem := vfs.NewMem()
		s := newScene(t, mem, func(c *Config) { c.LatestEpoch = 1 })
		s.append(2, 2, 40)
		if !synced {
			s.sync()
		}
		at := s.size()
		s.append(1, 2, 40)
		if synced {
			s.sync()
		}
		killed := mem.Kill()
		s.change(killed, s.segmentNames()[0], func(b []byte) []byte { b[at+13] ^= 1; return b })
		s.reopen(killed)
		if !synced {
			if s.log.End() != 4 || s.found.State != Synced {
				t.Fatalf("end %d: %+v", s.log.End(), s.found)
			}
		} else {
			wantGap(t, s, "an epoch", topic.Gap{Partition: 3, Start: 4, End: 6, Reason: topic.Damaged})
		}
		s.append(1, 1, 10) // in epoch 1
	}
}

// An older copy of the metadata may have been put back: what was synced in later epochs is no damage.
func TestEpochsThatTheTableKnowsAreNoDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, func(c *Config) { c.LatestEpoch = 1 })
	for s.epoch = 1; s.epoch < 4; s.epoch++ {
		s.append(2, 2, 40)
		s.sync()
	}
	s.reopen(mem.Kill())
	if s.log.End() != 12 || s.found.State != Synced || s.log.Mark().Epoch != 3 {
		t.Fatalf("end %d, epoch %d: %+v", s.log.End(), s.log.Mark().Epoch, s.found)
	}
	s.epoch = 4
	s.wantWhole()
}

func TestDamageInAClosedSegmentIsFoundByItsReaders(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, small)
	for range 20 {
		s.append(2, 2, 500)
	}
	s.close()
	names := s.segmentNames()
	if len(names) < 4 {
		t.Fatalf("%d segments", len(names))
	}
	content, err := vfs.ReadFile(mem, names[1], 1<<20)
	must(t, err)
	bases := []topic.Offset{}
	var starts []int
	at := 0
	for b, err := range batch.All(content) {
		must(t, err)
		bases, starts = append(bases, headerOf(t, b).BaseOffset), append(starts, at)
		at += len(b)
	}
	limit, _ := parseSegmentName(names[2][strings.LastIndex(names[2], "/")+1:])
	bases = append(bases, limit)
	for hit := range starts {
		for _, field := range []int{3, 7, 9, 11, 16, 18, 22, 60, 70} {
			other := *s
			fresh := mem.Kill()
			other.change(fresh, names[1], func(b []byte) []byte { b[starts[hit]+field] ^= 0x01; return b })
			other.reopen(fresh)
			if other.found.State != Clean {
				t.Fatalf("%+v", other.found)
			}
			wantGap(t, &other, fmt.Sprintf("byte %d of batch %d", field, hit),
				topic.Gap{Partition: 3, Start: bases[hit], End: bases[hit+1], Reason: topic.Damaged})
			if got := other.log.Stats().DamagedTotal; got == 0 {
				t.Error("damage was not counted")
			}
			must(t, other.log.Close())
		}
	}
	// A whole segment that is gone.
	other := *s
	fresh := mem.Kill()
	must(t, fresh.Remove(names[1]))
	other.reopen(fresh)
	wantGap(t, &other, "a lost segment", topic.Gap{Partition: 3, Start: bases[0], End: limit, Reason: topic.Damaged})
	must(t, other.log.Close())
}

func TestAnyStateOfAnIndexIsGoodEnough(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, func(c *Config) { c.Settings.SegmentBytes = 64 << 10 })
	for range 60 {
		s.append(2, 3, 700)
	}
	s.sync()
	names := s.segmentNames()
	clean := *s
	clean.reopen(mem.Kill())
	clean.close()
	for _, closed := range []bool{false, true} {
		for _, suffix := range []string{offsetIndex.suffix, timeIndex.suffix} {
			for _, segment := range []string{names[0], names[len(names)-1]} {
				for what, edit := range map[string]func([]byte) []byte{
					"missing":   nil,
					"empty":     func([]byte) []byte { return nil },
					"cut":       func(b []byte) []byte { return b[:len(b)*2/3] },
					"head only": func(b []byte) []byte { return b[:min(len(b), entriesStart)] },
					"noise": func(b []byte) []byte {
						r := rand.New(rand.NewPCG(1, 2))
						for i := range b {
							b[i] = byte(r.Uint32())
						}
						return b
					},
					"zeros":       func(b []byte) []byte { clear(b); return b },
					"a wrong bit": func(b []byte) []byte { b[len(b)-3] ^= 1; return b },
				} {
					from := mem
					if closed {
						from = clean.fs.(*vfs.Mem)
					}
					fresh := from.Kill()
					other := *s
					name := strings.TrimSuffix(segment, logSuffix) + suffix
					if ok, err := vfs.Exists(fresh, name); err != nil || !ok {
						must(t, err)
						continue // the active segment of a killed log may have none yet
					}
					if edit == nil {
						must(t, fresh.Remove(name))
					} else {
						other.change(fresh, name, edit)
					}
					other.reopen(fresh)
					other.wantWhole()
					at, _, err := other.log.OffsetForTime(s.now-100, other.log.End())
					must(t, err)
					if want := s.log.End() - 101; at != want {
						t.Fatalf("%s %s: time is at offset %d, want %d", what, name, at, want)
					}
					other.append(2, 2, 100)
					other.wantWhole()
					other.close()
					other.open()
					if other.found.State != Clean {
						t.Fatalf("%s %s: %+v", what, name, other.found)
					}
					other.wantWhole()
					if n := other.log.Stats().IndexTotal; n > 0 {
						t.Errorf("%s %s: made anew again after it had been written", what, name)
					}
					must(t, other.log.Close())
				}
			}
		}
	}
}

// An index may be sound in itself and still be of another history: entries are checked against batches.
func TestAnIndexOfAnotherHistoryIsNotBelieved(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, nil)
	for range 40 {
		s.append(2, 3, 300)
	}
	s.close()
	stem := strings.TrimSuffix(s.segmentNames()[0], logSuffix)
	kind := offsetIndex
	{
		old, body, ok, err := readIndexFile(mem, stem+kind.suffix, kind, 0)
		must(t, err)
		if !ok {
			t.Fatal("no index")
		}
		entries := decodeOffsets(body)
		for i := range entries {
			entries[i].rel++
			entries[i].pos += 7
		}
		old.sequence++
		must(t, writeIndexFile(mem, stem+kind.suffix, kind, 0, old, encodeOffsets(entries), 0, false))
	}
	s.open()
	s.wantWhole()
	if s.log.Stats().IndexTotal == 0 {
		t.Error("the index was not made anew")
	}
}

func TestEverySideFileCanBeRebuilt(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, small)
	for i := range 20 {
		s.epoch = topic.Epoch(1 + i/6)
		s.append(2, 2, 300)
	}
	s.sync()
	must(t, s.log.AdvanceStart(1))
	clean := *s
	clean.reopen(mem.Kill())
	must(t, clean.log.Close())
	for _, from := range []*vfs.Mem{mem, clean.fs.(*vfs.Mem)} {
		entries, err := from.ReadDir(s.dir)
		must(t, err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), logSuffix) {
				continue
			}
			for _, noise := range []bool{false, true} {
				fresh := from.Kill()
				other := *s
				name := s.dir + "/" + e.Name()
				if noise {
					other.change(fresh, name, func(b []byte) []byte { return bytes.Repeat([]byte("noise"), 1+len(b)/5) })
				} else {
					must(t, fresh.Remove(name))
				}
				other.reopen(fresh)
				if other.log.End() != s.log.End() || len(other.found.Gaps) > 0 {
					t.Fatalf("without %s: end %d, %+v", e.Name(), other.log.End(), other.found)
				}
				other.wantWhole()
				if got := other.log.EpochEnd(2); got != s.log.EpochEnd(2) {
					t.Fatalf("without %s: epoch 2 ends at %v, want %v", e.Name(), got, s.log.EpochEnd(2))
				}
				other.append(1, 1, 10)
				must(t, other.log.Close())
			}
		}
	}
}

func TestWithoutSyncsTheMachinesStartDecides(t *testing.T) {
	for _, sameBoot := range []bool{true, false} {
		s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.FlushMessages, c.SameBoot = 0, sameBoot })
		s.append(3, 3, 10)
		s.sync()
		s.append(3, 3, 10)
		s.reopen(s.fs.(*vfs.Mem).Kill())
		want := map[bool]State{true: Synced, false: Lost}[sameBoot]
		if s.found.State != want || s.log.End() != 18 {
			t.Errorf("same boot %v: end %d, %+v", sameBoot, s.log.End(), s.found)
		}
	}
}

func TestARecoveryReadsOnlyFromTheLastCheckpointOn(t *testing.T) {
	s := newScene(t, vfs.NewMem(), nil)
	for range 50 {
		s.append(20, 10, 5000)
		s.sync()
		must(t, s.log.Prepare())
	}
	size := s.size()
	s.reopen(s.fs.(*vfs.Mem).Crash(1))
	if s.found.State != Synced || s.found.Scanned > snapshotBytes+8<<20 {
		t.Fatalf("of %d bytes %d were read: %+v", size, s.found.Scanned, s.found)
	}
}
