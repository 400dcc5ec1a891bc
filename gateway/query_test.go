package gateway

import (
	"strings"
	"testing"
)

// Who misspells a parameter learns it, instead of getting the answer to another question.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	w := start(t)
	w.produceValues("0", "1", "2")
	const page, part = "/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"
	for _, c := range []struct{ method, path, part string }{
		{"GET", page + "?offset=2", `"field":"offset","message":"is no query parameter of this address; did you mean from?"`},
		{"GET", page + "?form=latest", `did you mean from?`},
		{"GET", page + "?From=latest", `did you mean from?`},
		{"GET", page + "?max-records=1", `did you mean max_records?`},
		{"GET", page + "?limit=1", `did you mean max_records?`},
		{"GET", page + "?from=latest&partition=0", `did you mean partitions?`},
		{"GET", page + "?timeout=5", `did you mean wait_ms?`},
		{"GET", part + "?from=2", `did you mean offset?`},
		{"GET", part + "?colour=red", `it has max_bytes, max_records, min_bytes, offset, value_format, wait_ms"`},
		{"GET", part + "?%22%0a=1", `"field":"\"\\\"\\n\""`},
		{"GET", part + "?=1", `"field":"\"\""`},
		{"GET", part + "?a=1&b=2&offset=1", `"message":"is no query parameter of this address; it has max_bytes, max_records, min_bytes, offset, value_format, wait_ms"},{"field":"b",`},
		{"GET", "/v1/topics/orders?full=1", `which has none`},
		{"GET", "/v1/topics?size=5", `did you mean page_size?`},
		{"GET", "/v1/topics/orders/offsets?offset=latest", `did you mean at?`},
		{"GET", "/v1/topics/orders/partitions?limit=5", `did you mean page_size?`},
		{"POST", page + "?ack=none", `did you mean acks?`},
		{"POST", part + "?partition=0", `"field":"partition"`},
		{"POST", part + "?wait_ms=100", `did you mean timeout_ms?`},
		{"POST", "/v1/topics?partitions=3", `"field":"partitions"`},
		{"PATCH", "/v1/topics/orders?partitions=3", `"field":"partitions"`},
		{"DELETE", "/v1/topics/orders?dry_run=true", `"field":"dry_run"`},
		{"POST", "/v1/topics/orders/delete-records?before_offset=1", `"field":"before_offset"`},
		{"GET", "/v1/topics/orders/events?offset=1", `did you mean from?`},
		{"GET", "/v1/events?topics=orders", `did you mean topic?`},
		{"GET", "/v1/topics/orders/ws?offset=1", `did you mean from?`},
		{"GET", "/v1/ws?topic=orders", `which has none`},
		{"GET", part + "?offset=0&offset=1", `"field":"offset","message":"is given more than once"`},
		{"POST", page + "?acks=all&acks=none", `"field":"acks","message":"is given more than once"`},
		{"GET", page + "?from=latest&from=latest&form=1", `"message":"is given more than once"},{"field":"form",`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w.t = t
			before := w.node.calls.Load()
			r := w.send(c.method, c.path, `{"records":[{"value":1}]}`, "Content-Type", "application/json").want(t, 400, `"code":"bad_request"`, c.part)
			if w.node.calls.Load() != before {
				t.Errorf("the node was asked, and the answer is %s", r.body)
			}
		})
	}
	w.t = t
	w.send("HEAD", page+"?offset=2", "").want(t, 400)
	w.send("HEAD", page+"?from=latest", "").want(t, 200)
	many := strings.Repeat("&x=1", 100)
	if r := w.send("GET", page+"?"+many, "").want(t, 400); strings.Count(r.body, `"field"`) != mostUnknown {
		t.Errorf("the answer names %d parameters", strings.Count(r.body, `"field"`))
	}
	// What is not an operation takes whatever monitors and browsers add, and an empty query is none.
	for _, path := range []string{"/?utm_source=x", "/healthz?t=1", "/readyz?t=1", "/metrics?name[]=up", "/openapi.yaml?v=1", page + "?", page + "?&"} {
		w.send("GET", path, "").want(t, 200)
	}
	if _, err := w.node.Topic("orders"); err != nil {
		t.Error(err)
	}
}

// Every JSON document ends with a line end, so that a shell's prompt begins in a line of its own.
func TestEveryDocumentEndsWithALineEnd(t *testing.T) {
	w := start(t)
	const js, topics = "application/json", "/v1/topics"
	for _, r := range []reply{
		w.json(topics, `{"name":"orders"}`),
		w.send("GET", topics, ""),
		w.send("GET", topics+"/orders", ""),
		w.send("GET", topics+"/orders/partitions", ""),
		w.send("GET", topics+"/orders/offsets", ""),
		w.send("GET", topics+"/none", ""),
		w.send("GET", "/nowhere", ""),
		w.send("PUT", topics, ""),
		w.send("GET", "/v1/ws", ""),
		w.json(topics+"/orders/records", `{"records":[{"value":1}]}`),
		w.json(topics+"/orders/records?acks=none", `{"records":[{"value":1}]}`),
		w.json(topics+"/orders/records", `{"records":[{"value":1},{"value":1,"partition":7}]}`),
		w.json(topics+"/orders/records", `{"records":[{"value":1,"partition":7}]}`),
		w.json(topics+"/orders/records", `{`),
		w.lines(topics+"/orders/records", `{"value":1}`),
		w.lines(topics+"/orders/records", `{`),
		w.lines(topics+"/orders/records?receipts=record", `{"value":1}`),
		w.send("GET", topics+"/orders/records", ""),
		w.send("GET", topics+"/orders/records", "", "Accept", typeNDJSON),
		w.send("GET", topics+"/orders/partitions/0/records", ""),
		w.json(topics+"/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":1}]}`),
		w.send("PATCH", topics+"/orders", `{"partitions":2}`, "Content-Type", js),
		w.send("GET", "/healthz", ""),
		w.send("GET", "/readyz", ""),
	} {
		if !strings.HasSuffix(r.body, "}\n") {
			t.Errorf("an answer with status %d ends with %.300q", r.status, r.body[max(0, len(r.body)-100):])
		}
	}
}
