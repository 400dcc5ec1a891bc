package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// record of a test: a key, and a value that may be nil.
type kv struct {
	key   string
	value []byte
}

func set(key, value string) kv { return kv{key, []byte(value)} }
func unset(key string) kv      { return kv{key, nil} }

// batchOf makes one batch at an offset.
func batchOf(t testing.TB, base topic.Offset, epoch topic.Epoch, opts batch.Options, records ...kv) []byte {
	t.Helper()
	var b batch.Builder
	b.Reset(nil, opts)
	for _, r := range records {
		record := topic.Record{Timestamp: topic.NoTimestamp, Value: r.value}
		if r.key != "" {
			record.Key = []byte(r.key)
		}
		b.Append(&record, topic.Millis(noon.UnixMilli()))
	}
	raw, err := b.Finish()
	must(t, err)
	batch.Stamp(raw, base, epoch)
	return raw
}

// compactable is an open log with a compacted topic and a file system that it is on.
type compactable struct {
	*Log
	t   *testing.T
	mem *vfs.Mem
	cfg Config
}

func compactConfig() Config {
	cfg := Default(topic.Path{Topic: "t", Partition: 0}, topic.ID{1})
	cfg.Settings.Compact, cfg.Settings.Delete = true, false
	cfg.Settings.MinDirtyRatio = 0
	cfg.Settings.DeleteRetention = time.Hour
	return cfg
}

func openCompactable(t *testing.T, mem *vfs.Mem, cfg Config) *compactable {
	t.Helper()
	l, _, err := Open(mem, "/p", cfg)
	must(t, err)
	c := &compactable{l, t, mem, cfg}
	t.Cleanup(func() { l.letGo() })
	return c
}

// add appends a batch, and rolls after it when told so.
func (c *compactable) add(roll bool, opts batch.Options, records ...kv) {
	c.t.Helper()
	must(c.t, c.Append([][]byte{batchOf(c.t, c.End(), 1, opts, records...)}))
	_, err := c.Sync()
	must(c.t, err)
	if roll {
		must(c.t, c.Roll(time.Now().Add(c.cfg.Settings.SegmentAge+time.Hour)))
	}
}

func (c *compactable) compact(now time.Time) Compacted {
	c.t.Helper()
	did, err := c.Compact(c.t.Context(), c.End(), now)
	must(c.t, err)
	return did
}

// state lists what a reader sees, as "3:a=1".
func state(t testing.TB, l *Log) []string {
	t.Helper()
	var words []string
	for from := l.Start(); from < l.End(); {
		piece, err := l.Read(from, l.End(), 1<<20)
		must(t, err)
		for _, gap := range piece.Gaps { // a piece begins with them
			words = append(words, fmt.Sprintf("%d-%d:gap", gap.Start, gap.End))
		}
		var r batch.Reader
		r.Reset(piece.Batches, from)
		for r.Next() {
			value := "-"
			if r.Record().Value != nil {
				value = string(r.Record().Value)
			}
			words = append(words, fmt.Sprintf("%d:%s=%s", r.Record().Offset, r.Record().Key, value))
		}
		must(t, r.Err())
		if piece.Next <= from {
			t.Fatalf("a read at %d goes on at %d", from, piece.Next)
		}
		from = piece.Next
	}
	return words
}

func expectState(t testing.TB, l *Log, want string) {
	t.Helper()
	if got := strings.Join(state(t, l), " "); got != want {
		t.Fatalf("the log holds\n%s\nwant\n%s", got, want)
	}
}

func (c *compactable) reopen(mem *vfs.Mem) *compactable {
	c.t.Helper()
	return openCompactable(c.t, mem, c.cfg)
}

func TestCompactionKeepsTheNewestOfEachKey(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.Zstd} {
		c := openCompactable(t, vfs.NewMem(), compactConfig())
		opts := batch.Options{Codec: codec}
		c.add(false, opts, set("a", "1"), set("b", "1"), set("a", "2"))
		c.add(true, opts, set("c", "1"))
		c.add(false, opts, set("a", "3"), kv{"", []byte("keyless")})
		c.add(true, opts, set("d", "1"), set("c", "2"))
		c.add(false, opts, set("b", "active"))
		did := c.compact(time.Now())
		// The active segment is not looked into, so b=1 stays.
		want := "1:b=1 4:a=3 6:d=1 7:c=2 8:b=active"
		expectState(t, c.Log, want)
		if did.Segments != 2 || did.Records != 4 || did.Bytes <= 0 || did.More || did.Damaged != 0 {
			t.Fatalf("%+v", did)
		}
		if n := len(c.view.Load().segments); n != 2 {
			t.Fatalf("%d segments", n)
		}
		if did := c.compact(time.Now()); did != (Compacted{}) {
			t.Fatalf("a second pass had something to do: %+v", did)
		}
		for seed := range uint64(20) {
			expectState(t, c.reopen(c.mem.Crash(seed)).Log, want)
		}
		must(t, c.Close())
		again := c.reopen(c.mem)
		expectState(t, again.Log, want)
		if again.End() != 9 || again.Mark() != (topic.Mark{Epoch: 1, End: 9}) {
			t.Fatalf("the end is %d", again.End())
		}
	}
}

func TestCompactionKeepsOffsetsWhereNothingIsLeft(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	c.add(false, batch.Options{}, set("a", "1"))
	c.add(true, batch.Options{}, set("a", "2"))
	c.add(true, batch.Options{}, set("a", "3"))
	c.add(false, batch.Options{}, set("z", "1"))
	c.compact(time.Now())
	expectState(t, c.Log, "2:a=3 3:z=1")
	piece, err := c.Read(0, 4, 1<<20)
	must(t, err)
	if len(piece.Gaps) != 0 || piece.Next != 3 && piece.Next != 4 {
		t.Fatalf("%+v: a compacted range is no gap", piece)
	}
	// Now a=3 goes as well, and the end of its segment stays.
	must(t, c.Roll(time.Now().Add(c.cfg.Settings.SegmentAge+time.Hour)))
	c.add(true, batch.Options{}, set("a", "4"))
	c.add(false, batch.Options{}, set("z", "2"))
	c.compact(time.Now())
	expectState(t, c.Log, "3:z=1 4:a=4 5:z=2")
	for seed := range uint64(10) {
		again := c.reopen(c.mem.Crash(seed))
		expectState(t, again.Log, "3:z=1 4:a=4 5:z=2")
		if again.End() != 6 {
			t.Fatalf("the end is %d", again.End())
		}
	}
}

func TestATombstoneStaysForItsTime(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	c.add(true, batch.Options{}, set("a", "1"), set("b", "1"))
	c.add(true, batch.Options{}, unset("a"))
	c.add(false, batch.Options{}, set("z", "1"))
	now := time.Now()
	c.compact(now)
	expectState(t, c.Log, "1:b=1 2:a=- 3:z=1")
	if did := c.compact(now.Add(59 * time.Minute)); did != (Compacted{}) {
		t.Fatalf("too early: %+v", did)
	}
	c.compact(now.Add(61 * time.Minute))
	expectState(t, c.Log, "1:b=1 3:z=1")
	if did := c.compact(now.Add(100 * time.Hour)); did != (Compacted{}) {
		t.Fatalf("nothing is left to do: %+v", did)
	}
}

// What the map of keys cannot hold is left to the next pass.
func TestCompactionGoesOnWhereItsMemoryEnded(t *testing.T) {
	cfg := compactConfig()
	cfg.CompactKeys = 3
	c := openCompactable(t, vfs.NewMem(), cfg)
	newest := map[string]string{}
	for i := range 40 {
		var records []kv
		for j := range 5 {
			key, value := fmt.Sprintf("k%d", (i*7+j*3)%11), fmt.Sprintf("%d.%d", i, j)
			if (i+j)%9 == 0 {
				records = append(records, unset(key))
				newest[key] = "-"
			} else {
				records = append(records, set(key, value))
				newest[key] = value
			}
		}
		c.add(i%3 == 2, batch.Options{}, records...)
	}
	must(t, c.Roll(time.Now().Add(c.cfg.Settings.SegmentAge+time.Hour)))
	c.add(false, batch.Options{}, set("active", "1"))
	newest["active"] = "1"
	passes, now := 1, time.Now()
	for c.compact(now).More {
		if passes++; passes > 300 {
			t.Fatal("it never comes to an end")
		}
	}
	if passes < 5 {
		t.Fatalf("%d passes with a map of three keys", passes)
	}
	look := func() map[string]string {
		got := map[string]string{}
		for _, word := range state(t, c.Log) {
			_, word, _ = strings.Cut(word, ":")
			key, value, _ := strings.Cut(word, "=")
			if _, twice := got[key]; twice {
				t.Fatalf("%s is there twice: %v", key, state(t, c.Log))
			}
			got[key] = value
		}
		return got
	}
	if got := look(); !maps.Equal(got, newest) {
		t.Fatalf("got  %v\nwant %v", got, newest)
	}
	maps.DeleteFunc(newest, func(_, value string) bool { return value == "-" })
	c.compact(now.Add(2 * time.Hour))
	if got := look(); !maps.Equal(got, newest) {
		t.Fatalf("without tombstones\ngot  %v\nwant %v", got, newest)
	}
}

func TestCompactionWaitsForItsTime(t *testing.T) {
	fill := func(change func(*topic.Settings)) *compactable {
		cfg := compactConfig()
		change(&cfg.Settings)
		c := openCompactable(t, vfs.NewMem(), cfg)
		c.add(true, batch.Options{}, set("a", strings.Repeat("x", 1000)))
		c.add(true, batch.Options{}, set("a", "2"))
		c.add(false, batch.Options{}, set("z", "1"))
		return c
	}
	now := time.Now().Add(time.Second)
	for name, x := range map[string]struct {
		change func(*topic.Settings)
		hw     topic.Offset
		now    time.Time
		want   bool
	}{
		"at once":                  {func(*topic.Settings) {}, math.MaxInt64, now, true},
		"above the high watermark": {func(*topic.Settings) {}, 1, now, false},
		"another policy":           {func(s *topic.Settings) { s.Compact = false }, math.MaxInt64, now, false},
		"min lag":                  {func(s *topic.Settings) { s.MinCompactionLag = time.Hour }, math.MaxInt64, now, false},
		"after the min lag":        {func(s *topic.Settings) { s.MinCompactionLag = time.Hour }, math.MaxInt64, now.Add(time.Hour), true},
	} {
		c := fill(x.change)
		did, err := c.Compact(t.Context(), min(x.hw, c.End()), x.now)
		must(t, err)
		if (did.Records > 0) != x.want {
			t.Errorf("%s: %+v", name, did)
		}
	}
	// The dirty ratio: everything is new at first, then little.
	c := fill(func(s *topic.Settings) { s.MinDirtyRatio, s.MaxCompactionLag = 0.5, 24*time.Hour })
	if did := c.compact(now); did.Records != 1 {
		t.Fatalf("all is dirty: %+v", did)
	}
	c.add(true, batch.Options{}, set("b", strings.Repeat("x", 1000)))
	c.add(false, batch.Options{}, set("z", "1"))
	if did := c.compact(now); did.Records != 0 {
		// z=1 and b against a=2: more than half is dirty, and nothing is there twice.
		t.Fatalf("%+v", did)
	}
	c.add(true, batch.Options{}, set("a", "3"))
	c.add(false, batch.Options{}, set("z", "2"))
	if did := c.compact(now); did.Segments != 0 {
		t.Fatalf("little is dirty: %+v", did)
	}
	if did := c.compact(now.Add(25 * time.Hour)); did.Records == 0 {
		t.Fatalf("after max.compaction.lag.ms: %+v", did)
	}
}

// The newest records of a quiet topic are compacted in time too.
func TestTheActiveSegmentIsClosedForMaxCompactionLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, compact := range []bool{true, false} {
			cfg := compactConfig()
			cfg.Settings.Compact, cfg.Settings.MaxCompactionLag = compact, time.Hour
			c := openCompactable(t, vfs.NewMem(), cfg)
			c.add(false, batch.Options{}, set("a", "1"), set("a", "2"))
			time.Sleep(time.Hour - 1)
			c.add(false, batch.Options{}, set("a", "3"))
			must(t, c.Roll(time.Now()))
			if n := c.Stats().Segments; n != 1 {
				t.Errorf("compact %v: %d segments before its time", compact, n)
			}
			time.Sleep(time.Millisecond)
			must(t, c.Roll(time.Now()))
			if n := c.Stats().Segments; (n == 2) != compact {
				t.Errorf("compact %v: %d segments", compact, n)
			}
			if did := c.compact(time.Now()); (did.Records == 2) != compact {
				t.Errorf("compact %v: %+v", compact, did)
			}
		}
	})
}

// A large segment does not become durable in one sync, which would look as if the disk hung.
func TestCompactionSyncsInSteps(t *testing.T) {
	counting := vfs.NewCounting(vfs.NewMem())
	l, _, err := Open(counting, "/p", compactConfig())
	must(t, err)
	t.Cleanup(func() { l.letGo() })
	value := strings.Repeat("x", 900_000)
	for i := range 3 * syncBytes / len(value) {
		must(t, l.Append([][]byte{batchOf(t, l.End(), 1, batch.Options{}, set("twice", "v"), set(strconv.Itoa(i), value))}))
	}
	must(t, l.Roll(time.Now().Add(l.Settings().SegmentAge+time.Hour)))
	before := counting.Counts()
	did, err := l.Compact(t.Context(), l.End(), time.Now())
	must(t, err)
	syncs := counting.Counts().Since(before).Of(vfs.OpSync).Ops
	again, err := l.Compact(t.Context(), l.End(), time.Now())
	must(t, err)
	if did.Segments != 1 || did.Records == 0 || syncs < 3 || syncs > 10 || again.Segments != 0 {
		t.Fatalf("%d syncs, %+v, then %+v", syncs, did, again)
	}
}

// A replay of a compacted log knows the same producers as before.
func TestCompactionKeepsWhatTheProducerTableKnows(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	producer := func(id int64, first int32) batch.Options {
		return batch.Options{Producer: &batch.Producer{ID: id, Epoch: 0, Sequence: first}}
	}
	for i := range int32(8) {
		c.add(i%2 == 1, producer(5, 2*i), set("a", "1"), set("a", "2"))
	}
	c.add(true, producer(KeyedBit|9, 0), set("a", "3"), set("a", "4"))
	c.add(false, batch.Options{}, set("z", "1"))
	c.compact(time.Now())
	expectState(t, c.Log, "17:a=4 18:z=1")
	before := c.producers.encode(topic.Mark{})
	replayed := NewProducers(DefaultProducers())
	must(t, c.replay(replayed, 0, time.Now()))
	if got := agesAside(t, replayed.encode(topic.Mark{})); !bytes.Equal(got, agesAside(t, before)) {
		t.Fatal("the table is another after a replay")
	}
	if got := verdict(replayed, Sequenced{5, 0, 8, 2}, time.Now()); got != "at 8" {
		t.Fatalf("a retry: %s", got)
	}
}

// agesAside is a snapshot in which every entry is of the same age.
func agesAside(t testing.TB, b []byte) []byte {
	t.Helper()
	p, mark, err := decodeProducers(b, ProducerConfig{Window: math.MaxInt64, Silence: math.MaxInt64, KeyBatches: 1024}, time.UnixMilli(1))
	must(t, err)
	return p.encode(mark)
}

func TestADamagedSegmentIsLeftAloneAndSoAreTombstonesBehindIt(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	c.add(true, batch.Options{}, set("b", "1"), set("b", "2"))
	c.add(false, batch.Options{}, set("a", "1"))
	c.add(true, batch.Options{}, set("a", "2"))
	c.add(true, batch.Options{}, unset("a"))
	c.add(false, batch.Options{}, set("z", "1"))
	f, err := c.mem.Open("/p/00000000000000000002.log", 2, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("damage"), batch.HeaderBytes+1)
	must(t, err)
	must(t, f.Close())
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(2 * time.Hour), now.Add(200 * time.Hour)} {
		did := c.compact(at)
		if at.Equal(now) && (did.Damaged != 1 || did.Records != 1) {
			t.Fatalf("%+v", did)
		}
		expectState(t, c.Log, "1:b=2 2-3:gap 3:a=2 4:a=- 5:z=1")
	}
}

func TestCompactionThatIsCalledOffLeavesTheLogAsItWas(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	c.add(true, batch.Options{}, set("a", "1"))
	c.add(true, batch.Options{}, set("a", "2"))
	c.add(false, batch.Options{}, set("z", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Compact(ctx, c.End(), time.Now()); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	expectState(t, c.Log, "0:a=1 1:a=2 2:z=1")
	c.compact(time.Now())
	expectState(t, c.Log, "1:a=2 2:z=1")
}

func TestCompactionWithoutRoomLeavesTheLogAsItWas(t *testing.T) {
	c := openCompactable(t, vfs.NewMem(), compactConfig())
	c.add(true, batch.Options{}, set("a", strings.Repeat("x", 100_000)), set("a", strings.Repeat("y", 100_000)))
	c.add(false, batch.Options{}, set("z", "1"))
	before := state(t, c.Log)
	space, err := c.mem.Space("/")
	must(t, err)
	c.mem.SetSpace(space.Total - space.Free + 50_000)
	_, err = c.Compact(t.Context(), c.End(), time.Now())
	if !fault.Is(err, fault.StorageFull) || Final(err) {
		t.Fatalf("got %v", err)
	}
	if !slices.Equal(state(t, c.Log), before) {
		t.Fatal("the log is another")
	}
	c.add(false, batch.Options{}, set("z", "2"))
	c.mem.SetSpace(math.MaxInt64)
	if did := c.compact(time.Now()); did.Records != 1 {
		t.Fatalf("%+v", did)
	}
}
