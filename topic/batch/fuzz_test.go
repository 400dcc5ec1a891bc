package batch_test

import (
	"bytes"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// FuzzBatch reads arbitrary bytes as batches: nothing panics, errors have their kind, and what passes
// franz-go reads alike. The fuzzer's changes are sealed, or the checksum would stop all of them.
func FuzzBatch(f *testing.F) {
	for _, codec := range allCodecs {
		f.Add(build(f, batch.Options{Codec: codec}, orders(3)...))
	}
	f.Add(build(f, batch.Options{Producer: &batch.Producer{ID: 3}}, oddities()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= batch.HeaderBytes {
			b = reseal(bytes.Clone(b))
		}
		limits := batch.LimitsOf(topic.DefaultSettings())
		facts, err := batch.Validate(b, batch.Stored, limits)
		if err != nil {
			if kind := fault.KindOf(err); kind != fault.Corrupt && kind != fault.RequestTooLarge && kind != fault.RecordTooLarge {
				t.Fatal(err)
			}
			var r batch.Reader
			for r.Reset(b, 0); r.Next(); {
			}
			r.Close()
			return
		}
		if n := compareNear(t, b); n != int(facts.Count) {
			t.Fatalf("%d records were read, the header says %d", n, facts.Count)
		}
		// What a filter keeps is as it was.
		out, kept, err := batch.Filter{Keep: func(*batch.Record) bool { return true }}.Append(nil, b)
		if err != nil || kept != int(facts.Count) {
			t.Fatal(kept, err)
		}
		again, err := batch.Validate(out, batch.Stored, batch.Limits{})
		if err != nil || again.RecordsBytes != facts.RecordsBytes || again.MaxTimestamp != facts.MaxTimestamp {
			t.Fatal(again, err)
		}
		if _, err := batch.Validate(b, batch.Fresh, limits); err == nil && facts.LastOffsetDelta+1 != facts.Count {
			t.Fatal("a batch with holes passes as fresh")
		}
	})
}

// compareNear is compare, but for timestamps that franz-go cannot represent.
func compareNear(t *testing.T, b []byte) (records int) {
	t.Helper()
	want, err := readOracle(b, 0)
	if err != nil {
		t.Fatalf("franz-go refuses it: %v", err)
	}
	var r batch.Reader
	defer r.Close()
	for r.Reset(b, 0); r.Next(); records++ {
		got := *r.Record()
		if records >= len(want) {
			t.Fatalf("more than the %d records that franz-go finds", len(want))
		}
		got.Timestamp = topic.Millis(want[records].Timestamp.UnixMilli())
		if why := same(&got, want[records]); why != "" {
			t.Fatalf("record %d: %s", records, why)
		}
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return records
}

// FuzzRaw walks arbitrary bytes, unsealed, as a log that was torn would have them.
func FuzzRaw(f *testing.F) {
	f.Add(append(build(f, batch.Options{}, orders(2)...), build(f, batch.Options{Codec: batch.LZ4}, orders(9)...)...), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, from int64) {
		total := 0
		for one, err := range batch.All(b) {
			if err != nil {
				break
			}
			total += len(one)
			if h, err := batch.Check(one); err == nil && h.Size() != len(one) {
				t.Fatal("the size of a checked batch is not its length")
			}
		}
		if total > len(b) {
			t.Fatal("the batches are longer than the bytes")
		}
		var r batch.Reader
		defer r.Close()
		last := topic.NoOffset
		var header batch.Header
		for r.Reset(b, topic.Offset(from)); r.Next(); {
			if int64(r.Record().Offset) < from {
				t.Fatal("a record below the offset that was asked for")
			}
			if *r.Header() == header && r.Record().Offset <= last {
				t.Fatal("offsets do not rise in a batch")
			}
			header, last = *r.Header(), r.Record().Offset
		}
	})
}
