package recordjson

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// show is a record as a line of a test's expectation.
func show(r topic.Record) string {
	text := func(b []byte) string {
		if b == nil {
			return "-"
		}
		return fmt.Sprintf("%q", b)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%s", text(r.Key), text(r.Value))
	if r.Partition != topic.AnyPartition {
		fmt.Fprintf(&b, " partition %d", r.Partition)
	}
	if r.Timestamp != topic.NoTimestamp {
		fmt.Fprintf(&b, " at %d", r.Timestamp)
	}
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s:%s", h.Name, text(h.Value))
	}
	return b.String()
}

func TestRecord(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"value":1}`, `-="1"`},
		{" \t{ \"value\" : {\"total\" : 12.50} }\r\n", `-="{\"total\" : 12.50}"`},
		{`{"key":"user-42","value":9223372036854775808}`, `"user-42"="9223372036854775808"`},
		{`{"key":"","value":""}`, `""="\"\""`},
		{`{"key":null,"value":null}`, `-=-`},
		{`{"value":null,"value_encoding":"base64"}`, `-=-`},
		{`{"value":"","value_encoding":"string"}`, `-=""`},
		{`{"value":"","value_encoding":"base64","key":"","key_encoding":"base64"}`, `""=""`},
		{`{"value":"🎈"}`, `-="\"🎈\""`},
		{`{"value":"🎈\ud83c\udf88\u0000","value_encoding":"string"}`, `-="🎈🎈\x00"`},
		{`{"value_encoding":"string","value":"\"\\\/\b\f\n\r\t\u00e9"}`, `-="\"\\/\b\f\n\r\té"`},
		{`{"value":"\u0000"}`, `-="\"\\u0000\""`},
		{`{"key":"a\u0000b","value":0}`, `"a\x00b"="0"`},
		{`{"value":"AAEC/+8=","value_encoding":"base64"}`, `-="\x00\x01\x02\xff\xef"`},
		{`{"value":"AAEC\/+8=","value_encoding":"base64"}`, `-="\x00\x01\x02\xff\xef"`},
		{`{"key":{"a":[1]},"key_encoding":"json","value":true}`, `"{\"a\":[1]}"="true"`},
		{`{"key":"a","key_encoding":"json","value":true}`, `"\"a\""="true"`},
		{`{"key":"/w==","key_encoding":"base64","value":false}`, `"\xff"="false"`},
		{`{"k\u0065y":"k","value":1}`, `"k"="1"`},
		{`{"value":1,"timestamp":1762077600000}`, `-="1" at 1762077600000`},
		{`{"value":1,"timestamp":0}`, `-="1" at 0`},
		{`{"value":1,"timestamp":"2025-11-02T10:00:00.123Z"}`, `-="1" at 1762077600123`},
		{`{"value":1,"timestamp":"2025-11-02T11:00:00+01:00"}`, `-="1" at 1762077600000`},
		{`{"value":1,"partition":3}`, `-="1" partition 3`},
		{`{"value":1,"partition":2147483647}`, `-="1" partition 2147483647`},
		{`{"value":1,"partition":null,"timestamp":null,"headers":null,"key_encoding":null,"value_encoding":null}`, `-="1"`},
		{`{"value":1,"headers":[]}`, `-="1"`},
		{`{"value":1,"headers":{}}`, `-="1"`},
		{
			`{"value":1,"headers":[{"name":"trace","value":"abc"},{"value_base64":"AAE=","name":"sig"},{"name":"trace","value":null},{"name":"","value":""}]}`,
			`-="1" trace:"abc" sig:"\x00\x01" trace:- :""`,
		},
		{`{"value":1,"headers":[{"name":"a","value":"b","more":{"x":[1,2]}}]}`, `-="1" a:"b"`},
		{
			`{"value":1,"headers":{"trace":"abc","s\u0069g":{"value_base64":"AAE="},"n":null,"v":{"value":"x"}}}`,
			`-="1" trace:"abc" sig:"\x00\x01" n:- v:"x"`,
		},
		{`{"offset":7,"topic":"orders","value":1,"extra":{"value":2,"a":1,"a":2},"more":[[[]]]}`, `-="1"`},
		{`{"value":{"a":1,"a":2}}`, `-="{\"a\":1,\"a\":2}"`}, // a value is opaque
		{`{"value":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, fmt.Sprintf("-=%q", strings.Repeat("[", 128)+strings.Repeat("]", 128))},
	} {
		var d Decoder
		r, err := d.Record([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if got := show(r); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.in, got, c.want)
		}
	}
}

func TestRecordRefused(t *testing.T) {
	deep := strings.Repeat("[", 129) + strings.Repeat("]", 129)
	var manyNames strings.Builder
	for i := range 50 {
		fmt.Fprintf(&manyNames, `"n%d":1,`, i)
	}
	for _, c := range []struct {
		in, want string // want: a "!" for invalid JSON, then the fields and messages
	}{
		{``, `!it ends too early (at byte 0)`},
		{`  `, `!it ends too early (at byte 2)`},
		{`{`, `!it ends too early (at byte 1)`},
		{`{"value":1`, `!it ends too early (at byte 10)`},
		{`{"value":`, `!value: it ends too early (at byte 9)`},
		{`{"value"`, `!it ends too early (at byte 8)`},
		{`{"value":tru`, `!value: it ends too early (at byte 12)`},
		{`{"value":trux}`, `!value: true, false or null was expected (at byte 9)`},
		{`{"value":"abc`, `!value: it ends too early (at byte 13)`},
		{`{"value":1}x`, `!something follows its end (at byte 11)`},
		{`{"value":1}{"value":2}`, `!something follows its end (at byte 11)`},
		{`{"value":1,}`, `!a name in double quotes was expected (at byte 11)`},
		{`{value:1}`, `!a name in double quotes was expected (at byte 1)`},
		{`{"value" 1}`, `!':' was expected (at byte 9)`},
		{`{"value":1 "key":2}`, `!',' or the end of the array or object was expected (at byte 11)`},
		{`{"value":[1,]}`, `!value: a value was expected (at byte 12)`},
		{`{"value":{"a":1,}}`, `!value: a name in double quotes was expected (at byte 16)`},
		{`{"value":[1}}`, `!value: ',' or the end of the array or object was expected (at byte 11)`},
		{`{"value":01}`, `!value: a malformed number (at byte 10)`},
		{`{"value":1.}`, `!value: a malformed number (at byte 11)`},
		{`{"value":-}`, `!value: a malformed number (at byte 10)`},
		{`{"value":+1}`, `!value: a value was expected (at byte 9)`},
		{`{"value":.5}`, `!value: a value was expected (at byte 9)`},
		{`{"value":1e}`, `!value: a malformed number (at byte 11)`},
		{`{"value":NaN}`, `!value: a value was expected (at byte 9)`},
		{`{"value":"a` + "\n" + `b"}`, `!value: a control character in a string must be escaped (at byte 11)`},
		{`{"value":"` + "\xff" + `"}`, `!value: it is not UTF-8 (at byte 10)`},
		{`{"value":"` + "\xed\xa0\x80" + `"}`, `!value: it is not UTF-8 (at byte 10)`},
		{`{"value":"` + "\xc0\x80" + `"}`, `!value: it is not UTF-8 (at byte 10)`},
		{`{"value":"\x"}`, `!value: an unknown escape (at byte 10)`},
		{`{"value":"\u12g4"}`, `!value: an unknown escape (at byte 10)`},
		{`{"value":"\ud800"}`, `!value: half of a surrogate pair in a \u escape (at byte 10)`},
		{`{"value":"\ud800\u0041"}`, `!value: half of a surrogate pair in a \u escape (at byte 10)`},
		{`{"value":"\udc00"}`, `!value: half of a surrogate pair in a \u escape (at byte 10)`},
		{"\ufeff" + `{"value":1}`, `!a value was expected (at byte 0)`},
		{"{\"value\":\v1}", `!value: a value was expected (at byte 9)`},
		{`{"value":` + deep + `}`, `!value: it is nested deeper than 128 levels (at byte 137)`},
		{`{"x":` + deep + `,"value":1}`, `!it is nested deeper than 128 levels (at byte 133)`},
		{`{"value":1,"value":1}`, `!the member "value" is there twice`},
		{`{"value":1,"v\u0061lue":1}`, `!the member "value" is there twice`},
		{`{"key":"a","value":1,"key":"b"}`, `!the member "key" is there twice`},
		{`{"x":1,"value":1,"x":1}`, `!the member "x" is there twice`},
		{`{"n7":1,` + manyNames.String() + `"value":1}`, `!the member "n7" is there twice`},
		{`{"value":1,"headers":{"a":"1","a":"2"}}`, `!headers: the member "a" is there twice`},
		{`{"value":1,"headers":{"a":{"value":"1","value":"2"}}}`, `!headers: the member "value" is there twice`},
		{`{"value":1,"headers":[{"name":"a","name":"b","value":"2"}]}`, `!headers: the member "name" is there twice`},
		{`{"value":1,"headers":[{"name":"a","value":"2"}`, `!headers: it ends too early (at byte 46)`},
		{`{"value":1,"headers":[`, `!headers: it ends too early (at byte 22)`},

		{`7`, `must be an object`},
		{`[]`, `must be an object`},
		{`{}`, `value: is required`},
		{`{"key":"k"}`, `value: is required`},
		{`{"key":7,"value":1}`, `key: must be a string; with key_encoding json it can be any value`},
		{`{"key":7,"value":1,"key_encoding":"base64"}`, `key: must be a string, because its encoding is base64`},
		{`{"value":1,"value_encoding":"string"}`, `value: must be a string, because its encoding is string`},
		{`{"value":1,"value_encoding":"hex"}`, `value_encoding: must be string, json or base64`},
		{`{"value":1,"value_encoding":5}`, `value_encoding: must be string, json or base64`},
		{`{"value":"AAE","value_encoding":"base64"}`, `value: is not base64 (the standard alphabet, with padding)`},
		{`{"value":"AA\nE=","value_encoding":"base64"}`, `value: is not base64 (the standard alphabet, with padding)`},
		{`{"value":"AAF=","value_encoding":"base64"}`, `value: is not base64 (the standard alphabet, with padding)`},
		{`{"value":"_w==","value_encoding":"base64"}`, `value: is not base64 (the standard alphabet, with padding)`},
		{`{"value":1,"partition":-1}`, `partition: must be a whole number from 0 on`},
		{`{"value":1,"partition":2147483648}`, `partition: must be a whole number from 0 on`},
		{`{"value":1,"partition":1.0}`, `partition: must be a whole number from 0 on`},
		{`{"value":1,"partition":"1"}`, `partition: must be a whole number from 0 on`},
		{`{"value":1,"timestamp":-1}`, `timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999`},
		{`{"value":1,"timestamp":1e3}`, `timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999`},
		{`{"value":1,"timestamp":253402300800000}`, `timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999`},
		{`{"value":1,"timestamp":"2025-11-02"}`, `timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999`},
		{`{"value":1,"timestamp":"1969-11-02T10:00:00Z"}`, `timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999`},
		{`{"value":1,"headers":7}`, `headers: must be an array of headers, or an object with a member for each`},
		{`{"value":1,"headers":["a"]}`, `headers[0]: must be an object with name and value`},
		{`{"value":1,"headers":[{"name":"a","value":"b"},{"value":"b"}]}`, `headers[1].name: is required`},
		{`{"value":1,"headers":[{"name":null,"value":"b"}]}`, `headers[0].name: must be a string`},
		{`{"value":1,"headers":[{"name":7,"value":"b"}]}`, `headers[0].name: must be a string`},
		{`{"value":1,"headers":[{"name":"a"}]}`, `headers[0].value: is required`},
		{`{"value":1,"headers":[{"name":"a","value":1}]}`, `headers[0].value: must be a string or null`},
		{`{"value":1,"headers":[{"name":"a","value":"1","value_base64":"AAE="}]}`, `headers[0].value: is given twice, as it is and in base64`},
		{`{"value":1,"headers":[{"name":"a","value_base64":1}]}`, `headers[0].value: must be a string in base64`},
		{`{"value":1,"headers":{"a":1}}`, `headers."a": must be a string or null`},
		{`{"value":1,"headers":{"a":{}}}`, `headers."a": is required`},
		{`{"key":1,"timestamp":true,"partition":"x"}`, `key: must be a string; with key_encoding json it can be any value; value: is required; ` +
			`timestamp: must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999; partition: must be a whole number from 0 on`},
	} {
		var d Decoder
		r, err := d.Record([]byte(c.in))
		kind, want := fault.Validation, c.want
		if strings.HasPrefix(c.want, "!") {
			kind, want = fault.InvalidJSON, c.want[1:]
		}
		var fields *Errors
		if !errors.As(err, &fields) || !fault.Is(err, kind) {
			t.Errorf("%s: %v (%s)", c.in, err, show(r))
			continue
		}
		var got []string
		for _, field := range fields.Fields {
			got = append(got, field.Error())
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.in, got, want)
		}
	}
}

func TestBody(t *testing.T) {
	var d Decoder
	records, err := d.Body([]byte(` {"before":[{}], "records" : [ {"value":1} ,{"key":"k","value":{"a" :2}}, {"value":null}] ,"after":1} `), 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, show(r))
	}
	if got := strings.Join(got, "\n"); got != "-=\"1\"\n\"k\"=\"{\\\"a\\\" :2}\"\n-=-" {
		t.Error(got)
	}
	records, err = d.Array([]byte("\n[{\"value\":7}]"), 1)
	if err != nil || len(records) != 1 || show(records[0]) != `-="7"` {
		t.Error(records, err)
	}
}

func TestBodyRefused(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind fault.Kind
		want string
	}{
		{``, fault.InvalidJSON, `it ends too early (at byte 0)`},
		{`{`, fault.InvalidJSON, `it ends too early (at byte 1)`},
		{`[]`, fault.Validation, `the body must be an object with "records"`},
		{`[`, fault.InvalidJSON, `it ends too early (at byte 1)`},
		{`{}`, fault.Validation, `records: is required`},
		{`{"records":null}`, fault.Validation, `records: must be an array`},
		{`{"records":[]}`, fault.Validation, `records: must have at least one record`},
		{`{"records":[{"value":1},{"value":1},{"value":1},{"value":1}]}`, fault.RequestTooLarge, `records: has more than 3 records`},
		{`{"records":[1]}`, fault.Validation, `records[0]: must be an object`},
		{
			`{"records":[{"value":1},{"value":"x","value_encoding":"base64"},{}]}`, fault.Validation,
			`records[1].value: is not base64 (the standard alphabet, with padding); records[2].value: is required`,
		},
		{
			`{"records":[{"value":1},{"value":1},{"headers":[{"name":"n","value":7}]}]}`, fault.Validation,
			`records[2].headers[0].value: must be a string or null; records[2].value: is required`,
		},
		{`{"records":[{"value":1},{"value":x}]}`, fault.InvalidJSON, `records[1].value: a value was expected (at byte 33)`},
		{`{"records":[{"value":1},{"value":1]}`, fault.InvalidJSON, `records[1]: ',' or the end of the array or object was expected (at byte 34)`},
		{`{"records":[{"value":1},{"value":1}`, fault.InvalidJSON, `records[2]: it ends too early (at byte 35)`},
		{`{"records":[{"value":1}],}`, fault.InvalidJSON, `a name in double quotes was expected (at byte 25)`},
		{`{"records":[{"value":1}]}]`, fault.InvalidJSON, `something follows its end (at byte 25)`},
		{`{"records":[{"value":1}],"records":[]}`, fault.InvalidJSON, `the member "records" is there twice`},
		{`{"a":1,"records":[{"value":1}],"a":2}`, fault.InvalidJSON, `the member "a" is there twice`},
		{`{"records":[{}],"a":}`, fault.InvalidJSON, `a value was expected (at byte 20)`},
	} {
		var d Decoder
		records, err := d.Body([]byte(c.in), 3)
		var fields *Errors
		if !errors.As(err, &fields) || !fault.Is(err, c.kind) || records != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if fields.Error() != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.in, fields, c.want)
		}
	}
}

// A body with many mistakes names a hundred of them, and says how many more there are.
func TestManyMistakes(t *testing.T) {
	var d Decoder
	_, err := d.Body([]byte(`{"records":[`+strings.Repeat(`{},`, 149)+`{}]}`), 1000)
	var fields *Errors
	if !errors.As(err, &fields) || len(fields.Fields) != MostErrors || fields.More != 50 {
		t.Fatal(err)
	}
	if last := fields.Fields[99]; last.Field != "records[99].value" || last.Message != "is required" {
		t.Error(last)
	}
	if got := fields.Error(); got != "records[0].value: is required; records[1].value: is required; records[2].value: is required; and 147 more" {
		t.Error(got)
	}
}

// A decoder that was used before remembers nothing, and its records last until its next call.
func TestReuse(t *testing.T) {
	d := TakeDecoder()
	defer d.Release()
	body := []byte(`{"records":[{"key":"\u0041","value":"QQ==","value_encoding":"base64","headers":{"\u0042":"\u0043"}},{"key":"k","value":1,"headers":[{"name":"n","value":"v"}]}]}`)
	for range 3 {
		if _, err := d.Body([]byte(`{"records":[{},{"x":1,"headers":{"a":"\u0041"},"x":`), 9); err == nil {
			t.Fatal("it passed")
		}
		records, err := d.Body(body, 9)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(records[0]) + " " + show(records[1]); got != `"A"="A" B:"C" "k"="1" n:"v"` {
			t.Fatal(got)
		}
	}
}

// Growing a buffer does not move what was decoded before.
func TestViewsOutliveGrowth(t *testing.T) {
	var body bytes.Buffer
	body.WriteString(`{"records":[`)
	for i := range 2000 {
		fmt.Fprintf(&body, `{"key":"\u006b%d","value":"\u0076%d","value_encoding":"string","headers":{"\u0068%d":"\u0078%d"}},`, i, i, i, i)
	}
	body.WriteString(`{"value":1}]}`)
	var d Decoder
	records, err := d.Body(body.Bytes(), 2001)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records[:2000] {
		if got, want := show(r), fmt.Sprintf(`"k%d"="v%d" h%d:"x%d"`, i, i, i, i); got != want {
			t.Fatalf("record %d is %s", i, got)
		}
	}
}

// One decoder reads many lines whose records are in use together; refused ones leave no trace.
func TestMore(t *testing.T) {
	d := TakeDecoder()
	defer d.Release()
	for range 2 {
		d.Reset()
		var records []topic.Record
		for i := range 500 {
			r, err := d.More(fmt.Appendf(nil, `{"key":"\u006b%d","value":%d,"headers":{"\u0068%d":"\u0078%d"}}`, i, i, i, i))
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
			headers, arena := len(d.headers), len(d.arena)
			if _, err := d.More([]byte(`{"key":"\u006b","headers":[{"name":"a","value":"b"}]}`)); !fault.Is(err, fault.Validation) {
				t.Fatal(err)
			}
			if len(d.headers) != headers || len(d.arena) != arena {
				t.Fatal("a refused line was kept")
			}
		}
		for i, r := range records {
			if got, want := show(r), fmt.Sprintf(`"k%d"="%d" h%d:"x%d"`, i, i, i, i); got != want {
				t.Fatalf("record %d is %s", i, got)
			}
		}
	}
}
