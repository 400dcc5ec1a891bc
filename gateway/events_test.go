package gateway

import (
	"strings"
	"testing"

	"github.com/weirlog/weir/topic"
)

func headersOf(r topic.Record) string {
	var b strings.Builder
	for _, h := range r.Headers {
		b.WriteString(h.Name + "=" + string(h.Value) + "\n")
	}
	return b.String()
}

func TestCloudEventsKeepTheirAttributesAsHeaders(t *testing.T) {
	w := start(t)
	const path = "/v1/topics/events/records"
	// Binary: attributes in headers, percent-encoded, which Go's client sorts; the data is the value as it came.
	w.send("POST", path, `{"total": 1.0}`, "Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1",
		"ce-source", "/orders", "ce-type", "com.example.made", "ce-subject", "Euro%20%E2%82%AC", "ce-partitionkey", "user-42").want(t, 200)
	// Structured: the event is the value.
	structured := `{"specversion":"1.0","id":"2","source":"/orders","type":"made","time":"2025-11-02T10:00:00Z","seq":7,"live":true,"gone":null,
		"datacontenttype":"application/json","data":{"total":1.0}}`
	w.send("POST", path, structured, "Content-Type", "application/cloudevents+json; charset=UTF-8").want(t, 200)
	// Batched: each event becomes a record in structured mode.
	w.send("POST", path, `[ {"specversion":"1.0","id":"3","source":"/a","type":"t"} , {"specversion":"1.0","id":"4","source":"/a","type":"t","data_base64":"AAE="}]`,
		"Content-Type", "application/cloudevents-batch+json").want(t, 200, `"stored":2`)
	got := w.node.stored("events", 0)
	if len(got) != 4 {
		t.Fatalf("%d records are stored", len(got))
	}
	for i, want := range []struct{ key, value, headers string }{
		{"user-42", `{"total": 1.0}`, "content-type=application/json\nce_id=1\nce_partitionkey=user-42\nce_source=/orders\nce_specversion=1.0\nce_subject=Euro €\nce_type=com.example.made\n"},
		{"", structured, "content-type=application/cloudevents+json; charset=UTF-8\nce_specversion=1.0\nce_id=2\nce_source=/orders\nce_type=made\nce_time=2025-11-02T10:00:00Z\nce_seq=7\nce_live=true\n"},
		{"", `{"specversion":"1.0","id":"3","source":"/a","type":"t"}`, "content-type=application/cloudevents+json\nce_specversion=1.0\nce_id=3\nce_source=/a\nce_type=t\n"},
		{"", `{"specversion":"1.0","id":"4","source":"/a","type":"t","data_base64":"AAE="}`, "content-type=application/cloudevents+json\nce_specversion=1.0\nce_id=4\nce_source=/a\nce_type=t\n"},
	} {
		if string(got[i].Key) != want.key || string(got[i].Value) != want.value || headersOf(got[i]) != want.headers {
			t.Errorf("record %d: key %q, value %s, headers\n%s\nwant\n%s", i, got[i].Key, got[i].Value, headersOf(got[i]), want.headers)
		}
	}
}

func TestWrongCloudEventsAreRefused(t *testing.T) {
	w := start(t)
	const path, good = "/v1/topics/events/records", `"specversion":"1.0","id":"2","source":"/a","type":"t"`
	for _, c := range []struct {
		name, contentType, body string
		headers                 []string
		status                  int
		parts                   []string
	}{
		{"attributes are missing", "text/plain", "x", []string{"ce-specversion", "1.0", "ce-id", "1"}, 422, []string{`"field":"ce-source"`, `"field":"ce-type"`}},
		{"another version", "text/plain", "x", []string{"ce-specversion", "0.3", "ce-id", "1", "ce-source", "a", "ce-type", "t"}, 422, []string{`ce-specversion`}},
		{"broken percent", "text/plain", "x", []string{"ce-specversion", "1.0", "ce-id", "%zz", "ce-source", "a", "ce-type", "t"}, 422, []string{`ce-id`}},
		{"attribute name", "text/plain", "x", []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "a", "ce-type", "t", "ce-a_b", "1"}, 422, []string{`ce-a_b`}},
		{"structured, missing", structuredMediaType, `{"specversion":"1.0","id":""}`, nil, 422, []string{`"field":"id"`, `"field":"source"`, `"field":"type"`}},
		{"structured, an object", structuredMediaType, `{` + good + `,"ext":{}}`, nil, 422, []string{`"field":"ext"`}},
		{"structured, name", structuredMediaType, `{` + good + `,"Ext":1}`, nil, 422, []string{`"field":"Ext"`}},
		{"structured, an array", structuredMediaType, `[]`, nil, 422, nil},
		{"structured, broken", structuredMediaType, `{`, nil, 400, nil},
		{"structured, duplicates", structuredMediaType, `{` + good + `,"id":"3"}`, nil, 400, []string{`invalid_json`}},
		{"batch, no array", "application/cloudevents-batch+json", `{}`, nil, 400, nil},
		{"batch, empty", "application/cloudevents-batch+json", `[]`, nil, 422, nil},
		{"batch, one wrong", "application/cloudevents-batch+json", `[{` + good + `},{}]`, nil, 422, []string{`"field":"[1].id"`}},
		{"batch, not an event", "application/cloudevents-batch+json", `[1]`, nil, 422, []string{`"field":"[0]"`}},
		{"batch, too many", "application/cloudevents-batch+json", `[` + strings.Repeat(`{`+good+`},`, 10000) + `{}]`, nil, 413, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.send("POST", path, c.body, append([]string{"Content-Type", c.contentType}, c.headers...)...).want(t, c.status, c.parts...)
		})
	}
	if n := w.node.calls.Load(); n != 0 {
		t.Errorf("the node was asked %d times", n)
	}
}
