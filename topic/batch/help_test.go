package batch_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

var allCodecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// build makes a batch whose records carry their own timestamps.
func build(t testing.TB, o batch.Options, records ...topic.Record) []byte {
	t.Helper()
	var b batch.Builder
	b.Reset(nil, o)
	for i := range records {
		want := b.SizeWith(&records[i], records[i].Timestamp)
		b.Append(&records[i], records[i].Timestamp)
		if b.Size() != want {
			t.Fatalf("record %d: the size after it is %d, and was foretold as %d", i, b.Size(), want)
		}
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// orders are n records of some 200 bytes that pack well.
func orders(n int) []topic.Record {
	records := make([]topic.Record, n)
	for i := range records {
		records[i] = topic.Record{
			Timestamp: topic.Millis(1762077600000 + 7*i),
			Key:       fmt.Appendf(nil, "user-%d", i%17),
			Value:     fmt.Appendf(nil, `{"order":%d,"total":12.50,"currency":"EUR","lines":[{"sku":"A-%d","quantity":2,"price":6.25}],"address":{"street":"Uferweg 12","city":"Z\u00fcrich","note":null},"paid":true}`, i, i%5),
			Headers:   []topic.Header{{Name: "trace", Value: []byte("00-4bf92f3577b34da6-01")}},
		}
	}
	return records
}

// oddities are the records that go wrong first.
func oddities() []topic.Record {
	many := make([]topic.Header, 200)
	for i := range many {
		many[i] = topic.Header{Name: "h", Value: []byte{byte(i)}}
	}
	noise := make([]byte, 3000)
	chance := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(chance.Uint32())
	}
	return []topic.Record{
		{Timestamp: 1000, Value: []byte("no key")},
		{Timestamp: 900, Key: []byte{}, Value: []byte{}}, // earlier than the first
		{Timestamp: 1001, Key: []byte("k")},              // a tombstone
		{Timestamp: 1 << 42, Key: []byte("a\x00b"), Value: []byte("\x00\xff\xfe")},
		{Timestamp: 1000, Value: noise, Headers: many},
		{Timestamp: 1000, Value: []byte("🎈"), Headers: []topic.Header{{}, {Name: "null"}, {Name: "", Value: []byte{}}, {Name: "ü", Value: []byte("x")}}},
	}
}

// reseal renews length and checksum after a test has changed a batch by hand.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// readOracle reads batches with franz-go's own reader.
func readOracle(b []byte, from topic.Offset) ([]*kgo.Record, error) {
	part := kmsg.NewFetchResponseTopicPartition()
	part.RecordBatches = b
	fetched, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: int64(from), KeepControlRecords: true},
		&part, kgo.DefaultDecompressor(), nil)
	return fetched.Records, fetched.Err
}

// same says how a record differs from what the oracle has, or "".
func same(got *batch.Record, want *kgo.Record) string {
	equal := func(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }
	switch {
	case int64(got.Offset) != want.Offset:
		return fmt.Sprintf("offset %d, want %d", got.Offset, want.Offset)
	case int64(got.Timestamp) != want.Timestamp.UnixMilli():
		return fmt.Sprintf("timestamp %d, want %d", got.Timestamp, want.Timestamp.UnixMilli())
	case !equal(got.Key, want.Key):
		return fmt.Sprintf("key %q, want %q", got.Key, want.Key)
	case !equal(got.Value, want.Value):
		return fmt.Sprintf("value %q, want %q", got.Value, want.Value)
	case got.Headers.Len() != len(want.Headers):
		return fmt.Sprintf("%d headers, want %d", got.Headers.Len(), len(want.Headers))
	}
	i := 0
	for name, value := range got.Headers.All() {
		if string(name) != want.Headers[i].Key || !equal(value, want.Headers[i].Value) {
			return fmt.Sprintf("header %q: %q, want %q: %q", name, value, want.Headers[i].Key, want.Headers[i].Value)
		}
		i++
	}
	if i != got.Headers.Len() {
		return fmt.Sprintf("%d headers were read, there are %d", i, got.Headers.Len())
	}
	return ""
}

// compare reads b with our reader and with the oracle.
func compare(t *testing.T, b []byte, from topic.Offset) (records int) {
	t.Helper()
	want, err := readOracle(b, from)
	if err != nil {
		t.Fatalf("franz-go refuses it: %v", err)
	}
	var r batch.Reader
	defer r.Close()
	r.Reset(b, from)
	for i := 0; r.Next(); i++ {
		if i >= len(want) {
			t.Fatalf("more than the %d records that franz-go finds", len(want))
		}
		if why := same(r.Record(), want[i]); why != "" {
			t.Fatalf("record %d: %s", i, why)
		}
		records++
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	if records != len(want) {
		t.Fatalf("%d records, franz-go finds %d", records, len(want))
	}
	return records
}
