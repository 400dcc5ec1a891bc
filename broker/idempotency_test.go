package broker

import (
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

func keyedAppend(key string, records ...topic.Record) *topic.Append {
	return &topic.Append{Topic: "orders", Records: records, Acks: topic.AcksAll, Principal: topic.Anonymous, IdempotencyKey: key}
}

// try makes a call and returns its results; errors are in them.
func (r *running) try(a *topic.Append) []topic.Stored {
	r.t.Helper()
	if err := r.Produce(r.t.Context(), a); err != nil {
		r.t.Fatal(err)
	}
	return a.Results
}

func mixed(n int) []topic.Record {
	var records []topic.Record
	for i := range n {
		record := topic.Record{Partition: topic.AnyPartition, Timestamp: topic.NoTimestamp, Value: fmt.Append(nil, "v", i)}
		switch i % 3 {
		case 0:
			record.Key = fmt.Append(nil, "key", i)
		case 1:
			record.Partition = topic.Partition(i % 4)
		}
		records = append(records, record)
	}
	return records
}

func (r *running) total(name topic.Name) (n int) {
	r.t.Helper()
	d, err := r.Topic(name)
	if err != nil {
		r.t.Fatal(err)
	}
	for p := range d.Partitions {
		n += len(r.records(name, topic.Partition(p), 0))
	}
	return n
}

// same checks that a retry got the answers of the first try, as duplicates.
func same(t *testing.T, what string, first, retry []topic.Stored) {
	t.Helper()
	for i := range first {
		want := first[i]
		want.Duplicate = true
		if retry[i] != want {
			t.Errorf("%s: record %d: %+v, the first try had %+v", what, i, retry[i], first[i])
		}
	}
}

// TestRetry: a repeated call stores nothing and gets the old answers, at once, later, after a restart and
// after a crash.
func TestRetry(t *testing.T) {
	for _, appendTime := range []string{"CreateTime", "LogAppendTime"} {
		t.Run(appendTime, func(t *testing.T) {
			r, mem := beginMem(t)
			r.create("orders", 4, "message.timestamp.type", appendTime)
			records := mixed(30)
			records[4].Timestamp = 12345
			first := slices.Clone(r.try(keyedAppend("k", records...)))
			for i, s := range first {
				if s.Err != nil || s.Duplicate {
					t.Fatalf("record %d: %+v", i, s)
				}
			}
			time.Sleep(2 * time.Millisecond) // another clock for the retry
			same(t, "at once", first, r.try(keyedAppend("k", records...)))
			r.stop()
			r = begin(t, mem, r.cluster, testConfig("data"))
			same(t, "after a restart", first, r.try(keyedAppend("k", records...)))
			crashed := begin(t, mem.Crash(3), r.cluster.clone(), testConfig("data"))
			r.stop()
			r = crashed
			same(t, "after a crash", first, r.try(keyedAppend("k", records...)))
			if n := r.total("orders"); n != 30 {
				t.Errorf("%d records", n)
			}
			for _, other := range []*topic.Append{keyedAppend("other", records...), {Topic: "orders", Records: records, Acks: topic.AcksAll, Principal: "User:x", IdempotencyKey: "k"}} {
				for i, s := range r.try(other) {
					if s.Err != nil || s.Duplicate {
						t.Fatalf("another key or principal: record %d: %+v", i, s)
					}
				}
			}
			if n := r.total("orders"); n != 90 {
				t.Errorf("%d records", n)
			}
			r.stop()
		})
	}
}

// TestKeyReused: the same key with other content is refused, whatever differs.
func TestKeyReused(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1, "max.message.bytes", "2000")
	record := topic.Record{Timestamp: topic.NoTimestamp, Key: []byte("k"), Value: []byte("v"), Headers: []topic.Header{{Name: "a", Value: []byte("b")}}}
	r.try(keyedAppend("k", record, record))
	changes := map[string]func(*topic.Record){
		"value":       func(r *topic.Record) { r.Value = []byte("w") },
		"null value":  func(r *topic.Record) { r.Value = nil },
		"empty value": func(r *topic.Record) { r.Value = []byte{} },
		"key":         func(r *topic.Record) { r.Key = []byte("l") },
		"no headers":  func(r *topic.Record) { r.Headers = nil },
		"header":      func(r *topic.Record) { r.Headers = []topic.Header{{Name: "a", Value: []byte("c")}} },
		"name":        func(r *topic.Record) { r.Headers = []topic.Header{{Name: "ab", Value: nil}} },
	}
	for what, change := range changes {
		other := record
		change(&other)
		for i, s := range r.try(keyedAppend("k", record, other)) {
			if !fault.Is(s.Err, fault.KeyReused) {
				t.Errorf("other %s: record %d: %+v", what, i, s)
			}
		}
	}
	// More of other content must not slip in behind a refused batch.
	long := topic.Record{Timestamp: topic.NoTimestamp, Value: []byte(strings.Repeat("x", 900))}
	for i, s := range r.try(keyedAppend("k", record, long, long, long, long)) {
		if !fault.Is(s.Err, fault.KeyReused) {
			t.Errorf("longer: record %d: %+v", i, s)
		}
	}
	if n := r.total("orders"); n != 2 {
		t.Errorf("%d records", n)
	}
	r.stop()
}

// TestRetryStoresWhatIsMissing: a call of several batches of which the first ones are stored goes on behind them.
func TestRetryStoresWhatIsMissing(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 2, "max.message.bytes", "2000")
	var records []topic.Record
	for i := range 40 {
		records = append(records, to(topic.Partition(i/30), fmt.Sprint(i, strings.Repeat(".", 150))))
	}
	// What was stored before the connection broke: a prefix that ends with a batch, and not all partitions.
	fit, size := 0, batch.HeaderBytes
	for size+weight(&records[fit]) <= 2000 {
		size += weight(&records[fit])
		fit++
	}
	part := r.try(keyedAppend("k", records[:fit]...))
	for _, s := range part {
		if s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	for i, s := range r.try(keyedAppend("k", records...)) {
		if s.Err != nil || s.Duplicate != (i < fit) || s.Offset != topic.Offset(i%30) {
			t.Errorf("record %d: %+v", i, s)
		}
	}
	if n := r.total("orders"); n != 40 {
		t.Errorf("%d records", n)
	}
	r.stop()
}

// TestRetryAndIfLast: that a call is a retry counts before what it asks of the log.
func TestRetryAndIfLast(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1)
	call := func(key string, last topic.Offset, values ...string) topic.Stored {
		a := keyedAppend(key)
		for _, v := range values {
			a.Records = append(a.Records, to(0, v))
		}
		a.IfLast = &last
		return r.try(a)[0]
	}
	if s := call("a", -1, "v0"); s.Err != nil || s.Offset != 0 {
		t.Errorf("%+v", s)
	}
	r.produce("orders", to(0, "v1"))
	if s := call("a", -1, "v0"); s.Err != nil || !s.Duplicate || s.Offset != 0 {
		t.Errorf("the retry: %+v", s)
	}
	if s := call("b", -1, "v2"); !fault.Is(s.Err, fault.OffsetMismatch) {
		t.Errorf("a new key: %+v", s)
	}
	if s := call("b", 1, "v2"); s.Err != nil || s.Offset != 2 {
		t.Errorf("the same key, that had stored nothing: %+v", s)
	}
	r.stop()
}

// TestRetryInFlight: a retry that comes before the first try is on disk waits for it, and both get the
// same offset.
func TestRetryInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		fsys := &slowFS{FS: newMem(t), sync: func(name string) {
			if slow.Load() && isLog(name) {
				time.Sleep(time.Second)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		r.create("orders", 1)
		slow.Store(true)
		var wg sync.WaitGroup
		var duplicates atomic.Int64
		begun := time.Now()
		for range 10 {
			wg.Go(func() {
				s := r.try(keyedAppend("k", to(0, "v")))[0]
				if s.Err != nil || s.Offset != 0 {
					t.Errorf("%+v", s)
				}
				if s.Duplicate {
					duplicates.Add(1)
				}
				if time.Since(begun) < time.Second {
					t.Errorf("answered after %v, before the disk has it", time.Since(begun))
				}
			})
		}
		wg.Wait()
		if duplicates.Load() != 9 || r.total("orders") != 1 {
			t.Errorf("%d duplicates, %d records", duplicates.Load(), r.total("orders"))
		}
		r.stop()
	})
}

// TestWindow: after the window a key is new again.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := beginMem(t)
		r.create("orders", 1)
		r.try(keyedAppend("k", to(0, "v")))
		time.Sleep(9 * time.Minute)
		if s := r.try(keyedAppend("k", to(0, "v")))[0]; !s.Duplicate {
			t.Errorf("inside the window: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		if s := r.try(keyedAppend("k", to(0, "v")))[0]; s.Duplicate || s.Offset != 1 {
			t.Errorf("after the window: %+v", s)
		}
		r.stop()
	})
}

// TestKeyedStream: a request in several calls is one request, and so is its retry.
func TestKeyedStream(t *testing.T) {
	r, mem := beginMem(t)
	r.create("orders", 4)
	records := mixed(90)
	stream := func(upTo int) (all []topic.Stored) {
		keyed := &topic.KeyedStream{}
		for i := 0; i < upTo; i += 10 {
			a := keyedAppend("k", records[i:i+10]...)
			a.Keyed = keyed
			all = append(all, r.try(a)...)
		}
		return all
	}
	first := stream(50)
	r.stop()
	r = begin(t, mem, r.cluster, testConfig("data"))
	retry := stream(90)
	same(t, "the first half", first, retry[:50])
	for i, s := range retry[50:] {
		if s.Err != nil || s.Duplicate {
			t.Errorf("record %d: %+v", 50+i, s)
		}
	}
	same(t, "all of it", retry[50:], stream(90)[50:])
	if n := r.total("orders"); n != 90 {
		t.Errorf("%d records", n)
	}
	r.stop()
}

// TestTooManyBatches: a key has an end, and says so.
func TestTooManyBatches(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1)
	keyed := &topic.KeyedStream{}
	for i := range 1025 {
		a := keyedAppend("k", to(0, fmt.Sprint("v", i)))
		a.Acks = topic.AcksLeader
		a.Keyed = keyed
		s := r.try(a)[0]
		if i < 1024 && s.Err != nil {
			t.Fatalf("batch %d: %v", i, s.Err)
		}
		if i == 1024 && (!fault.Is(s.Err, fault.Limit) || !strings.Contains(s.Err.Error(), "1024")) {
			t.Errorf("batch %d: %+v", i, s)
		}
	}
	r.stop()
}

// TestGrowth: after partitions were added a known key keeps the partitions of its first try, and a new one
// uses all.
func TestGrowth(t *testing.T) {
	r, mem := beginMem(t)
	r.create("orders", 4)
	records := mixed(60)
	first := slices.Clone(r.try(keyedAppend("k", records...)))
	grow := func(n int) {
		t.Helper()
		if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Partitions: n}); err != nil {
			t.Fatal(err)
		}
	}
	grow(9)
	same(t, "after a growth", first, r.try(keyedAppend("k", records...)))
	second := slices.Clone(r.try(keyedAppend("l", records...)))
	moved := 0
	for i, s := range second {
		if s.Err != nil || s.Duplicate {
			t.Errorf("a new key: record %d: %+v", i, s)
		}
		if s.Partition != first[i].Partition {
			moved++
		}
	}
	if moved == 0 {
		t.Error("a new key still uses the old partitions only")
	}
	grow(12)
	r.stop()
	r = begin(t, mem, r.cluster, testConfig("data"))
	same(t, "after two growths and a restart", first, r.try(keyedAppend("k", records...)))
	same(t, "after one growth and a restart", second, r.try(keyedAppend("l", records...)))
	if n := r.total("orders"); n != 120 {
		t.Errorf("%d records", n)
	}
	r.stop()
}

// TestLooseStaysTogether: records with neither key nor partition choose from the idempotency key, in blocks.
func TestLooseStaysTogether(t *testing.T) {
	seen := map[topic.Partition]bool{}
	for i := range 100 {
		key := keyID("p", topic.ID{1}, fmt.Sprint(i), 8)
		p := looseKeyed(key, 0, 8)
		if p != looseKeyed(key, looseBlock-1, 8) {
			t.Errorf("key %d: a block is torn apart", i)
		}
		if looseKeyed(key, looseBlock, 8) != (p+1)%8 {
			t.Errorf("key %d: the next block is not in the next partition", i)
		}
		seen[p] = true
	}
	if len(seen) != 8 {
		t.Errorf("100 keys used %d partitions of 8", len(seen))
	}
	// Each part of what a key is has its length, so that none runs into the next.
	if keyID("ab", topic.ID{}, "c", 1) == keyID("a", topic.ID{}, "bc", 1) {
		t.Error("two callers share a producer id")
	}
}

// TestRetryReadsItsBatchAlone: the answer to a retry costs what the request did, and not what came after it.
func TestRetryReadsItsBatchAlone(t *testing.T) {
	counting := vfs.NewCounting(newMem(t))
	cfg := testConfig("data")
	cfg.TailBytes = 0
	r := begin(t, counting, newOneNode(), cfg)
	r.create("orders", 1)
	first := slices.Clone(r.try(keyedAppend("k", to(0, "v"), to(0, "w"))))
	for range 16 {
		r.produce("orders", to(0, strings.Repeat("x", 500_000)))
	}
	before := counting.Counts()
	same(t, "retry", first, r.try(keyedAppend("k", to(0, "v"), to(0, "w"))))
	if read := counting.Counts().Since(before).Of(vfs.OpRead).Bytes; read > 1<<20 {
		t.Errorf("%d bytes were read for two records", read)
	}
	r.stop()
}
