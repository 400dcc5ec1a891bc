package broker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// appendTo is a produce call with one value for partition 0.
func appendTo(name topic.Name, acks topic.Acks, values ...string) *topic.Append {
	a := &topic.Append{Topic: name, Acks: acks, Principal: topic.Anonymous}
	for _, v := range values {
		a.Records = append(a.Records, to(0, v))
	}
	return a
}

// TestManyProducers: offsets are without holes, and every producer's records are in its order.
func TestManyProducers(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 3)
	var wg sync.WaitGroup
	const producers, calls = 16, 40
	for id := range producers {
		wg.Go(func() {
			for i := range calls {
				got := r.produce("orders", to(topic.Partition(i%3), fmt.Sprintf("%d:%d", id, i)))
				if got[0].Partition != topic.Partition(i%3) || got[0].Timestamp <= 0 || got[0].Duplicate {
					t.Errorf("result %+v", got[0])
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for p := range topic.Partition(3) {
		last := map[int]int{}
		for i, record := range r.records("orders", p, 0) {
			if record.Offset != topic.Offset(i) {
				t.Fatalf("partition %d: offset %d at place %d", p, record.Offset, i)
			}
			var id, n int
			if _, err := fmt.Sscanf(string(record.Value), "%d:%d", &id, &n); err != nil {
				t.Fatal(err)
			}
			if before, ok := last[id]; ok && before >= n {
				t.Fatalf("partition %d: producer %d: %d after %d", p, id, n, before)
			}
			last[id] = n
			total++
		}
	}
	if total != producers*calls {
		t.Errorf("%d records of %d", total, producers*calls)
	}
	r.stop()
}

// TestGroupCommit: producers that wait at the same time share a sync.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		fsys := &slowFS{FS: newMem(t), sync: func(name string) {
			if isLog(name) {
				syncs.Add(1)
				time.Sleep(time.Millisecond)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		r.create("orders", 1)
		syncs.Store(0)
		const producers, calls = 64, 20
		var wg sync.WaitGroup
		for range producers {
			wg.Go(func() {
				for range calls {
					r.produce("orders", to(0, "v"))
				}
			})
		}
		wg.Wait()
		// A call that comes while a sync runs waits for the next one. At worst the first of a round has a
		// sync of its own, and the other 63 share the next.
		if n := syncs.Load(); n < calls || n > 2*calls+2 {
			t.Errorf("%d producers with %d calls each took %d syncs", producers, calls, n)
		}
		r.stop()
	})
}

// TestAcks: all waits for the disk, leader for the write, none for nothing.
func TestAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Bool
		fsys := &slowFS{FS: newMem(t), sync: func(name string) {
			for isLog(name) && hold.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		d := r.create("orders", 1)
		r.produce("orders", to(0, "v0"))
		hold.Store(true)

		a := appendTo("orders", topic.AcksLeader, "v1")
		if err := r.Produce(t.Context(), a); err != nil || a.Results[0].Err != nil || a.Results[0].Offset != 1 {
			t.Errorf("leader: %v, %+v", err, a.Results)
		}
		a = appendTo("orders", topic.AcksNone, "v2")
		if err := r.Produce(t.Context(), a); err != nil || a.Results[0].Err != nil || a.Results[0].Offset != topic.NoOffset {
			t.Errorf("none: %v, %+v", err, a.Results)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a = appendTo("orders", topic.AcksAll, "v3")
		if err := r.Produce(ctx, a); err != nil || !fault.Is(a.Results[0].Err, fault.Timeout) || a.Results[0].Offset != topic.NoOffset {
			t.Errorf("all, while the disk is busy: %v, %+v", err, a.Results)
		}
		if b, err := r.Bounds(topic.Ref{ID: d.ID}); err != nil || b.HighWatermark != 1 {
			t.Errorf("bounds %+v, %v: what is not synced is readable", b, err)
		}
		if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 1)) {
			t.Errorf("read %v", got)
		}
		hold.Store(false)
		time.Sleep(time.Second)
		if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 4)) {
			t.Errorf("read %v", got)
		}
		r.stop()
	})
}

// TestGivenUpInQueue: a call whose time ends before the owner begins with it is refused, and is not stored.
func TestGivenUpInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Bool
		fsys := &slowFS{FS: newMem(t), write: func(name string) {
			for isLog(name) && hold.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		r.create("orders", 1)
		hold.Store(true)
		first := make(chan []topic.Stored)
		go func() { first <- r.produce("orders", to(0, "v0")) }()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := appendTo("orders", topic.AcksAll, "never")
		if err := r.Produce(ctx, a); err != nil || !fault.Is(a.Results[0].Err, fault.Overloaded) {
			t.Errorf("%v, %+v", err, a.Results)
		}
		hold.Store(false)
		<-first
		r.produce("orders", to(0, "v1"))
		if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 2)) {
			t.Errorf("read %v", got)
		}
		if used := r.inFlight.used.Load(); used != 0 {
			t.Errorf("%d bytes are still on their way", used)
		}
		r.stop()
	})
}

// TestBounds: the queue of a partition and the memory for what waits have an end.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Bool
		fsys := &slowFS{FS: newMem(t), write: func(name string) {
			for isLog(name) && hold.Load() {
				time.Sleep(10 * time.Millisecond)
			}
		}}
		cfg := testConfig("data")
		cfg.QueuedAppends = 4
		r := begin(t, fsys, newOneNode(), cfg)
		r.create("orders", 1)
		hold.Store(true)
		var wg sync.WaitGroup
		var stored, refused atomic.Int64
		for i := range 10 {
			wg.Go(func() {
				a := appendTo("orders", topic.AcksAll, "v")
				if err := r.Produce(context.Background(), a); err != nil {
					t.Error(err)
				}
				switch err := a.Results[0].Err; {
				case err == nil:
					stored.Add(1)
				case fault.Is(err, fault.Overloaded):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
			time.Sleep(time.Duration(i+1) * time.Millisecond)
		}
		hold.Store(false)
		wg.Wait()
		if stored.Load() != 5 || refused.Load() != 5 || len(r.values("orders", 0, 0)) != 5 {
			t.Errorf("stored %d, refused %d, there are %d", stored.Load(), refused.Load(), len(r.values("orders", 0, 0)))
		}

		r.inFlight.most = 1000
		a := appendTo("orders", topic.AcksAll, strings.Repeat("x", 2000))
		if err := r.Produce(t.Context(), a); !fault.Is(err, fault.Overloaded) {
			t.Errorf("over the memory budget: %v", err)
		}
		r.produce("orders", to(0, "v"))
		if used := r.inFlight.used.Load(); used != 0 {
			t.Errorf("%d bytes are still on their way", used)
		}
		r.stop()
	})
}

// TestRecordChecks: a record is refused for what it is, and the others of its call are stored.
func TestRecordChecks(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 2, "max.message.bytes", "10000")
	now := topic.Millis(time.Now().UnixMilli())
	many := make([]topic.Header, 1000)
	records := []topic.Record{
		to(0, "a"),
		to(0, strings.Repeat("x", 5001)),
		to(0, strings.Repeat("x", 5000)),
		to(7, "b"),
		{Partition: 0, Timestamp: now + 2*3600_000, Value: []byte("c")},
		{Partition: 0, Timestamp: now + 1800_000, Value: []byte("d")},
		{Partition: 0, Timestamp: -5, Value: []byte("e")},
		{Partition: 0, Timestamp: topic.NoTimestamp, Headers: many},
		{Partition: 0, Timestamp: 0, Key: []byte{}, Value: nil, Headers: []topic.Header{{Name: "h", Value: nil}, {Name: "h", Value: []byte{}}}},
		{Partition: -2, Timestamp: topic.NoTimestamp},
	}
	want := []fault.Kind{0, fault.RecordTooLarge, 0, fault.NoPartition, fault.Validation, 0, fault.Validation, fault.RecordTooLarge, 0, fault.NoPartition}
	a := &topic.Append{Topic: "orders", Records: records, Acks: topic.AcksAll}
	if err := r.Produce(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	next := topic.Offset(0)
	for i, got := range a.Results {
		if want[i] != 0 {
			if !fault.Is(got.Err, want[i]) || got.Offset != topic.NoOffset {
				t.Errorf("record %d: %+v, want %v", i, got, want[i])
			}
			continue
		}
		if got.Err != nil || got.Offset != next {
			t.Errorf("record %d: %+v, want offset %d", i, got, next)
		}
		next++
	}
	read := r.records("orders", 0, 0)
	if len(read) != 4 || string(read[0].Value) != "a" || read[2].Timestamp != now+1800_000 || read[3].Timestamp != 0 {
		t.Errorf("read %d records", len(read))
	}
	r.stop()
}

// TestCut: what does not fit in one batch becomes several, each within the limit.
func TestCut(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			r, _ := beginMem(t)
			r.create("orders", 1, "max.message.bytes", "5000", "compression.type", codec)
			var records []topic.Record
			for i := range 100 {
				records = append(records, to(0, fmt.Sprint("v", i)+strings.Repeat(".", 200)))
			}
			got := r.produce("orders", records...)
			if got[99].Offset != 99 {
				t.Errorf("the last offset is %d", got[99].Offset)
			}
			batches, count := 0, 0
			for one, err := range batch.All(r.bytes("orders", 0)) {
				if err != nil {
					t.Fatal(err)
				}
				facts, err := batch.Validate(one, batch.Fresh, batch.Limits{BatchBytes: 5000})
				if err != nil {
					t.Error(err)
				}
				if want := codec != "none"; (facts.Codec() != batch.None) != want {
					t.Errorf("codec %v", facts.Codec())
				}
				batches++
				count += int(facts.Count)
			}
			if count != 100 || batches < 5 || batches > 8 {
				t.Errorf("%d records in %d batches", count, batches)
			}
			r.stop()
		})
	}
}

// TestAppendTime: the node's clock is every record's timestamp.
func TestAppendTime(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1, "message.timestamp.type", "LogAppendTime")
	before := topic.Millis(time.Now().UnixMilli())
	got := r.produce("orders", topic.Record{Timestamp: 5, Value: []byte("a")}, topic.Record{Timestamp: topic.NoTimestamp, Value: []byte("b")})
	after := topic.Millis(time.Now().UnixMilli())
	for i, record := range r.records("orders", 0, 0) {
		if record.Timestamp < before || record.Timestamp > after || got[i].Timestamp != record.Timestamp {
			t.Errorf("record %d has %d, and its result %d; it was between %d and %d", i, record.Timestamp, got[i].Timestamp, before, after)
		}
	}
	r.stop()
}

// TestSpread: records with a key go where Kafka's clients send them; those without stay together.
func TestSpread(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 7)
	var records []topic.Record
	for i := range 50 {
		record := topic.Record{Partition: topic.AnyPartition, Timestamp: topic.NoTimestamp, Value: []byte("v")}
		if i%2 == 0 {
			record.Key = fmt.Append(nil, "key-", i)
		}
		records = append(records, record)
	}
	loose := topic.AnyPartition
	for i, got := range r.produce("orders", records...) {
		switch {
		case i%2 == 0:
			if want := keyed(records[i].Key, 7); got.Partition != want {
				t.Errorf("key %q went to %d, not to %d", records[i].Key, got.Partition, want)
			}
		case loose == topic.AnyPartition:
			loose = got.Partition
		case got.Partition != loose:
			t.Errorf("record %d went to %d, the one before to %d", i, got.Partition, loose)
		}
	}
	r.stop()
}

func TestIfLast(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 2)
	try := func(last topic.Offset, values ...string) error {
		a := appendTo("orders", topic.AcksAll, values...)
		a.IfLast = &last
		if err := r.Produce(t.Context(), a); err != nil {
			return err
		}
		return a.Results[0].Err
	}
	if err := try(0, "no"); !fault.Is(err, fault.OffsetMismatch) {
		t.Errorf("on an empty log: %v", err)
	}
	if err := try(-1, "v0", "v1"); err != nil {
		t.Error(err)
	}
	if err := try(-1, "no"); !fault.Is(err, fault.OffsetMismatch) {
		t.Errorf("the log has moved on: %v", err)
	}
	if err := try(1, "v2"); err != nil {
		t.Error(err)
	}
	var stored atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := try(2, "v3"); err == nil {
				stored.Add(1)
			} else if !fault.Is(err, fault.OffsetMismatch) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if stored.Load() != 1 {
		t.Errorf("%d calls with the same condition were stored", stored.Load())
	}
	if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 4)) {
		t.Errorf("read %v", got)
	}
	a := appendTo("orders", topic.AcksAll, "x")
	last := topic.Offset(3)
	a.IfLast, a.Records = &last, append(a.Records, to(1, "y"))
	if err := r.Produce(t.Context(), a); !fault.Is(err, fault.Validation) {
		t.Errorf("for two partitions: %v", err)
	}
	r.stop()
}

// TestBuffersAreCopied: the caller may use its memory again as soon as Produce has returned, also when it
// has not waited.
func TestBuffersAreCopied(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1)
	value := make([]byte, 8)
	for i := range 200 {
		copy(value, fmt.Sprintf("%08d", i))
		a := appendTo("orders", topic.AcksNone, "")
		a.Records[0].Value = value
		if err := r.Produce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	r.produce("orders", to(0, "end"))
	for i, got := range r.values("orders", 0, 0)[:200] {
		if got != fmt.Sprintf("%08d", i) {
			t.Fatalf("record %d is %q", i, got)
		}
	}
	r.stop()
}

func TestRefusals(t *testing.T) {
	mem := newMem(t)
	cfg := testConfig("data")
	cfg.AutoCreate = false
	c := newOneNode()
	c.held = make(chan struct{})
	r := launch(t, mem, c, cfg)
	for _, when := range []struct {
		what string
		kind fault.Kind
	}{{"starting", fault.NotLeader}, {"serving", fault.NoTopic}, {"stopped", fault.Stopping}} {
		switch when.what {
		case "serving":
			close(c.held)
			r.await("it serves", func() bool { return r.Ready() == nil })
		case "stopped":
			r.stop()
		}
		if err := r.Produce(t.Context(), appendTo("orders", topic.AcksAll, "v")); !fault.Is(err, when.kind) {
			t.Errorf("%s: produce: %v", when.what, err)
		}
		if _, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders"}); !fault.Is(err, when.kind) {
			t.Errorf("%s: fetch: %v", when.what, err)
		}
		if _, err := r.Offsets(t.Context(), "orders", topic.At{}); !fault.Is(err, when.kind) {
			t.Errorf("%s: offsets: %v", when.what, err)
		}
		if _, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders"}, 0); !fault.Is(err, when.kind) {
			t.Errorf("%s: delete records: %v", when.what, err)
		}
		if err := r.DeleteTopic(t.Context(), "orders"); !fault.Is(err, when.kind) {
			t.Errorf("%s: delete: %v", when.what, err)
		}
		if (when.what == "serving") != (r.Ready() == nil) {
			t.Errorf("%s: ready: %v", when.what, r.Ready())
		}
		if _, err := r.Bounds(topic.Ref{}); err == nil {
			t.Errorf("%s: bounds of nothing", when.what)
		}
	}
}

// TestTailIsMemory: who reads at the end does not touch the disk, and everyone gets the same bytes.
func TestTailIsMemory(t *testing.T) {
	counting := vfs.NewCounting(newMem(t))
	r := begin(t, counting, newOneNode(), testConfig("data"))
	r.create("orders", 1)
	r.produce("orders", to(0, "v0"), to(0, "v1"))
	before := counting.Counts()
	one, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", LastEpoch: topic.NoEpoch})
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", LastEpoch: topic.NoEpoch})
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Batches) == 0 || &one.Batches[0] != &two.Batches[0] {
		t.Error("two readers at the tail got different memory")
	}
	if n := counting.Counts().Since(before).Of(vfs.OpRead).Ops; n != 0 {
		t.Errorf("%d reads of the disk", n)
	}
	r.stop()

	r = begin(t, counting, r.cluster, testConfig("data"))
	cold, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", LastEpoch: topic.NoEpoch})
	if err != nil || !bytes.Equal(cold.Batches, one.Batches) {
		t.Errorf("after a restart the bytes are others: %v", err)
	}
	r.stop()
}
