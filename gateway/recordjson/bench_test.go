package recordjson

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

const benchRecords = 100

// benchBody has a hundred records of some 250 bytes.
func benchBody() []byte {
	var b bytes.Buffer
	b.WriteString(`{"records":[`)
	for i := range benchRecords {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"key":"user-%d","value":{"order":%d,"total":12.50,"currency":"EUR","lines":[{"sku":"A-%d","quantity":2,"price":6.25}],"address":{"street":"Uferweg 12","city":"Z\u00fcrich","note":null},"paid":true},"headers":[{"name":"trace","value":"00-4bf92f3577b34da6-01"}]}`, i, i, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func perRecord(b *testing.B, bytes int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRecords, "ns/record")
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
}

func BenchmarkBody(b *testing.B) {
	body := benchBody()
	var d Decoder
	for b.Loop() {
		if records, err := d.Body(body, benchRecords); err != nil || len(records) != benchRecords {
			b.Fatal(err)
		}
	}
	perRecord(b, len(body))
}

// BenchmarkValid is what scanning alone costs; BenchmarkJSONText the same with the library.
func BenchmarkValid(b *testing.B) {
	body := benchBody()
	for b.Loop() {
		if !Valid(body) {
			b.Fatal("it is not valid")
		}
	}
	perRecord(b, len(body))
}

func BenchmarkJSONText(b *testing.B) {
	body := benchBody()
	for b.Loop() {
		if !jsontext.Value(body).IsValid() {
			b.Fatal("it is not valid")
		}
	}
	perRecord(b, len(body))
}

func benchBatch(tb testing.TB) []byte {
	var d Decoder
	records, err := d.Body(benchBody(), benchRecords)
	if err != nil {
		tb.Fatal(err)
	}
	var builder batch.Builder
	builder.Reset(nil, batch.Options{})
	for i := range records {
		builder.Append(&records[i], topic.Millis(1762077600000+i))
	}
	out, err := builder.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func BenchmarkAppend(b *testing.B) {
	in := benchBatch(b)
	for _, o := range []Options{{}, {Topic: "orders", OneLine: true}, {Format: String}, {Format: Base64}} {
		b.Run(fmt.Sprintf("%s,line=%t", o.Format, o.OneLine), func(b *testing.B) {
			var out []byte
			var r batch.Reader
			defer r.Close()
			for b.Loop() {
				out = out[:0]
				for r.Reset(in, 0); r.Next(); {
					out = Append(out, r.Record(), o)
				}
			}
			perRecord(b, len(out))
		})
	}
}

// Neither way allocates once its buffers have grown, whatever is escaped or encoded.
func TestAllocations(t *testing.T) {
	bodies := [][]byte{benchBody(), []byte(`{"records":[{"key":"\u0041","value":"AAEC","value_encoding":"base64","timestamp":1762077600000,"partition":3,"headers":{"a\u0020":"b\"","c":{"value_base64":"AA=="}},"x":1,"y":2},{"value":1,"timestamp":"2025-11-02T10:00:00Z"}]}`)}
	var d Decoder
	for i, body := range bodies {
		if n := testing.AllocsPerRun(20, func() {
			if _, err := d.Body(body, benchRecords); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("body %d: %v allocations", i, n)
		}
	}
	line := []byte(`{"key":"a","value":{"a":1}}`)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := d.Record(line); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a line: %v allocations", n)
	}
	in := benchBatch(t)
	var out []byte
	var r batch.Reader
	defer r.Close()
	for _, f := range []Format{Auto, String, Base64} {
		if n := testing.AllocsPerRun(20, func() {
			out = out[:0]
			for r.Reset(in, 0); r.Next(); {
				out = Append(out, r.Record(), Options{Format: f, OneLine: true, Topic: "orders"})
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", f, n)
		}
	}
}
