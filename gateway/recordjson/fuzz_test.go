package recordjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// deepest is how deep valid JSON nests.
func deepest(b []byte) int {
	most := 0
	for d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true)); ; most = max(most, d.StackDepth()) {
		if _, err := d.ReadToken(); err != nil {
			return most
		}
	}
}

// strict says what jsontext thinks of b, which knows no limit of depth that matters here.
func strict(b []byte) bool {
	return jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true))
}

var oddJSON = []string{
	`{"a":[1,-0.5e+10,true,false,null,"x\u00e9\ud83d\ude00\\"],"b":{}}`, ` [ ] `, `""`, `"` + strings.Repeat("0123456é", 9) + `"`, `01`, `-`, `1.`, `1e`, `nul`, `"\u12"`,
	`"\ud800"`, `"\ud800\ud800"`, `[1,]`, `{"a":1,}`, `{"a"}`, `[1}`, "\"\x1f\"", "\"\xff\"", "\"\xf0\x9f\"", "\xef\xbb\xbf1", "1 2", `{"a":1 "b"}`, `{,}`, `[,]`, `"0123456\"`,
	strings.Repeat("[", 128) + strings.Repeat("]", 128), strings.Repeat(`{"a":`, 129) + "1" + strings.Repeat("}", 129), `{"a":1,"a":2}`, `tru`, `truex`, "\v1", `"` + "0123456\x00" + `"`,
}

// FuzzValid compares the scanner with jsontext, which is as strict, and with encoding/json, which is not.
func FuzzValid(f *testing.F) {
	for _, s := range oddJSON {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := Valid(b), strict(b)
		if theirs && deepest(b) > MaxDepth {
			theirs = false
		}
		if ours != theirs {
			t.Fatalf("valid: %v, jsontext says %v", ours, theirs)
		}
		if ours && !stdjson.Valid(b) {
			t.Fatal("encoding/json does not take it")
		}
		// Whatever a value is, what is made of it is a line of JSON that means it.
		out, encoding := AppendValue(nil, b, Auto, true)
		if !strict(out) || bytes.ContainsAny(out, "\r\n") {
			t.Fatalf("%q is not a line of JSON", out)
		}
		if encoding == "string" {
			var s string
			if err := json.Unmarshal(out, &s); err != nil || s != string(b) {
				t.Fatalf("%q: %q %v", out, s, err)
			}
		}
	})
}

// fuzzSeeds are bodies with the odd JSON in every place.
func fuzzSeeds() []string {
	var seeds []string
	for _, s := range oddJSON {
		seeds = append(seeds, `{"records":[{"value":`+s+`}]}`, `{"x":`+s+`,"records":[{"value":1,"headers":`+s+`}]}`, `{"records":[{"key":`+s+`,"value":1}]}`)
	}
	return append(seeds,
		`{"records":[{"key":"user-42","value":{"total":12.50},"headers":[{"name":"trace","value":"abc"}]},{"key":"user-7","value":null},{"partition":3,"value":"AAEC","value_encoding":"base64","timestamp":1762077600000}]}`,
		`{"records":[{"headers":{"a":"b","c":{"value_base64":"AAE="}},"value":"\u0041","value_encoding":"string","timestamp":"2025-11-02T10:00:00Z"}]}`,
		`{"records":[{"value":1,"value":2}]}`, `{"records":[],"records":[]}`, `[]`, `{}`)
}

// FuzzBody compares what the decoder takes and finds with jsontext and json/v2.
func FuzzBody(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		input := bytes.Clone(b)
		var d Decoder
		records, err := d.Body(b, 100)
		if !bytes.Equal(b, input) {
			t.Fatal("the input was changed")
		}
		var fields *Errors
		if err != nil && !errors.As(err, &fields) {
			t.Fatal(err)
		}
		switch kind := fault.KindOf(err); {
		case err == nil || kind == fault.Validation:
			if !strict(b) {
				t.Fatalf("jsontext does not take it: %v", err)
			}
		case kind == fault.RequestTooLarge:
		case kind == fault.InvalidJSON:
			message := fields.Fields[0].Message
			if strict(b) && !strings.HasSuffix(message, "is there twice") && !strings.Contains(message, "deeper than") {
				t.Fatalf("jsontext takes it: %v", err)
			}
		default:
			t.Fatal(err)
		}
		if err != nil {
			if records != nil {
				t.Fatal("records with an error")
			}
			return
		}
		var reference struct {
			Records []struct {
				Value     jsontext.Value `json:"value"`
				Encoding  *string        `json:"value_encoding"`
				Partition *int32         `json:"partition"`
			} `json:"records"`
		}
		if err := json.Unmarshal(b, &reference, jsontext.AllowDuplicateNames(true)); err != nil {
			t.Fatal(err)
		}
		if len(reference.Records) != len(records) {
			t.Fatalf("%d records, json/v2 finds %d", len(records), len(reference.Records))
		}
		for i, want := range reference.Records {
			got := records[i]
			switch {
			case string(want.Value) == "null":
				if got.Value != nil {
					t.Fatalf("record %d has %q for null", i, got.Value)
				}
			case want.Encoding == nil || *want.Encoding == "json":
				if !bytes.Equal(got.Value, want.Value) {
					t.Fatalf("record %d has %q, json/v2 finds %q", i, got.Value, want.Value)
				}
			case *want.Encoding == "string":
				var s string
				if err := json.Unmarshal(want.Value, &s); err != nil || s != string(got.Value) {
					t.Fatalf("record %d has %q, json/v2 finds %q %v", i, got.Value, s, err)
				}
			case *want.Encoding == "base64":
				var b []byte
				if err := json.Unmarshal(want.Value, &b); err != nil || !bytes.Equal(b, got.Value) || got.Value == nil {
					t.Fatalf("record %d has %q, json/v2 finds %q %v", i, got.Value, b, err)
				}
			}
			if want.Partition == nil && got.Partition != topic.AnyPartition || want.Partition != nil && *want.Partition != int32(got.Partition) {
				t.Fatalf("record %d has partition %d", i, got.Partition)
			}
		}
		comeBack(t, records)
	})
}

// comeBack encodes the records, and decodes them again.
func comeBack(t *testing.T, records []topic.Record) {
	t.Helper()
	for i, want := range records {
		var d Decoder
		if want.Timestamp == topic.NoTimestamp {
			want.Timestamp = 5
		}
		want.Partition = topic.AnyPartition
		out := encoded(t, want, Options{})
		if !strict([]byte(out)) {
			t.Fatalf("record %d: %s is not JSON", i, out)
		}
		got, err := d.Record([]byte(out))
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if text := want.Value; text != nil && isJSON(text) {
			want.Value = bytes.Trim(text, " \t\r\n")
		}
		if show(got) != show(want) {
			t.Fatalf("record %d went in as\n%s\nand came back as\n%s", i, show(want), show(got))
		}
	}
}

// FuzzRecord reads lines; FuzzBody has the comparison.
func FuzzRecord(f *testing.F) {
	for _, s := range fuzzSeeds() {
		if _, record, found := strings.Cut(s, "["); found {
			f.Add([]byte(strings.TrimSuffix(record, "]}")))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Decoder
		r, err := d.Record(b)
		if err == nil {
			comeBack(t, []topic.Record{r})
		}
		decoder := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true))
		if _, theirs := decoder.ReadValue(); errors.Is(theirs, io.EOF) && err == nil {
			t.Fatal("nothing was taken for a record")
		}
	})
}
