package recordjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// stored puts a record through a batch, and hands it to use as a reader would have it.
func stored(t testing.TB, r topic.Record, use func(*batch.Record)) {
	t.Helper()
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	b.Append(&r, r.Timestamp)
	bytes, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	var reader batch.Reader
	defer reader.Close()
	reader.Reset(bytes, 0)
	if !reader.Next() {
		t.Fatal(reader.Err())
	}
	use(reader.Record())
}

func encoded(t testing.TB, r topic.Record, o Options) (out string) {
	t.Helper()
	stored(t, r, func(r *batch.Record) { out = string(Append([]byte("x"), r, o)[1:]) })
	return out
}

func TestAppend(t *testing.T) {
	value := func(s string) topic.Record { return topic.Record{Timestamp: 1, Value: []byte(s)} }
	const start = `{"offset":0,"timestamp":1,`
	for _, c := range []struct {
		record  topic.Record
		options Options
		want    string
	}{
		{
			topic.Record{Timestamp: 1762077600123, Key: []byte("user-42"), Value: []byte(`{"total":12.50}`), Headers: []topic.Header{{Name: "trace", Value: []byte("abc")}}},
			Options{},
			`{"offset":0,"timestamp":1762077600123,"key":"user-42","value":{"total":12.50},"headers":[{"name":"trace","value":"abc"}]}`,
		},
		{value("1"), Options{Topic: "orders", Partition: 3}, `{"topic":"orders","partition":3,"offset":0,"timestamp":1,"value":1}`},
		{topic.Record{Timestamp: 1}, Options{}, start + `"value":null}`},
		{topic.Record{Timestamp: 1}, Options{Format: Base64}, start + `"value":null}`},
		{topic.Record{Timestamp: 1, Key: []byte{}, Value: []byte{}}, Options{}, start + `"key":"","value":"","value_encoding":"string"}`},
		{value(""), Options{Format: Base64}, start + `"value":"","value_encoding":"base64"}`},
		{topic.Record{Timestamp: 1, Key: []byte("\xff"), Value: []byte("1")}, Options{}, start + `"key":"/w==","key_encoding":"base64","value":1}`},
		{topic.Record{Timestamp: 1, Key: []byte("a\x00\"\\\n\r\t\x1f\x7fé🎈\u2028"), Value: []byte("1")}, Options{}, start + `"key":"a\u0000\"\\\n\r\t\u001f` + "\x7fé🎈\u2028" + `","value":1}`},
		{value("12.50"), Options{}, start + `"value":12.50}`},
		{value("9223372036854775808"), Options{Format: JSON}, start + `"value":9223372036854775808}`},
		{value("null"), Options{}, start + `"value":"null","value_encoding":"string"}`},
		{value(" null\n"), Options{}, start + `"value":" null\n","value_encoding":"string"}`},
		{value("null"), Options{Format: JSON}, start + `"value":"null","value_encoding":"string"}`},
		{value("hello"), Options{}, start + `"value":"hello","value_encoding":"string"}`},
		{value("\xff\xfe"), Options{}, start + `"value":"//4=","value_encoding":"base64"}`},
		{value("\xff\xfe"), Options{Format: String}, start + `"value":"//4=","value_encoding":"base64"}`},
		{value("\"\xff\""), Options{}, start + `"value":"Iv8i","value_encoding":"base64"}`},
		{value(`"\ud800"`), Options{}, start + `"value":"\"\\ud800\"","value_encoding":"string"}`},
		{value(`{"a":1}`), Options{Format: String}, start + `"value":"{\"a\":1}","value_encoding":"string"}`},
		{value(`{"a":1}`), Options{Format: Base64}, start + `"value":"eyJhIjoxfQ==","value_encoding":"base64"}`},
		{value("{\r\n\t\"a\": [\n 1]\n}"), Options{}, start + "\"value\":{\r\n\t\"a\": [\n 1]\n}}"},
		{value("{\r\n\t\"a\": [\n 1]\n}"), Options{OneLine: true}, start + "\"value\":{  \t\"a\": [  1] }}"},
		{value(strings.Repeat("[", 129) + strings.Repeat("]", 129)), Options{}, start + `"value":"` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `","value_encoding":"string"}`},
		{
			topic.Record{Timestamp: 1, Headers: []topic.Header{{Name: "a", Value: []byte("\xff")}, {Name: "", Value: nil}, {Name: "\xff", Value: []byte{}}, {Name: "a", Value: []byte("\"")}}},
			Options{},
			start + `"value":null,"headers":[{"name":"a","value_base64":"/w=="},{"name":"","value":null},{"name":"` + "\uFFFD" + `","value":""},{"name":"a","value":"\""}]}`,
		},
	} {
		got := encoded(t, c.record, c.options)
		if got != c.want {
			t.Errorf("\ngot  %s\nwant %s", got, c.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s: it is not JSON", got)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, f := range []Format{Auto, JSON, String, Base64} {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Error(f, got, err)
		}
	}
	if f, err := ParseFormat(""); f != Auto || err != nil {
		t.Error(f, err)
	}
	for _, s := range []string{"JSON", "raw", "auto "} {
		if _, err := ParseFormat(s); !fault.Is(err, fault.Validation) {
			t.Error(s, err)
		}
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{"": `""`, "orders": `"orders"`, "a\"b": `"a\"b"`, "a\xffb": "\"a\uFFFDb\""} {
		if got := string(AppendString([]byte("x"), in)); got != "x"+want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// What a reader gets, sent again, stores the same bytes: in every format, with and without line ends.
func TestExactBytesComeBack(t *testing.T) {
	many := make([]topic.Header, 200)
	for i := range many {
		many[i] = topic.Header{Name: fmt.Sprint("h", i%7), Value: []byte{byte(i)}}
	}
	mebibyte := make([]byte, 1<<20)
	chance := rand.New(rand.NewPCG(3, 4))
	for i := range mebibyte {
		mebibyte[i] = byte(chance.Uint32())
	}
	text := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	object := append(append([]byte(`{"a":"`), bytes.Repeat([]byte("x"), 1<<20-8)...), `"}`...)
	var records []topic.Record
	for _, v := range [][]byte{
		nil,
		{},
		[]byte("12.50"), []byte("9223372036854775808"), []byte(`"🎈"`), []byte("🎈"), []byte("a\x00b"), []byte(`"a\u0000b"`),
		[]byte("null"), []byte(" null "), []byte("true"), []byte("\xff"), []byte("hello\n"), []byte("{\n \"a\": 1\r\n}"), []byte("1 "), []byte("  [1]"), mebibyte, text, object,
		[]byte(strings.Repeat("[", 128) + strings.Repeat("]", 128)), []byte(strings.Repeat("[", 200) + strings.Repeat("]", 200)),
	} {
		records = append(records, topic.Record{Timestamp: 5, Value: v})
	}
	for _, k := range [][]byte{nil, {}, []byte("k"), []byte("a\x00b"), []byte("\xff\x00"), []byte("🎈"), []byte(`{"a":1}`)} {
		records = append(records, topic.Record{Timestamp: 0, Key: k, Value: []byte("1")})
	}
	records = append(records, topic.Record{Timestamp: 1, Value: []byte("1"), Headers: many})
	for _, o := range []Options{{}, {Format: JSON}, {Format: String}, {Format: Base64}, {OneLine: true}, {Topic: "t", Partition: 4}} {
		for i, r := range records {
			out := encoded(t, r, o)
			var d Decoder
			got, err := d.Record([]byte(out))
			if err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			want := r
			if o.Topic != "" {
				want.Partition = o.Partition
			} else {
				want.Partition = topic.AnyPartition
			}
			if o.OneLine {
				if strings.ContainsAny(out, "\r\n") {
					t.Errorf("record %d has a line end", i)
				}
				want.Value = bytes.Clone(r.Value)
				if got.Value != nil && isJSON(r.Value) {
					joinLines(want.Value)
				}
			}
			if isJSON(want.Value) && o.Format <= JSON {
				// White space around a value is not part of it in JSON.
				want.Value = bytes.TrimSpace(want.Value)
			}
			if show(got) != show(want) {
				t.Errorf("record %d in %+v came back as %.200s", i, o, show(got))
			}
		}
	}
}
