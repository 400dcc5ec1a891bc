package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exact is a record whose bytes have to survive.
type exact struct {
	name     string
	in       string // the record in JSON, as it is sent
	value    string // the JSON that comes back as "value"
	encoding string // "value_encoding"; "" is JSON
	key      string // the JSON that comes back as "key"; "" when there is none
	headers  int
}

func exacts() []exact {
	large := strings.Repeat("x", 1<<20)
	var headers []string
	for i := range 200 {
		headers = append(headers, fmt.Sprintf(`{"name":"h%d","value":"v%d"}`, i%100, i))
	}
	pretty := "{\n  \"total\": 12.50,\r\n\t\"list\": [ 1 , 2 ]\n}"
	return []exact{
		{name: "a decimal", in: `{"value":12.50}`, value: `12.50`},
		{name: "2^63", in: `{"value":9223372036854775808}`, value: `9223372036854775808`},
		{name: "an exponent", in: `{"value":1E400}`, value: `1E400`},
		{name: "an emoji", in: `{"value":"🙂"}`, value: `"🙂"`},
		{name: "an escaped emoji", in: `{"value":"\ud83d\ude42"}`, value: `"\ud83d\ude42"`},
		{name: "a NUL in JSON", in: `{"value":"\u0000"}`, value: `"\u0000"`},
		{name: "a NUL byte", in: `{"value":"AA==","value_encoding":"base64"}`, value: `"\u0000"`, encoding: "string"},
		{name: "no UTF-8", in: `{"value":"//4=","value_encoding":"base64"}`, value: `"//4="`, encoding: "base64"},
		{name: "null", in: `{"key":"k","value":null}`, value: `null`, key: `"k"`},
		{name: "the text null", in: `{"value":"null","value_encoding":"string"}`, value: `"null"`, encoding: "string"},
		{name: "an empty value", in: `{"value":"","value_encoding":"string"}`, value: `""`, encoding: "string"},
		{name: "an empty key", in: `{"key":"","value":1}`, value: `1`, key: `""`},
		{name: "a null key", in: `{"key":null,"value":2}`, value: `2`},
		{name: "a missing key", in: `{"value":3}`, value: `3`},
		{name: "a key of bytes", in: `{"key":"//4=","key_encoding":"base64","value":4}`, value: `4`, key: `"//4="`},
		{name: "white space", in: `{"value":` + pretty + `}`, value: pretty},
		{name: "order and repetition", in: `{"value":{"b":1,"a":2,"b":3}}`, value: `{"b":1,"a":2,"b":3}`},
		{name: "200 headers", in: `{"value":5,"headers":[` + strings.Join(headers, ",") + `]}`, value: `5`, headers: 200},
		{name: "1 MiB", in: `{"value":"` + large + `","value_encoding":"string"}`, value: `"` + large + `"`, encoding: "string"},
	}
}

// TestExactBytesComeBackOnEveryTransport stores records in every way and reads them in every way.
func TestExactBytesComeBackOnEveryTransport(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	records := exacts()
	all := make([]string, len(records))
	for i, r := range records {
		all[i] = r.in
	}
	oneLine := strings.NewReplacer("\r\n", " ", "\n", " ")
	for _, way := range []string{"json", "ndjson", "websocket", "single"} {
		url := n.base + "/v1/topics/" + way + "/records"
		switch way {
		case "json":
			must(t, http.MethodPost, url, `{"records":[`+strings.Join(all, ",")+`]}`, nil, "Content-Type", "application/json")
		case "ndjson": // a line ends where a line ends, so a value there has none
			must(t, http.MethodPost, url, lines(all, oneLine), nil, "Content-Type", "application/x-ndjson")
		case "websocket":
			must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"websocket"}`, nil, "Content-Type", "application/json")
			conn := dial(t, n.base)
			send(t, conn, `{"id":1,"op":"produce","topic":"websocket","records":[`+strings.Join(all, ",")+`]}`)
			if f := frame(t, conn); f.Op != "produced" || len(f.Results) != len(all) {
				t.Fatalf("got %+v", f)
			}
		default: // one by one
			for _, record := range all {
				must(t, http.MethodPost, url, `{"records":[`+record+`]}`, nil, "Content-Type", "application/json")
			}
		}
		for transport, read := range readers(t, n.base, way, len(records)) {
			t.Run(way+"/"+transport, func(t *testing.T) {
				got := read()
				for i, want := range records {
					same(t, got[i], want, way == "ndjson", transport)
				}
			})
		}
	}
}

func lines(records []string, oneLine *strings.Replacer) string {
	var b strings.Builder
	for _, r := range records {
		b.WriteString(oneLine.Replace(r) + "\n")
	}
	return b.String()
}

// readers are the ways to read a topic of one partition.
func readers(t *testing.T, base, topic string, count int) map[string]func() []json.RawMessage {
	url := base + "/v1/topics/" + topic
	paged := func(first string, next func(page map[string]json.RawMessage) string) func() []json.RawMessage {
		return func() []json.RawMessage {
			var got []json.RawMessage
			for path := first; len(got) < count; {
				var page map[string]json.RawMessage
				a := must(t, http.MethodGet, url+path, "", &page)
				var records []json.RawMessage
				if err := json.Unmarshal(page["records"], &records); err != nil || len(records) == 0 {
					t.Fatalf("%d records came, then %.200s (%v)", len(got), a.body, err)
				}
				got = append(got, records...)
				path = next(page)
			}
			return got
		}
	}
	return map[string]func() []json.RawMessage{
		"offset": paged("/partitions/0/records?offset=0", func(page map[string]json.RawMessage) string {
			return "/partitions/0/records?offset=" + string(page["next_offset"])
		}),
		"cursor": paged("/records?from=earliest", func(page map[string]json.RawMessage) string {
			return "/records?cursor=" + strings.Trim(string(page["cursor"]), `"`)
		}),
		"ndjson": func() []json.RawMessage {
			s := follow(t, url+"/records?from=earliest&follow=true", "Accept", "application/x-ndjson")
			defer s.cancel()
			var got []json.RawMessage
			for range count {
				got = append(got, json.RawMessage(s.next()))
			}
			return got
		},
		"sse": func() []json.RawMessage {
			s := follow(t, url+"/events?from=earliest")
			defer s.cancel()
			var got []json.RawMessage
			s.until(t, "event: ready")
			s.until(t, "data:")
			var data []string // of a message: a line of data may be one of several
			for len(got) < count && s.lines.Scan() {
				line := s.lines.Text()
				if rest, ok := strings.CutPrefix(line, "data: "); ok {
					data = append(data, rest)
				} else if line == "" && data != nil {
					got = append(got, json.RawMessage(strings.Join(data, "\n")))
					data = nil
				}
			}
			return got
		},
		"websocket": func() []json.RawMessage {
			conn := dial(t, base)
			send(t, conn, `{"id":1,"op":"subscribe","sub":"a","topic":"`+topic+`","from":"earliest"}`)
			var got []json.RawMessage
			for len(got) < count {
				f := frame(t, conn)
				if f.Op == "error" {
					t.Fatalf("got %s", f.Problem)
				}
				got = append(got, f.Records...)
			}
			return got
		},
	}
}

// same compares a record with what was sent. On NDJSON and SSE a line end inside a value, which is only
// white space there, may have become another white space.
func same(t *testing.T, raw json.RawMessage, want exact, oneLine bool, transport string) {
	t.Helper()
	var got struct {
		Key, Value json.RawMessage
		Encoding   string `json:"value_encoding"`
		Headers    []struct{ Name, Value string }
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Errorf("%s: %v in %.300s", want.name, err, raw)
		return
	}
	value, wanted := string(got.Value), want.value
	if oneLine || transport == "ndjson" || transport == "sse" {
		flat := strings.NewReplacer("\r\n", " ", "\r", " ", "\n", " ", "  ", " ")
		value, wanted = squeeze(flat.Replace(value)), squeeze(flat.Replace(wanted))
	}
	if value != wanted || got.Encoding != want.encoding {
		t.Errorf("%s: the value is %.60s (%q), want %.60s (%q)", want.name, value, got.Encoding, wanted, want.encoding)
	}
	if string(got.Key) != want.key {
		t.Errorf("%s: the key is %s, want %s", want.name, got.Key, want.key)
	}
	if want.headers > 0 {
		var order []string
		for _, h := range got.Headers {
			order = append(order, h.Value)
		}
		var sent []string
		for i := range want.headers {
			sent = append(sent, fmt.Sprintf("v%d", i))
		}
		if !slices.Equal(order, sent) {
			t.Errorf("%s: the headers came back as %v", want.name, order)
		}
	}
}

// squeeze makes one space of several.
func squeeze(s string) string {
	if len(s) > 1000 {
		return s // the large one has none
	}
	return strings.Join(strings.Fields(s), " ")
}

// TestARawBodyIsTheValue: what curl -d sends is what is stored, whatever its bytes.
func TestARawBodyIsTheValue(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	for i, body := range []string{"hello", "\x00\x01\xff", `{"a" : 1.0}`, strings.Repeat("y", 1<<20-100)} {
		topic := fmt.Sprintf("raw%d", i)
		must(t, http.MethodPost, n.base+"/v1/topics/"+topic+"/records?key=k%00", body, nil, "Content-Type", "application/octet-stream", "Record-Header-Trace", "abc")
		var page struct {
			Records []struct {
				Key, Value string
				Headers    []struct{ Name, Value string }
			}
		}
		must(t, http.MethodGet, n.base+"/v1/topics/"+topic+"/partitions/0/records?offset=0&value_format=base64", "", &page)
		value, err := base64.StdEncoding.DecodeString(page.Records[0].Value)
		if err != nil || string(value) != body || page.Records[0].Key != "k\x00" {
			t.Errorf("%.20q came back as %.20q (%v) with the key %q", body, value, err, page.Records[0].Key)
		}
		if len(page.Records[0].Headers) != 2 {
			t.Errorf("the headers are %v", page.Records[0].Headers)
		}
	}
}
