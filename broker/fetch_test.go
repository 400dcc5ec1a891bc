package broker

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func fetchAt(offset topic.Offset) topic.Fetch {
	return topic.Fetch{Topic: "orders", Offset: offset, LastEpoch: topic.NoEpoch, MaxBytes: 1 << 20}
}

// TestFetchWaits: a fetch at the end waits, is woken by a record, and ends with nothing after its time.
func TestFetchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		r.create("orders", 1)
		f := fetchAt(0)
		begun := time.Now()
		f.Wait = time.Minute
		got, err := r.Fetch(t.Context(), f)
		if err != nil || len(got.Batches) != 0 || got.Next != 0 || time.Since(begun) != time.Minute {
			t.Errorf("an empty wait: %+v, %v, after %v", got, err, time.Since(begun))
		}

		begun = time.Now()
		go func() {
			time.Sleep(10 * time.Second)
			r.produce("orders", to(0, "v0"))
		}()
		got, err = r.Fetch(t.Context(), f)
		if took := time.Since(begun); err != nil || got.Next != 1 || took < 10*time.Second || took > 10*time.Second+bellMost {
			t.Errorf("a wait for one record: %+v, %v, after %v", got, err, time.Since(begun))
		}

		// Enough bytes, or the end of the time.
		begun = time.Now()
		f.MinBytes = 1400 // the first batch has 70, the others 470
		go func() {
			for range 8 {
				time.Sleep(time.Second)
				r.produce("orders", to(0, strings.Repeat("x", 400)))
			}
		}()
		got, err = r.Fetch(t.Context(), f)
		if err != nil || got.Next != 4 || len(got.Batches) < 1400 || time.Since(begun) > 4*time.Second {
			t.Errorf("a wait for bytes: next %d, %d bytes, %v, after %v", got.Next, len(got.Batches), err, time.Since(begun))
		}
		time.Sleep(time.Minute)
		f.MinBytes, f.MaxBytes = 1<<20, 500
		if got, err = r.Fetch(t.Context(), f); err != nil || got.Next == 0 {
			t.Errorf("more bytes asked for than may come: %+v, %v", got, err)
		}

		// What there is comes when the caller gives up.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.MinBytes, f.MaxBytes = 1<<20, 1<<20
		if got, err = r.Fetch(ctx, f); err != nil || got.Next != 9 {
			t.Errorf("given up: %+v, %v", got, err)
		}
		r.stop()
	})
}

// TestWaitsHoldNothing: those who wait for more than there is keep nothing of it meanwhile, and get all of
// it in the end.
func TestWaitsHoldNothing(t *testing.T) {
	const waiters, records = 100, 8
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		r.create("orders", 1)
		for range records {
			r.produce("orders", to(0, strings.Repeat("x", 500<<10)))
		}
		f := fetchAt(0)
		f.Wait, f.MinBytes, f.MaxBytes = time.Minute, 16<<20, 16<<20
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				got, err := r.Fetch(t.Context(), f)
				if err != nil || got.Next != records+1 || len(got.Batches) < records*500<<10 {
					t.Errorf("next %d, %d bytes, %v", got.Next, len(got.Batches), err)
				}
			})
		}
		synctest.Wait()
		r.produce("orders", to(0, "one more"))
		synctest.Wait()
		if grown := heap() - before; grown > 100<<20 { // each of them would hold 4 MB
			t.Errorf("%d waiting fetches hold %d bytes", waiters, grown)
		}
		wg.Wait()
		r.stop()
	})
}

func TestFetchRange(t *testing.T) {
	r, _ := beginMem(t)
	d := r.create("orders", 1)
	for range 10 {
		r.produce("orders", to(0, "v"))
	}
	if _, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset topic.Offset
		reason topic.GapReason
		resume topic.Offset
	}{{3, topic.Retention, 4}, {0, topic.Retention, 4}, {4, "", 0}, {10, "", 0}, {11, topic.BeyondEnd, 10}, {1 << 40, topic.BeyondEnd, 10}} {
		got, err := r.Fetch(t.Context(), fetchAt(c.offset))
		if c.reason == "" {
			if err != nil || got.LogStart != 4 || got.HighWatermark != 10 || got.ID != d.ID {
				t.Errorf("offset %d: %+v, %v", c.offset, got, err)
			}
			continue
		}
		var out *topic.RangeError
		if !fault.Is(err, fault.OffsetRange) || !errors.As(err, &out) || out.Reason != c.reason || out.ResumeAt != c.resume ||
			out.Bounds.LogStart != 4 || out.Bounds.HighWatermark != 10 {
			t.Errorf("offset %d: %v, %+v", c.offset, err, out)
		}
	}
	if _, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", Partition: 1}); !fault.Is(err, fault.NoPartition) {
		t.Error(err)
	}
	if _, err := r.Fetch(t.Context(), topic.Fetch{ID: topic.NewID()}); !fault.Is(err, fault.NoTopic) {
		t.Error(err)
	}
	got, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", ID: d.ID, Offset: 5, LastEpoch: topic.NoEpoch, MaxBytes: 1})
	if err != nil || got.Next != 6 {
		t.Errorf("one byte is one batch at least: %+v, %v", got, err)
	}
	r.stop()
}

// TestTruncatedReader: with flush.messages=0 a power cut takes records that were read. Their reader is told
// when it comes back, and told where its log and this one part.
func TestTruncatedReader(t *testing.T) {
	r, mem := beginMem(t)
	r.create("orders", 1, "flush.messages", "0", "flush.ms", "3600000")
	for range 5 {
		r.produce("orders", to(0, "old"))
	}
	r.stop() // the clean end syncs them
	r = begin(t, mem, r.cluster, testConfig("data"))
	epoch := r.epochOf("orders")
	for range 5 {
		r.produce("orders", to(0, "lost"))
	}
	var b topic.Bounds
	for seed := uint64(0); ; seed++ { // until chance takes something
		again := begin(t, mem.Crash(seed), r.cluster.clone(), testConfig("data"))
		if b = again.boundsOf("orders"); b.HighWatermark < 5 || seed == 100 {
			t.Fatalf("seed %d: the end is %d", seed, b.HighWatermark)
		}
		if b.HighWatermark < 10 {
			r.stop()
			r = again
			break
		}
		again.stop()
	}
	for range 8 {
		r.produce("orders", to(0, "new"))
	}
	f := fetchAt(10)
	f.LastEpoch = epoch
	_, err := r.Fetch(t.Context(), f)
	var out *topic.RangeError
	if !errors.As(err, &out) || out.Reason != topic.Truncated || out.ResumeAt != b.HighWatermark {
		t.Errorf("a reader of lost records: %v, %+v; the log was cut to %d", err, out, b.HighWatermark)
	}
	f = fetchAt(5)
	f.LastEpoch = epoch - 1
	if _, err := r.Fetch(t.Context(), f); err != nil {
		t.Errorf("a reader of what is still there: %v", err)
	}
	f = fetchAt(10)
	f.LastEpoch = b.LeaderEpoch
	if _, err := r.Fetch(t.Context(), f); err != nil {
		t.Errorf("a reader of the new epoch: %v", err)
	}
	r.stop()
}

func (r *running) boundsOf(name topic.Name) topic.Bounds {
	r.t.Helper()
	d, err := r.Topic(name)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := r.Bounds(topic.Ref{ID: d.ID})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *running) epochOf(name topic.Name) topic.Epoch { return r.boundsOf(name).LeaderEpoch }

// TestEpochs: every start is a new reign.
func TestEpochs(t *testing.T) {
	r, mem := beginMem(t)
	r.create("orders", 1)
	r.produce("orders", to(0, "v0"))
	first := r.epochOf("orders")
	for i := range 3 {
		r.stop()
		r = begin(t, mem, r.cluster, testConfig("data"))
		if got := r.epochOf("orders"); got != first+topic.Epoch(i)+1 {
			t.Errorf("start %d: epoch %d", i, got)
		}
		if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 1)) {
			t.Errorf("read %v", got)
		}
	}
	r.stop()
}

// TestListen: a bell rings for records, settings, partitions, deleted records and the topic's end.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		d := r.create("orders", 1)
		bell := make(chan struct{}, 1)
		stop, err := r.Listen(topic.Ref{ID: d.ID}, bell)
		if err != nil {
			t.Fatal(err)
		}
		event := func(what string, f func()) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			rung(bell)
			f()
			time.Sleep(bellMost)
			synctest.Wait()
			if !rung(bell) {
				t.Errorf("not rung for %s", what)
			}
		}
		event("a record", func() { r.produce("orders", to(0, "v")) })
		event("deleted records", func() {
			if start, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, topic.NoOffset); err != nil || start != 1 {
				t.Errorf("%d, %v", start, err)
			}
		})
		event("a setting", func() {
			if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"retention.ms": new("1000")}}); err != nil {
				t.Error(err)
			}
		})
		event("a partition", func() {
			if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Partitions: 2}); err != nil {
				t.Error(err)
			}
		})
		event("the end", func() {
			if err := r.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
		})
		stop()
		stop()
		if _, err := r.Listen(topic.Ref{ID: d.ID}, bell); !fault.Is(err, fault.NoTopic) {
			t.Errorf("listening to what is gone: %v", err)
		}
		r.stop()
	})
}

// TestManyWaiting: all who wait are woken, and soon.
func TestManyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		r.create("orders", 1)
		var got atomic.Int64
		for range 500 {
			go func() {
				f := fetchAt(0)
				f.Wait = time.Hour
				if fetched, err := r.Fetch(context.Background(), f); err == nil && fetched.Next == 1 {
					got.Add(1)
				}
			}()
		}
		time.Sleep(time.Second)
		r.produce("orders", to(0, "v"))
		time.Sleep(bellMost)
		synctest.Wait()
		if n := got.Load(); n != 500 {
			t.Errorf("%d of 500 have it", n)
		}
		r.stop()
	})
}

func TestOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		r.create("orders", 2)
		base := topic.Millis(time.Now().UnixMilli())
		for range 10 {
			r.produce("orders", to(0, "v"))
			time.Sleep(time.Second)
		}
		if _, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, 2); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			at     topic.At
			offset topic.Offset
			time   topic.Millis
		}{
			{topic.At{Kind: topic.AtEarliest}, 2, topic.NoTimestamp},
			{topic.At{Kind: topic.AtLatest}, 10, topic.NoTimestamp},
			{topic.At{Kind: topic.AtTime, Time: 0}, 2, base + 2000},
			{topic.At{Kind: topic.AtTime, Time: base + 5000}, 5, base + 5000},
			{topic.At{Kind: topic.AtTime, Time: base + 5001}, 6, base + 6000},
			{topic.At{Kind: topic.AtTime, Time: base + 50_000}, 10, topic.NoTimestamp},
		} {
			got, err := r.Offsets(t.Context(), "orders", c.at)
			if err != nil || len(got) != 2 || got[0].Offset != c.offset || got[0].Timestamp != c.time || got[1].Offset != 0 || got[1].Partition != 1 {
				t.Errorf("%+v: %+v, %v", c.at, got, err)
			}
		}
		if _, err := r.Offsets(t.Context(), "none", topic.At{}); !fault.Is(err, fault.NoTopic) {
			t.Error(err)
		}
		for _, before := range []topic.Offset{11, -2} {
			if _, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, before); !fault.Is(err, fault.OffsetRange) {
				t.Errorf("delete before %d: %v", before, err)
			}
		}
		if got, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, 1); err != nil || got != 2 {
			t.Errorf("delete what is gone: %d, %v", got, err)
		}
		r.stop()
	})
}
