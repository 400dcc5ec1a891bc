package storage

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

var noon = time.UnixMilli(1_700_000_000_000)

const key = KeyedBit | 7

// verdict is a Check in one word: "new", "at 12", or the kind of a refusal.
func verdict(p *Producers, s Sequenced, now time.Time) string {
	v, err := p.Check(s, now)
	switch {
	case err != nil:
		return fault.KindOf(err).String()
	case v.Duplicate:
		return fmt.Sprintf("at %d", v.Base)
	default:
		return "new"
	}
}

func TestAnOrdinaryProducerGoesOnWhereItWas(t *testing.T) {
	p := NewProducers(DefaultProducers())
	next := topic.Offset(0)
	for i := range int32(7) {
		s := Sequenced{Producer: 5, Epoch: 1, First: 3 * i, Span: 3}
		if got := verdict(p, s, noon); got != "new" {
			t.Fatalf("batch %d: %s", i, got)
		}
		p.Apply(s, next, 100, noon)
		next += 3
	}
	for _, c := range []struct {
		s    Sequenced
		want string
	}{
		{Sequenced{5, 1, 18, 3}, "at 18"},           // the last of the seven
		{Sequenced{5, 1, 6, 3}, "at 6"},             // the fifth from the end
		{Sequenced{5, 1, 3, 3}, "out_of_sequence"},  // one that is forgotten
		{Sequenced{5, 1, 18, 2}, "out_of_sequence"}, // the same place, another length
		{Sequenced{5, 1, 21, 1}, "new"},
		{Sequenced{5, 1, 22, 1}, "out_of_sequence"},
		{Sequenced{5, 0, 21, 1}, "fenced"},
		{Sequenced{5, 2, 21, 1}, "out_of_sequence"},
		{Sequenced{5, 2, 0, 1}, "new"},
		{Sequenced{6, 0, 77, 1}, "new"}, // never seen, or its segments are gone
		{Sequenced{-1, -1, -1, 1}, "new"},
		{Sequenced{6, 0, -1, 1}, "bad_request"},
		{Sequenced{6, 0, 0, 0}, "bad_request"},
	} {
		if got := verdict(p, c.s, noon); got != c.want {
			t.Errorf("%+v: %s, want %s", c.s, got, c.want)
		}
	}
	v, err := p.Check(Sequenced{5, 1, 18, 3}, noon)
	if err != nil || v != (Verdict{Duplicate: true, Base: 18, Last: 20, Timestamp: 100}) {
		t.Fatalf("%+v, %v", v, err)
	}
}

func TestSequencesWrapAround(t *testing.T) {
	p := NewProducers(DefaultProducers())
	p.Apply(Sequenced{5, 0, math.MaxInt32 - 1, 4}, 0, 0, noon) // max-1, max, 0, 1
	if got := verdict(p, Sequenced{5, 0, 2, 1}, noon); got != "new" {
		t.Fatalf("after the wrap: %s", got)
	}
	if got := verdict(p, Sequenced{5, 0, math.MaxInt32, 1}, noon); got != "out_of_sequence" {
		t.Fatalf("inside: %s", got)
	}
}

func TestAnIdempotencyKeyKeepsAllOfItsBatches(t *testing.T) {
	p := NewProducers(DefaultProducers())
	if got := verdict(p, Sequenced{key, 111, 5, 5}, noon); got != "out_of_sequence" {
		t.Fatalf("a key that begins in the middle: %s", got)
	}
	for i := range int32(20) {
		s := Sequenced{key, int16(100 + i), 5 * i, 5}
		if got := verdict(p, s, noon); got != "new" {
			t.Fatalf("batch %d: %s", i, got)
		}
		p.Apply(s, topic.Offset(1000+10*i), topic.Millis(i), noon)
	}
	for _, c := range []struct {
		s    Sequenced
		want string
	}{
		{Sequenced{key, 100, 0, 5}, "at 1000"},
		{Sequenced{key, 119, 95, 5}, "at 1190"},
		{Sequenced{key, 101, 0, 5}, "idempotency_key_reused"},    // other content
		{Sequenced{key, 100, 0, 4}, "idempotency_key_reused"},    // cut otherwise, so other records
		{Sequenced{key, 100, 0, 6}, "idempotency_key_reused"},    // the same
		{Sequenced{key, 119, 97, 100}, "idempotency_key_reused"}, // over the end
		{Sequenced{key, 7, 100, 5}, "new"},
		{Sequenced{key, 7, 105, 5}, "out_of_sequence"},
		{Sequenced{key + 1, 7, 0, 5}, "new"},
	} {
		if got := verdict(p, c.s, noon); got != c.want {
			t.Errorf("%+v: %s, want %s", c.s, got, c.want)
		}
	}
}

func TestAnIdempotencyKeyHasAtMostItsBatches(t *testing.T) {
	p := NewProducers(DefaultProducers())
	for i := range int32(1024) {
		p.Apply(Sequenced{key, 0, i, 1}, topic.Offset(i), 0, noon)
	}
	if got := verdict(p, Sequenced{key, 0, 1024, 1}, noon); got != "limit_exceeded" {
		t.Fatalf("batch 1025: %s", got)
	}
	if got := verdict(p, Sequenced{key, 0, 0, 1}, noon); got != "at 0" {
		t.Fatalf("batch 1: %s", got)
	}
}

func TestAKeyIsForgottenAfterItsWindow(t *testing.T) {
	p := NewProducers(DefaultProducers())
	first, second := Sequenced{key, 1, 0, 5}, Sequenced{key, 2, 5, 5}
	p.Apply(first, 0, 0, noon)
	p.Apply(second, 5, 0, noon.Add(9*time.Minute)) // a long stream
	if got := verdict(p, first, noon.Add(18*time.Minute)); got != "at 0" {
		t.Fatalf("in the window of the request's last batch: %s", got)
	}
	if got := verdict(p, first, noon.Add(19*time.Minute+time.Second)); got != "new" {
		t.Fatalf("after it: %s", got)
	}
	if _, keys := p.Len(); keys != 0 {
		t.Fatalf("%d keys are left", keys)
	}
}

func TestTheBudgetOfKeysEvictsTheOldest(t *testing.T) {
	cfg := DefaultProducers()
	cfg.Keys = NewKeyBudget(10)
	a, b := NewProducers(cfg), NewProducers(cfg)
	for i := range int64(8) {
		a.Apply(Sequenced{KeyedBit | i, 0, 0, 1}, topic.Offset(i), 0, noon.Add(time.Duration(i)*time.Second))
	}
	a.Apply(Sequenced{KeyedBit, 0, 1, 1}, 8, 0, noon.Add(9*time.Second)) // is now the youngest
	for i := range int64(4) {
		b.Apply(Sequenced{KeyedBit | i, 0, 0, 1}, topic.Offset(i), 0, noon.Add(10*time.Second))
	}
	if used, evicted := cfg.Keys.Used(), cfg.Keys.EvictedTotal(); used != 10 || evicted != 2 {
		t.Fatalf("used %d, evicted %d", used, evicted)
	}
	a.Apply(Sequenced{KeyedBit | 100, 0, 0, 1}, 9, 0, noon.Add(11*time.Second))
	now := noon.Add(12 * time.Second)
	if got := verdict(a, Sequenced{KeyedBit | 1, 0, 0, 1}, now); got != "new" {
		t.Fatalf("the oldest of a: %s", got)
	}
	if got := verdict(a, Sequenced{KeyedBit, 0, 0, 1}, now); got != "at 0" {
		t.Fatalf("the one that was refreshed: %s", got)
	}
	a.Clear()
	b.Expire(noon.Add(time.Hour))
	if used := cfg.Keys.Used(); used != 0 {
		t.Fatalf("used %d by nobody", used)
	}
}

func TestOrdinaryProducersAreBoundedByNumberAndSilence(t *testing.T) {
	cfg := DefaultProducers()
	cfg.Producers = 100
	p := NewProducers(cfg)
	for i := range int64(1000) {
		p.Apply(Sequenced{i, 0, 0, 1}, topic.Offset(i), 0, noon)
		p.Apply(Sequenced{0, 0, int32(i), 1}, topic.Offset(i), 0, noon.Add(time.Duration(i)*time.Millisecond))
	}
	if n, _ := p.Len(); n != 100 {
		t.Fatalf("%d producers", n)
	}
	if got := verdict(p, Sequenced{0, 0, 998, 1}, noon.Add(time.Second)); got != "at 998" {
		t.Fatalf("the busy one: %s", got)
	}
	if len(p.plain.order) > 300 {
		t.Fatalf("%d entries wait for their age", len(p.plain.order))
	}
	p.Expire(noon.Add(25 * time.Hour))
	if n, _ := p.Len(); n != 0 {
		t.Fatalf("%d producers after a day", n)
	}
}

// What is on its way into the log is seen by the next check, and is gone when it was not written.
func TestCheckSeesWhatIsStaged(t *testing.T) {
	p := NewProducers(DefaultProducers())
	p.Apply(Sequenced{5, 0, 0, 1}, 0, 0, noon)
	before := p.encode(topic.Mark{})
	for i := range int32(8) {
		for _, id := range []int64{5, 6, key} {
			first := i
			if id == 5 {
				first++
			}
			s := Sequenced{id, 0, first, 1}
			if got := verdict(p, s, noon); got != "new" {
				t.Fatalf("%+v: %s", s, got)
			}
			p.Stage(s, topic.Offset(100+i), 0, noon)
			if got, want := verdict(p, s, noon.Add(time.Hour)), fmt.Sprintf("at %d", 100+i); got != want {
				t.Fatalf("%+v again: %s, want %s", s, got, want)
			}
		}
	}
	p.Expire(noon.Add(48 * time.Hour)) // waits for the append
	if now := p.encode(topic.Mark{}); !bytes.Equal(before, now) {
		t.Fatal("a snapshot has what is only staged")
	}
	p.Unstage()
	if after := p.encode(topic.Mark{}); !bytes.Equal(before, after) {
		t.Fatal("something of what was staged is left")
	}
	p.Stage(Sequenced{5, 0, 1, 1}, 1, 0, noon)
	p.Apply(Sequenced{5, 0, 1, 1}, 1, 0, noon) // as Log.Append does
	if got := verdict(p, Sequenced{5, 0, 2, 1}, noon); got != "new" {
		t.Fatalf("after the append: %s", got)
	}
	if got := verdict(p, Sequenced{5, 0, 1, 1}, noon); got != "at 1" {
		t.Fatalf("the batch itself: %s", got)
	}
}

func TestHoldsKnowsTheBatchesOfTheTable(t *testing.T) {
	p := NewProducers(DefaultProducers())
	for i := range int32(7) {
		p.Apply(Sequenced{5, 0, i, 1}, topic.Offset(10*i), 0, noon)
	}
	for base, want := range map[topic.Offset]bool{0: false, 10: false, 20: true, 60: true, 61: false} {
		if got := p.Holds(5, base); got != want {
			t.Errorf("batch at %d: %v", base, got)
		}
	}
	if p.Holds(6, 20) || p.Holds(-1, 20) {
		t.Error("holds a batch of somebody who is not there")
	}
}

// applied is a batch of a made-up log.
type applied struct {
	s    Sequenced
	base topic.Offset
}

// drawLog makes a log in which producers, keys and epochs mix, in one of the orders that Check allows.
func drawLog(r *rand.Rand, batches int) (log []applied) {
	p := NewProducers(DefaultProducers())
	end := topic.Offset(0)
	epochs := map[int64]int16{}
	nexts := map[int64]int32{}
	for range batches {
		id := r.Int64N(4)
		if r.IntN(2) == 0 {
			id |= KeyedBit
		} else if r.IntN(10) == 0 {
			epochs[id]++
			nexts[id] = 0
		}
		s := Sequenced{Producer: id, Epoch: epochs[id], First: nexts[id], Span: 1 + r.Int32N(5)}
		if Keyed(id) {
			s.Epoch = int16(r.IntN(1 << 15)) //nolint:gosec // 15 bits
		}
		if verdict(p, s, noon) != "new" {
			panic(fmt.Sprintf("%+v: %s", s, verdict(p, s, noon)))
		}
		p.Apply(s, end, topic.Millis(end), noon)
		log = append(log, applied{s, end})
		nexts[id] += s.Span
		end += topic.Offset(s.Span)
	}
	return log
}

func replay(p *Producers, log []applied, from, to topic.Offset) *Producers {
	for _, a := range log {
		if a.base >= from && a.base < to {
			p.Apply(a.s, a.base, topic.Millis(a.base), noon)
		}
	}
	return p
}

// A table that was rebuilt from a snapshot and the rest of a cut log is that of the cut log.
func TestACutTableIsThatOfTheCutLog(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		log := drawLog(r, 1+r.IntN(60))
		to := log[r.IntN(len(log))].base
		i := r.IntN(len(log))
		snapshotEnd := min(log[i].base, to)

		m := vfs.NewMem()
		for _, a := range log { // one at each batch, those above the cut too
			if r.IntN(4) == 0 || a.base == snapshotEnd {
				p := replay(NewProducers(DefaultProducers()), log, 0, a.base)
				must(t, saveProducers(m, "/", p, topic.Mark{Epoch: 1, End: a.base}))
			}
		}
		live := replay(NewProducers(DefaultProducers()), log, 0, math.MaxInt64)
		must(t, pruneProducers(m, "/", to, 0))
		rebuilt, mark, err := loadProducers(m, "/", DefaultProducers(), to, noon, func(topic.Mark) bool { return true })
		must(t, err)
		if mark.End > to || mark.End < snapshotEnd {
			t.Fatalf("seed %d: the snapshot ends at %d, there is one at %d, the cut is at %d", seed, mark.End, snapshotEnd, to)
		}
		live.Become(replay(rebuilt, log, mark.End, to))

		want := replay(NewProducers(DefaultProducers()), log, 0, to)
		if !bytes.Equal(live.encode(topic.Mark{}), want.encode(topic.Mark{})) {
			t.Fatalf("seed %d: cut to %d: the table is not that of the cut log", seed, to)
		}
		for _, a := range log { // the log goes on with what was cut off
			if a.base >= to {
				if got := verdict(live, a.s, noon); got != "new" {
					t.Fatalf("seed %d: %+v: %s", seed, a, got)
				}
				live.Apply(a.s, a.base, topic.Millis(a.base), noon)
			}
		}
	}
}

func TestBecomeKeepsAgesAndGivesKeysBack(t *testing.T) {
	cfg := DefaultProducers()
	cfg.Keys = NewKeyBudget(100)
	p := NewProducers(cfg)
	p.Apply(Sequenced{key, 0, 0, 1}, 0, 0, noon)
	p.Apply(Sequenced{key + 1, 0, 0, 1}, 1, 0, noon)
	rebuilt := NewProducers(cfg)
	rebuilt.Apply(Sequenced{key, 0, 0, 1}, 0, 0, noon.Add(9*time.Minute))
	p.Become(rebuilt)
	if used := cfg.Keys.Used(); used != 1 {
		t.Fatalf("used %d", used)
	}
	if got := verdict(p, Sequenced{key, 0, 0, 1}, noon.Add(11*time.Minute)); got != "new" {
		t.Fatalf("a cut made a key younger: %s", got)
	}
}

func TestASnapshotLeavesOutWhatIsOutOfItsWindow(t *testing.T) {
	p := NewProducers(DefaultProducers())
	p.Apply(Sequenced{key, 0, 0, 1}, 0, 0, noon)
	p.Apply(Sequenced{key + 1, 0, 0, 1}, 1, 0, noon.Add(8*time.Minute))
	b := p.encode(topic.Mark{Epoch: 2, End: 2})
	again, mark, err := decodeProducers(b, DefaultProducers(), noon.Add(12*time.Minute))
	must(t, err)
	if _, keys := again.Len(); keys != 1 || mark != (topic.Mark{Epoch: 2, End: 2}) {
		t.Fatalf("%d keys, %v", keys, mark)
	}
	// The clock was set back by a day: the keys still go ten minutes from now on.
	again, _, err = decodeProducers(b, DefaultProducers(), noon.Add(-24*time.Hour))
	must(t, err)
	again.Expire(noon.Add(-24*time.Hour + 11*time.Minute))
	if _, keys := again.Len(); keys != 0 {
		t.Fatalf("%d keys are pinned by a clock that was wrong", keys)
	}
}

func TestADamagedSnapshotIsPassedOver(t *testing.T) {
	log := drawLog(rand.New(rand.NewPCG(1, 1)), 30)
	always := func(topic.Mark) bool { return true }
	m := vfs.NewMem()
	for _, end := range []topic.Offset{log[10].base, log[20].base} {
		must(t, saveProducers(m, "/", replay(NewProducers(DefaultProducers()), log, 0, end), topic.Mark{Epoch: 1, End: end}))
	}
	newest := producersName(log[20].base)
	good, err := vfs.ReadFile(m, "/"+newest, 1<<20)
	must(t, err)
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1
		must(t, replaceFile(m, "/"+newest, bad))
		if _, mark, err := loadProducers(m, "/", DefaultProducers(), math.MaxInt64, noon, always); err != nil || mark.End != log[10].base {
			t.Fatalf("byte %d: %v, %v", i, mark, err)
		}
	}
	must(t, replaceFile(m, "/"+newest, good))
	other := func(m topic.Mark) bool { return m.End != log[20].base }
	if _, mark, err := loadProducers(m, "/", DefaultProducers(), math.MaxInt64, noon, other); err != nil || mark.End != log[10].base {
		t.Fatalf("one of another history: %v, %v", mark, err)
	}
	must(t, pruneProducers(m, "/", log[5].base, 0))
	if _, mark, err := loadProducers(m, "/", DefaultProducers(), math.MaxInt64, noon, always); err != nil || mark.End != 0 {
		t.Fatalf("all were above the cut: %v, %v", mark, err)
	}
}

func TestEverySnapshotIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		log := drawLog(rand.New(rand.NewPCG(seed, 4)), rapid.IntRange(1, 80).Draw(t, "batches"))
		b := replay(NewProducers(DefaultProducers()), log, 0, math.MaxInt64).encode(topic.Mark{Epoch: 3, End: 9})
		again, mark, err := decodeProducers(b, DefaultProducers(), noon)
		if err != nil || !bytes.Equal(again.encode(mark), b) {
			t.Fatalf("%v, %v", mark, err)
		}
	})
}

func FuzzDecodeProducers(f *testing.F) {
	log := drawLog(rand.New(rand.NewPCG(1, 1)), 30)
	f.Add(replay(NewProducers(DefaultProducers()), log, 0, math.MaxInt64).encode(topic.Mark{Epoch: 3, End: 9}))
	f.Add(NewProducers(DefaultProducers()).encode(topic.Mark{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, mark, err := decodeProducers(b, DefaultProducers(), noon)
		if err != nil {
			if !missing(err) {
				t.Fatalf("not to be rebuilt: %v", err)
			}
			return
		}
		if _, err := p.Check(Sequenced{key, 0, 0, 1}, noon); err != nil && fault.KindOf(err) == fault.Internal {
			t.Fatal(err)
		}
		if again := p.encode(mark); len(again) > len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(again))
		}
	})
}

func TestPruningLeavesASnapshotForADeepCut(t *testing.T) {
	for _, c := range []struct {
		most, hw topic.Offset
		want     []topic.Offset
	}{
		{100, 65, []topic.Offset{60, 70, 80, 90}},
		{100, 25, []topic.Offset{20, 30, 40, 50, 60, 70, 80, 90}},
		{100, 5, []topic.Offset{10, 20, 30, 40, 50, 60, 70, 80, 90}},
		{100, 100, []topic.Offset{80, 90}},
		{65, 55, []topic.Offset{50, 60}},
		{60, 60, []topic.Offset{50, 60}},
		{10, 10, []topic.Offset{10}},
		{5, 0, nil},
		{-1, 0, nil},
	} {
		m := vfs.NewMem()
		for end := topic.Offset(10); end < 100; end += 10 {
			must(t, saveProducers(m, "/", NewProducers(DefaultProducers()), topic.Mark{Epoch: 1, End: end}))
		}
		must(t, pruneProducers(m, "/", c.most, c.hw))
		got, err := listProducers(m, "/")
		must(t, err)
		if !slices.Equal(got, c.want) {
			t.Errorf("most %d, hw %d: %v, want %v", c.most, c.hw, got, c.want)
		}
	}
}

// saveProducers writes a snapshot of the table for a log that ends at mark, durably.
func saveProducers(fsys vfs.FS, dir string, p *Producers, mark topic.Mark) error {
	return writeSmall(fsys, filepath.Join(dir, producersName(mark.End)), producersKind, p.encode(mark))
}
