package batch_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes on disk are a promise: these files only ever change with a new version of the format.
func TestGoldenBytes(t *testing.T) {
	plain := build(t, batch.Options{}, oddities()...)
	producer := build(t, batch.Options{Producer: &batch.Producer{ID: 4711, Epoch: 3, Sequence: 17}}, orders(3)...)
	batch.Stamp(producer, 1041, 7)
	appendTime := build(t, batch.Options{}, orders(2)...)
	batch.SetAppendTime(appendTime, 1762077699999)
	compacted, _, err := batch.Filter{Keep: func(r *batch.Record) bool { return r.Offset == 1042 }, Horizon: 1762077700000}.Append(nil, producer)
	if err != nil {
		t.Fatal(err)
	}
	emptied, _, err := batch.Filter{Keep: func(*batch.Record) bool { return false }}.Append(nil, producer)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"oddities": plain, "producer": producer, "append-time": appendTime, "compacted": compacted, "emptied": emptied} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "golden", name+".hex")
			if *update {
				if err := os.WriteFile(file, []byte(wrapped(hex.EncodeToString(b))), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, want) {
				t.Fatalf("built\n%x\nthe file has\n%x", b, want)
			}
			compare(t, want, 0)
		})
	}
}

func wrapped(s string) string {
	var b strings.Builder
	for line := range slices.Chunk([]byte(s), 64) {
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// What we build, franz-go reads, in every codec; and we read it alike.
func TestBuiltBatchesReadAlike(t *testing.T) {
	for _, codec := range allCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			for name, records := range map[string][]topic.Record{"oddities": oddities(), "orders": orders(300), "one": orders(1)} {
				b := build(t, batch.Options{Codec: codec}, records...)
				batch.Stamp(b, 500, 2)
				facts, err := batch.Validate(b, batch.Fresh, batch.Limits{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if name == "orders" && facts.Codec() != codec {
					t.Errorf("the batch is packed as %s", facts.Codec())
				}
				if int(facts.Count) != len(records) || facts.Next() != 500+topic.Offset(len(records)) || facts.LeaderEpoch != 2 {
					t.Errorf("%s: header %+v", name, facts.Header)
				}
				if facts.MaxTimestamp != facts.Header.MaxTimestamp {
					t.Errorf("%s: the largest timestamp is %d, the header has %d", name, facts.MaxTimestamp, facts.Header.MaxTimestamp)
				}
				for _, from := range []topic.Offset{0, 500, 501, 500 + topic.Offset(len(records)) - 1, 500 + topic.Offset(len(records))} {
					if n := compare(t, b, from); n != min(len(records), 500+len(records)-int(from)) {
						t.Errorf("%s: %d records from offset %d on", name, n, from)
					}
				}
			}
		})
	}
}

// What comes out is what went in.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytesOrNil := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte()))
		header := rapid.Custom(func(t *rapid.T) topic.Header {
			return topic.Header{Name: rapid.String().Draw(t, "name"), Value: bytesOrNil.Draw(t, "value")}
		})
		records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) topic.Record {
			return topic.Record{
				Timestamp: topic.Millis(rapid.Int64Range(-1, math.MaxInt64/4).Draw(t, "timestamp")),
				Key:       bytesOrNil.Draw(t, "key"),
				Value:     bytesOrNil.Draw(t, "value"),
				Headers:   rapid.SliceOfN(header, 0, 4).Draw(t, "headers"),
			}
		}), 1, 20).Draw(t, "records")
		var b batch.Builder
		b.Reset([]byte("before"), batch.Options{Codec: rapid.SampledFrom(allCodecs).Draw(t, "codec")})
		largest := 0
		for i := range records {
			b.Append(&records[i], records[i].Timestamp)
			largest = max(largest, batch.RecordBytes(&records[i]))
		}
		size := b.Size()
		out, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		out, ok := bytes.CutPrefix(out, []byte("before"))
		if !ok || len(out) > size {
			t.Fatalf("%d bytes, %d were foretold at most", len(out), size)
		}
		facts, err := batch.Validate(out, batch.Fresh, batch.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if facts.LargestRecord != largest {
			t.Fatalf("the largest record has %d bytes, want %d", facts.LargestRecord, largest)
		}
		var r batch.Reader
		defer r.Close()
		r.Reset(out, 0)
		var got topic.Record
		for i, want := range records {
			if !r.Next() {
				t.Fatal("ended early", r.Err())
			}
			r.Record().Topic(&got)
			if got.Timestamp != want.Timestamp || !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) ||
				!bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil) {
				t.Fatalf("record %d is %+v, want %+v", i, got, want)
			}
			if !slices.EqualFunc(got.Headers, want.Headers, func(a, b topic.Header) bool {
				return a.Name == b.Name && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
			}) {
				t.Fatalf("record %d has headers %q, want %q", i, got.Headers, want.Headers)
			}
		}
		if r.Next() || r.Err() != nil {
			t.Fatal("it goes on", r.Err())
		}
	})
}

func TestAppendTimeIsEveryRecordsTimestamp(t *testing.T) {
	b := build(t, batch.Options{Codec: batch.Zstd}, orders(50)...)
	batch.SetAppendTime(b, 1800000000000)
	compare(t, b, 0)
	var r batch.Reader
	defer r.Close()
	for r.Reset(b, 0); r.Next(); {
		if r.Record().Timestamp != 1800000000000 {
			t.Fatalf("timestamp %d", r.Record().Timestamp)
		}
	}
	facts, err := batch.Validate(b, batch.Fresh, batch.Limits{})
	if err != nil || facts.MaxTimestamp != 1800000000000 {
		t.Fatal(facts.MaxTimestamp, err)
	}
}

func TestStampingKeepsTheChecksum(t *testing.T) {
	b := build(t, batch.Options{}, orders(2)...)
	batch.Stamp(b, math.MaxInt64-2, math.MaxInt32)
	h, err := batch.Check(b)
	if err != nil || h.LastOffset() != math.MaxInt64-1 || h.LeaderEpoch != math.MaxInt32 {
		t.Fatal(h, err)
	}
	batch.SetProducer(b, 9, 1, math.MaxInt32)
	h, err = batch.Check(b)
	if err != nil || !h.Idempotent() || h.LastSequence() != 0 {
		t.Fatal("sequence numbers go on at 0 after the largest:", h.LastSequence(), err)
	}
	// A careless client's header: what Validate found repairs it.
	batch.SetMaxTimestamp(b, 5)
	facts, err := batch.Validate(b, batch.Fresh, batch.Limits{})
	if err != nil || facts.MaxTimestamp != 1762077600007 || facts.Header.MaxTimestamp != 5 {
		t.Fatal(facts, err)
	}
}

// Every flipped bit behind the checksum is noticed; one before it is noticed, or is in a field that
// the log has its own checks for.
func TestFlippedBits(t *testing.T) {
	sound := build(t, batch.Options{Producer: &batch.Producer{ID: 1}}, orders(4)...)
	batch.Stamp(sound, 77, 3)
	for bit := range len(sound) * 8 {
		b := bytes.Clone(sound)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := batch.Check(b)
		switch at := bit / 8; {
		case at < 8 || at >= 12 && at < 16: // base offset, leader epoch
			if err != nil && !fault.Is(err, fault.Corrupt) {
				t.Errorf("bit %d: %v", bit, err)
			}
		case err == nil:
			t.Errorf("bit %d was not noticed", bit)
		case !fault.Is(err, fault.Corrupt):
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

// Bytes that end too early say so, at every length.
func TestCutBytes(t *testing.T) {
	two := append(build(t, batch.Options{}, orders(2)...), build(t, batch.Options{}, orders(1)...)...)
	first, err := batch.Size(two)
	if err != nil {
		t.Fatal(err)
	}
	for n := range two {
		if _, err := batch.Check(two[:n]); n < first && !errors.Is(err, batch.ErrShort) || n >= first && err != nil {
			t.Errorf("the first %d bytes: %v", n, err)
		}
		var last error
		count := 0
		for _, err := range batch.All(two[:n]) {
			if last = err; err == nil {
				count++
			}
		}
		wantCount, wantErr := 0, n > 0
		if n >= first {
			wantCount, wantErr = 1, n > first
		}
		if count != wantCount || errors.Is(last, batch.ErrShort) != wantErr {
			t.Errorf("the first %d bytes have %d batches, and then %v", n, count, last)
		}
		var r batch.Reader
		r.Reset(two[:n], 0)
		for r.Next() {
		}
		if wantErr != errors.Is(r.Err(), batch.ErrShort) {
			t.Errorf("reading the first %d bytes: %v", n, r.Err())
		}
		r.Close()
	}
}

func TestValidateRefuses(t *testing.T) {
	limits := batch.LimitsOf(topic.DefaultSettings())
	header := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return reseal(b) }
	}
	// record replaces the records by one with these bytes.
	record := func(body ...byte) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[23:], 0)
			binary.BigEndian.PutUint32(b[57:], 1)
			return reseal(append(b[:batch.HeaderBytes:batch.HeaderBytes], body...))
		}
	}
	cases := []struct {
		name   string
		change func([]byte) []byte
		kind   fault.Kind
		text   string
		stored bool // a log may have it
	}{
		{"another magic", func(b []byte) []byte { b[16] = 1; return b }, fault.Corrupt, "magic number 1", false},
		{"trailing bytes", func(b []byte) []byte { return append(b, 0) }, fault.Corrupt, "bytes follow the batch", false},
		{"a wrong checksum", func(b []byte) []byte { b[20]++; return b }, fault.Corrupt, "checksum", false},
		{"a negative length", func(b []byte) []byte { b[8] = 0xff; return b }, fault.Corrupt, "less than a header", false},
		{"a huge length", func(b []byte) []byte { b[8] = 0x7f; return b }, fault.Corrupt, "end inside", false},
		{"codec 5", header(22, 5), fault.Corrupt, "codec", false},
		{"an unknown attribute", header(21, 1), fault.Corrupt, "unknown attribute", false},
		{"control", header(22, 1<<5), fault.Validation, "may not set", true},
		{"transactional", header(22, 1<<4), fault.Validation, "transactions", true},
		{"a horizon", header(22, 1<<6), fault.Validation, "may not set", true},
		{"a negative base offset", header(0, 0x80), fault.Corrupt, "base offset", false},
		{"offsets beyond the last", header(0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), fault.Corrupt, "too large", false},
		{"a negative last offset", header(23, 0xff), fault.Corrupt, "last offset delta", false},
		{"holes", header(26, 9), fault.Corrupt, "does not fit the number", true},
		{"more records than offsets", header(57, 0x7f), fault.Corrupt, "more records than offsets", false},
		{"a negative number of records", header(57, 0xff), fault.Corrupt, "number of records is negative", false},
		{"a producer without a sequence", header(43, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xff), fault.Corrupt, "without an epoch and a sequence", false},
		{"fewer records than said", func(b []byte) []byte { b[26], b[60] = 3, 4; return reseal(b) }, fault.Corrupt, "length is unsound", false},
		{"more records than said", func(b []byte) []byte { b[26], b[60] = 1, 2; return reseal(b) }, fault.Corrupt, "bytes follow its last record", false},
		{"no records", func(b []byte) []byte {
			copy(b[23:27], make([]byte, 4))
			copy(b[57:61], make([]byte, 4))
			return reseal(b[:61])
		}, fault.Corrupt, "no records", true},
		{"noise as gzip", header(22, 1), fault.Corrupt, "as gzip", false},
		{"noise as snappy", header(22, 2), fault.Corrupt, "as snappy", false},
		{"noise as lz4", header(22, 3), fault.Corrupt, "as lz4", false},
		{"noise as zstd", header(22, 4), fault.Corrupt, "as zstd", false},
		{"an empty record", record(0), fault.Corrupt, "a record is empty", false},
		{"a record of negative length", record(1), fault.Corrupt, "length is unsound", false},
		{"a length of eleven bytes", record(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), fault.Corrupt, "length is unsound", false},
		{"no timestamp", record(2, 0), fault.Corrupt, "timestamp is unsound", false},
		{"no offset", record(4, 0, 0), fault.Corrupt, "offset is unsound", false},
		{"a negative offset", record(12, 0, 0, 1, 1, 1, 0), fault.Corrupt, "offset is unsound", false},
		{"an offset that is not the first", record(12, 0, 0, 2, 1, 1, 0), fault.Corrupt, "not 0, 1, 2", false},
		{"a key beyond the record", record(12, 0, 0, 0, 60, 1, 0), fault.Corrupt, "key is unsound", false},
		{"a key of length -2", record(12, 0, 0, 0, 3, 1, 0), fault.Corrupt, "key is unsound", false},
		{"a value beyond the record", record(12, 0, 0, 0, 1, 60, 0), fault.Corrupt, "value is unsound", false},
		{"no headers", record(10, 0, 0, 0, 1, 1), fault.Corrupt, "number of a record's headers", false},
		{"two billion headers", record(20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), fault.Corrupt, "number of a record's headers", false},
		{"half a header", record(18, 0, 0, 0, 1, 1, 2, 2, 'a', 8), fault.Corrupt, "header is unsound", false},
		{"a header without a name", record(16, 0, 0, 0, 1, 1, 2, 1, 0), fault.Corrupt, "header is unsound", false},
		{"a record with something behind it", record(14, 0, 0, 0, 1, 1, 0, 0), fault.Corrupt, "longer than its fields", false},
		{"a header name that is not UTF-8", record(18, 0, 0, 0, 1, 1, 2, 2, 0xff, 1), fault.Corrupt, "not UTF-8", true},
		{"a negative timestamp", func(b []byte) []byte { b[27] = 0xff; return reseal(b) }, fault.Corrupt, "negative", true},
		{"a timestamp beyond the last", func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[27:], math.MaxInt64)
			return reseal(b)
		}, fault.Corrupt, "timestamp is too large", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := c.change(build(t, batch.Options{}, orders(3)...))
			_, err := batch.Validate(b, batch.Fresh, limits)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("fresh: %v", err)
			}
			if _, err = batch.Validate(b, batch.Stored, limits); c.stored != (err == nil) {
				t.Errorf("stored: %v", err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	settings := topic.DefaultSettings()
	limits := batch.LimitsOf(settings)
	largest := topic.Record{Timestamp: 1, Key: []byte("key"), Headers: []topic.Header{{Name: "n", Value: []byte("v")}}}
	largest.Value = bytes.Repeat([]byte{'x'}, settings.MaxRecordBytes()-5)
	for _, codec := range allCodecs {
		b := build(t, batch.Options{Codec: codec}, largest)
		facts, err := batch.Validate(b, batch.Fresh, limits)
		if err != nil || facts.LargestRecord != 1<<20 {
			t.Errorf("%s: a record of exactly 1 MiB: %v", codec, err)
		}
		larger := largest
		larger.Value = append(bytes.Clone(largest.Value), 'x')
		if _, err = batch.Validate(build(t, batch.Options{Codec: codec}, larger), batch.Fresh, limits); !fault.Is(err, fault.RecordTooLarge) {
			t.Errorf("%s: a byte more: %v", codec, err)
		}
	}
	small := limits
	b := build(t, batch.Options{}, orders(9)...)
	small.BatchBytes = len(b)
	if _, err := batch.Validate(b, batch.Fresh, small); err != nil {
		t.Error(err)
	}
	small.BatchBytes--
	if _, err := batch.Validate(b, batch.Fresh, small); !fault.Is(err, fault.RequestTooLarge) {
		t.Error(err)
	}
}

// A batch that costs far more memory than it has bytes is refused, in every codec.
func TestBombs(t *testing.T) {
	zeros := func(codec batch.Codec, mebibytes int) []byte {
		var b batch.Builder
		b.Reset(nil, batch.Options{Codec: codec})
		record := topic.Record{Value: make([]byte, 1<<20)}
		for range mebibytes {
			b.Append(&record, 1)
		}
		return finish(t, &b)
	}
	limits := batch.LimitsOf(topic.DefaultSettings())
	for _, codec := range allCodecs[1:] {
		// Up to what a plain batch may have, how well it packs does not matter.
		if _, err := batch.Validate(zeros(codec, 1), batch.Fresh, limits); err != nil {
			t.Errorf("%s: 1 MiB: %v", codec, err)
		}
		four := zeros(codec, 4)
		if _, err := batch.Validate(four, batch.Fresh, batch.Limits{UnpackedBytes: 4 << 20}); !fault.Is(err, fault.RequestTooLarge) {
			t.Errorf("%s: 4 MiB and some bytes: %v", codec, err)
		}
		if _, err := batch.Validate(four, batch.Fresh, batch.Limits{UnpackedBytes: 5 << 20}); err != nil {
			t.Errorf("%s: less than 5 MiB: %v", codec, err)
		}
		// Snappy cannot pack anything 100 times.
		if _, err := batch.Validate(four, batch.Fresh, limits); fault.Is(err, fault.RequestTooLarge) != (codec != batch.Snappy) {
			t.Errorf("%s: 4 MiB of zeros: %v", codec, err)
		}
	}
	// The last limit holds where none was given.
	bomb := zeros(batch.Zstd, 129)
	if _, err := batch.Validate(bomb, batch.Fresh, batch.Limits{}); !fault.Is(err, fault.RequestTooLarge) {
		t.Errorf("129 MiB, without limits: %v", err)
	}
	var r batch.Reader
	defer r.Close()
	if r.Reset(bomb, 0); r.Next() || !fault.Is(r.Err(), fault.RequestTooLarge) {
		t.Errorf("129 MiB, when read: %v", r.Err())
	}
}

func finish(t testing.TB, b *batch.Builder) []byte {
	t.Helper()
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFinishWithoutRecords(t *testing.T) {
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	if _, err := b.Finish(); !fault.Is(err, fault.Internal) {
		t.Fatal(err)
	}
}

// Several batches in a row read as one, from an offset inside of one.
func TestReadSeveral(t *testing.T) {
	var all []byte
	next := topic.Offset(10)
	for _, codec := range allCodecs {
		b := build(t, batch.Options{Codec: codec}, orders(20)...)
		batch.Stamp(b, next, 1)
		all = append(all, b...)
		next += 20
	}
	for from := topic.Offset(0); from <= next; from++ {
		want := int(next - max(from, 10))
		if n := compare(t, all, from); n != want {
			t.Fatalf("from %d: %d records, want %d", from, n, want)
		}
	}
}

func TestCompaction(t *testing.T) {
	for _, codec := range allCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(t, batch.Options{Codec: codec, Producer: &batch.Producer{ID: 5, Epoch: 2, Sequence: 100}}, orders(100)...)
			batch.Stamp(b, 1000, 9)
			third := func(r *batch.Record) bool { return r.Offset%3 == 0 }
			out, kept, err := batch.Filter{Keep: third}.Append([]byte("x"), b)
			if err != nil || kept != 33 {
				t.Fatal(kept, err)
			}
			out = out[1:]
			facts, err := batch.Validate(out, batch.Stored, batch.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if facts.BaseOffset != 1000 || facts.LastOffset() != 1099 || facts.LeaderEpoch != 9 || facts.ProducerID != 5 ||
				facts.ProducerEpoch != 2 || facts.BaseSequence != 100 || facts.LastSequence() != 199 || facts.Count != 33 ||
				facts.MaxTimestamp != facts.Header.MaxTimestamp || facts.Codec() != codec {
				t.Fatalf("%+v", facts)
			}
			if _, err := batch.Validate(out, batch.Fresh, batch.Limits{}); err == nil {
				t.Error("a batch with holes passes as fresh")
			}
			want, err := readOracle(b, 0)
			if err != nil {
				t.Fatal(err)
			}
			var r batch.Reader
			defer r.Close()
			check := func(b []byte) {
				t.Helper()
				if n := compare(t, b, 0); n != 33 {
					t.Fatalf("%d records", n)
				}
				for r.Reset(b, 0); r.Next(); {
					if why := same(r.Record(), want[r.Record().Offset-1000]); why != "" {
						t.Fatalf("offset %d: %s", r.Record().Offset, why)
					}
				}
			}
			check(out)

			// With a horizon the records keep their timestamps.
			late, _, err := batch.Filter{Keep: third, Horizon: 1999999999999}.Append(nil, b)
			if err != nil {
				t.Fatal(err)
			}
			check(late)
			again, _, err := batch.Filter{Keep: third}.Append(nil, late)
			if err != nil {
				t.Fatal(err)
			}
			check(again)
			h, err := batch.Check(again)
			if at, set := h.Horizon(); err != nil || !set || at != 1999999999999 {
				t.Fatal("the horizon does not last:", at, set, err)
			}

			none, kept, err := batch.Filter{Keep: func(*batch.Record) bool { return false }}.Append(nil, b)
			if err != nil || kept != 0 || len(none) != batch.HeaderBytes {
				t.Fatal(kept, len(none), err)
			}
			if facts, err = batch.Validate(none, batch.Stored, batch.Limits{}); err != nil || facts.LastOffset() != 1099 || facts.LastSequence() != 199 {
				t.Fatal(facts, err)
			}
			batch.Stamp(out, 1100, 9)
			if n := compare(t, append(none, out...), 0); n != 33 {
				t.Fatal(n)
			}
		})
	}
}

// The oracle of the oracle: records as kmsg encodes them are the bytes that we write.
func TestSameBytesAsKmsg(t *testing.T) {
	records := append(orders(3), oddities()...)
	b := build(t, batch.Options{}, records...)
	var want []byte
	for i, r := range records {
		k := kmsg.NewRecord()
		k.TimestampDelta64 = int64(r.Timestamp - records[0].Timestamp)
		k.TimestampDelta = int32(k.TimestampDelta64)
		k.OffsetDelta = int32(i)
		k.Key, k.Value = r.Key, r.Value
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Name, Value: h.Value})
		}
		body := k.AppendTo(nil)[1:] // behind a length of 0, which takes one byte
		want = binary.AppendVarint(want, int64(len(body)))
		want = append(want, body...)
	}
	if !bytes.Equal(b[batch.HeaderBytes:], want) {
		t.Fatalf("built\n%x\nkmsg has\n%x", b[batch.HeaderBytes:], want)
	}
	var header kmsg.RecordBatch
	if err := header.ReadFrom(b); err != nil || header.NumRecords != int32(len(records)) || header.PartitionLeaderEpoch != -1 {
		t.Fatal(header, err)
	}
}
