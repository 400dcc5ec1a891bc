package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestProduceTellsWhereEachRecordIs(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders","partitions":4}`).want(t, 201)
	r := w.json("/v1/topics/orders/records", `{"records":[
		{"key":"user-42","value":{"total":12.50},"headers":[{"name":"trace","value":"abc"},{"name":"sig","value_base64":"AAE="}]},
		{"key":"user-7","value":null},
		{"partition":3,"value":"AAEC","value_encoding":"base64","timestamp":1762077600000}]}`).want(t, 200)
	want := `{"topic":"orders","stored":3,"failed":0,"results":[` +
		`{"status":200,"partition":3,"offset":0,"timestamp":1762077600123},` +
		`{"status":200,"partition":2,"offset":0,"timestamp":1762077600123},` +
		`{"status":200,"partition":3,"offset":1,"timestamp":1762077600000}]}` + "\n"
	if r.body != want {
		t.Fatalf("got  %s\nwant %s", r.body, want)
	}
	got := w.node.stored("orders", 3)
	if string(got[0].Key) != "user-42" || string(got[0].Value) != `{"total":12.50}` || len(got[0].Headers) != 2 {
		t.Errorf("stored %+v", got[0])
	}
	if !bytes.Equal(got[1].Value, []byte{0, 1, 2}) || got[1].Key != nil {
		t.Errorf("stored %+v", got[1])
	}
	if tombstone := w.node.stored("orders", 2)[0]; tombstone.Value != nil {
		t.Errorf("a tombstone has the value %q", tombstone.Value)
	}
}

// The promise that a status never lies, as a table: what became of the records, and what the answer says.
func TestProduceStatusSaysWhatHappened(t *testing.T) {
	w := start(t)
	at := func(kind fault.Kind) error {
		return fault.Newf("storage.Append", kind, "orders/0", "the sentence of %v", kind)
	}
	stored := func(results ...error) func(context.Context, *topic.Append) error {
		return func(_ context.Context, a *topic.Append) error {
			for i := range a.Results {
				a.Results[i] = topic.Stored{Partition: 0, Offset: topic.Offset(i), Timestamp: 1, Err: results[i%len(results)]}
			}
			return nil
		}
	}
	whole := func(err error) func(context.Context, *topic.Append) error {
		return func(context.Context, *topic.Append) error { return err }
	}
	for _, c := range []struct {
		name   string
		node   func(context.Context, *topic.Append) error
		status int
		parts  []string
		retry  bool
	}{
		{"all stored", stored(nil), 200, []string{`"stored":2,"failed":0`}, false},
		{"some failed", stored(nil, at(fault.NotReplicated)), 207, []string{`"stored":1,"failed":1`, `"status":503`, `"code":"not_enough_replicas"`, `"retryable":true`}, true},
		{"some too large", stored(at(fault.RecordTooLarge), nil), 207, []string{`"status":413`, `the sentence of record_too_large`}, false},
		{"some unknown", stored(nil, at(fault.Timeout)), 207, []string{`"status":504`, `outcome is unknown`}, false},
		{"none, one reason", stored(at(fault.RecordTooLarge)), 413, []string{`"code":"record_too_large"`, `"results":[{"status":413`}, false},
		{"none, unknown first", stored(at(fault.RecordTooLarge), at(fault.Timeout)), 504, []string{`"code":"timeout"`, `"results":[{"status":413`}, false},
		{"none, a failure before a refusal", stored(at(fault.RecordTooLarge), at(fault.StorageFull)), 503, []string{`"code":"storage_full"`}, true},
		{"none, an internal one before others", stored(at(fault.StorageFull), at(fault.Internal)), 500, []string{`"code":"internal"`}, false},
		{"refused as a whole", whole(at(fault.StorageFull)), 503, []string{`"code":"storage_full"`}, true},
		{"not the leader", whole(at(fault.NotLeader)), 503, []string{`"retryable":true`}, true},
		{"overloaded", whole(at(fault.Overloaded)), 503, nil, true},
		{"stopping", whole(at(fault.Stopping)), 503, []string{`"code":"stopping"`}, true},
		{"quota", whole(at(fault.QuotaExceeded)), 429, nil, true},
		{"the time is up", whole(context.DeadlineExceeded), 504, []string{`"code":"timeout"`, `the outcome is unknown`}, false},
		{"the time is up in the node", whole(at(fault.Timeout)), 504, []string{`the sentence of timeout; the outcome is unknown`}, false},
		{"no topic", whole(at(fault.NoTopic)), 404, nil, false},
		{"no partition", stored(at(fault.NoPartition)), 404, nil, false},
		{"condition", whole(at(fault.OffsetMismatch)), 412, nil, false},
		{"fenced", whole(at(fault.Fenced)), 409, nil, false},
		{"key reused", whole(at(fault.KeyReused)), 422, []string{`idempotency_key_reused`}, false},
		{"a foreign error", whole(errDisk), 500, []string{`"code":"internal"`}, false},
		{"damage", whole(at(fault.Corrupt)), 500, []string{`"code":"internal"`}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.node.answer(c.node)
			for _, path := range []string{"/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"} {
				if c.status == 412 && !strings.Contains(path, "partitions") || c.status == 429 {
					path += "?" // not an answer of the contract for this operation: see everywhere
				}
				r := w.produceAnyway(path, `{"records":[{"value":1},{"value":2}]}`)
				r.want(t, c.status, c.parts...)
				if got := r.header.Get("Retry-After") != ""; got != c.retry {
					t.Errorf("Retry-After: %v, want %v", got, c.retry)
				}
				if strings.Contains(r.body, "secret") {
					t.Errorf("the answer shows what is inside: %s", r.body)
				}
			}
		})
	}
}

// produceAnyway is json without the check for statuses that an operation lists: the node can answer with
// faults that this endpoint never meets.
func (w *world) produceAnyway(path, body string) reply {
	w.t.Helper()
	req, err := http.NewRequest("POST", w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "?") {
		resp, err := w.client.Do(req)
		if err != nil {
			w.t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(resp.Body); err != nil {
			w.t.Fatal(err)
		}
		return reply{resp.StatusCode, resp.Header, b.String()}
	}
	return w.do(req)
}

func TestAcksAndTimeoutReachTheNode(t *testing.T) {
	w := start(t)
	var seen topic.Append
	var left bool
	var partition topic.Partition
	var ifLast topic.Offset
	w.node.answer(func(ctx context.Context, a *topic.Append) error {
		seen, partition = *a, a.Records[0].Partition // what a points to is the next request's after the call
		if a.IfLast != nil {
			ifLast = *a.IfLast
		}
		_, left = ctx.Deadline()
		for i := range a.Results {
			a.Results[i].Partition = 0
		}
		return nil
	})
	w.json("/v1/topics/orders/records?acks=leader&timeout_ms=50", `{"records":[{"value":1}]}`, "Idempotency-Key", "k-1").want(t, 200)
	if seen.Acks != topic.AcksLeader || seen.IdempotencyKey != "k-1" || seen.Topic != "orders" || seen.Principal != topic.Anonymous || seen.Keyed != nil || !left {
		t.Errorf("the node got %+v, a deadline: %v", seen, left)
	}
	w.json("/v1/topics/orders/records?acks=none", `{"records":[{"value":1},{"value":2}]}`).want(t, 202, `{"topic":"orders","accepted":2}`)
	w.json("/v1/topics/orders/partitions/2/records?acks=none", `{"records":[{"value":1}]}`).want(t, 202)
	if partition != 2 {
		t.Errorf("partition is %d", partition)
	}
	w.json("/v1/topics/orders/partitions/2/records", `{"records":[{"value":1}]}`, "If-Last-Offset", "-1").want(t, 200)
	if ifLast != -1 {
		t.Errorf("If-Last-Offset is %d", ifLast)
	}
	w.node.answer(func(ctx context.Context, a *topic.Append) error { <-ctx.Done(); return ctx.Err() })
	w.json("/v1/topics/orders/records?timeout_ms=20", `{"records":[{"value":1}]}`).want(t, 504, `outcome is unknown`)
	w.json("/v1/topics/orders/partitions/0/records?timeout_ms=20", `{"records":[{"value":1}]}`).want(t, 504, `outcome is unknown`)
}

func TestARepeatWithTheSameKeyGetsTheOldOffsets(t *testing.T) {
	w := start(t)
	first := w.json("/v1/topics/orders/records", `{"records":[{"value":1},{"value":2}]}`, "Idempotency-Key", "2f1c9a0e").want(t, 200)
	again := w.json("/v1/topics/orders/records", `{"records":[{"value":1},{"value":2}]}`, "Idempotency-Key", "2f1c9a0e").want(t, 200, `"duplicate":true`)
	if got := strings.ReplaceAll(again.body, `,"duplicate":true`, ""); got != first.body {
		t.Errorf("the repeat got %s, the first %s", again.body, first.body)
	}
	if n := len(w.node.stored("orders", 0)); n != 2 {
		t.Errorf("%d records are stored", n)
	}
	for _, path := range []string{"/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"} {
		w.json(path, `{"records":[{"value":1}]}`, "Idempotency-Key", "2f1c9a0e").want(t, 422, `idempotency_key_reused`)
	}
}

func TestIfLastOffsetIsACondition(t *testing.T) {
	w := start(t)
	const path = "/v1/topics/orders/partitions/0/records"
	w.json(path, `{"records":[{"value":1}]}`, "If-Last-Offset", "-1").want(t, 200)
	w.json(path, `{"records":[{"value":1}]}`, "If-Last-Offset", "-1").want(t, 412, `offset_mismatch`)
	w.json(path, `{"records":[{"value":1}]}`, "If-Last-Offset", "0").want(t, 200, `"offset":1`)
	w.json("/v1/topics/orders/records", `{"records":[{"value":1}]}`, "If-Last-Offset", "0").want(t, 422, `If-Last-Offset`)
}

func TestAnythingCanBePosted(t *testing.T) {
	w := start(t)
	w.send("POST", "/v1/topics/greetings/records", "hello", "Content-Type", "application/x-www-form-urlencoded").want(t, 200, `"offset":0`)
	w.send("POST", "/v1/topics/greetings/records?key=k%20%C3%A9&partition=0", "\x00\xff\n", "Content-Type", "application/octet-stream",
		"Record-Header-Trace-Id", "abc", "Record-Header-Trace-Id", "def", "Record-Header-x", "").want(t, 200)
	w.send("POST", "/v1/topics/greetings/records?raw=true", `{"a": 1.0}`, "Content-Type", "application/json", "Record-Key", "user-1").want(t, 200)
	w.send("POST", "/v1/topics/greetings/partitions/0/records?raw=1&key=", "", "Content-Type", "text/plain; charset=utf-8").want(t, 200)
	w.send("POST", "/v1/topics/greetings/records?raw=true", "{}\n{}\n", "Content-Type", "application/x-ndjson").want(t, 200)
	w.send("POST", "/v1/topics/greetings/records?raw=false", `{"records":[{"value":1}]}`, "Content-Type", "Application/JSON; charset=utf-8").want(t, 200)
	got := w.node.stored("greetings", 0)
	type header = topic.Header
	want := []topic.Record{
		{Value: []byte("hello"), Headers: []header{{Name: "content-type", Value: []byte("application/x-www-form-urlencoded")}}},
		{Key: []byte("k é"), Value: []byte("\x00\xff\n"), Headers: []header{
			{Name: "content-type", Value: []byte("application/octet-stream")},
			{Name: "trace-id", Value: []byte("abc")},
			{Name: "trace-id", Value: []byte("def")},
			{Name: "x", Value: []byte{}},
		}},
		{Key: []byte("user-1"), Value: []byte(`{"a": 1.0}`), Headers: []header{{Name: "content-type", Value: []byte("application/json")}}},
		{Key: []byte{}, Value: []byte{}, Headers: []header{{Name: "content-type", Value: []byte("text/plain; charset=utf-8")}}},
		{Value: []byte("{}\n{}\n"), Headers: []header{{Name: "content-type", Value: []byte("application/x-ndjson")}}},
		{Value: []byte("1")},
	}
	for i := range want {
		want[i].Timestamp = 1762077600123
		if g, w := fmt.Sprintf("%#v", got[i]), fmt.Sprintf("%#v", want[i]); g != w {
			t.Errorf("record %d is\n%s, want\n%s", i, g, w)
		}
	}
}

func TestWrongProduceRequestsAreRefused(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders","partitions":2}`).want(t, 201)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	const path = "/v1/topics/orders/records"
	const one = `{"records":[{"value":1}]}`
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		parts            []string
	}{
		{"no value", path, `{"records":[{"value":1},{"key":"a"}]}`, nil, 422, []string{`"field":"records[1].value"`, `is required`}},
		{"several mistakes", path, `{"records":[{"value":1,"partition":-1},{"value":1,"timestamp":"soon"}]}`, nil, 422, []string{`records[0].partition`, `records[1].timestamp`}},
		{"no records", path, `{"records":[]}`, nil, 422, []string{`records`}},
		{"no member", path, `{}`, nil, 422, []string{`"field":"records"`, `is required: send {\"records\":[…]}, or add raw=true to the query to store the body as one record`}},
		{"a webhook's object", path, `{"action":"opened","number":1}`, nil, 422, []string{`"field":"records"`, `raw=true`}},
		{"a webhook's own records", path, `{"records":"none"}`, nil, 422, []string{`"field":"records"`, `must be an array`, `raw=true`}},
		{"a webhook's list", path, `[{"action":"opened"}]`, nil, 422, []string{`must be an object`, `raw=true`}},
		{"a webhook's text", "/v1/topics/orders/partitions/1/records", `"hello"`, nil, 422, []string{`raw=true`}},
		{"not JSON", path, `hello`, nil, 400, []string{`invalid_json`}},
		{"cut off", path, `{"records":[{"value":1}`, nil, 400, []string{`invalid_json`}},
		{"empty", path, ``, nil, 400, []string{`invalid_json`}},
		{"empty to a partition", "/v1/topics/orders/partitions/0/records", ``, nil, 400, []string{`invalid_json`}},
		{"trailing", path, one + "x", nil, 400, []string{`invalid_json`}},
		{"duplicate names", path, `{"records":[{"value":1,"value":2}]}`, nil, 400, []string{`invalid_json`}},
		{"too deep", path, `{"records":[{"value":` + deep + `}]}`, nil, 400, []string{`invalid_json`}},
		{"broken UTF-8", path, "{\"records\":[{\"value\":\"\xff\"}]}", nil, 400, []string{`invalid_json`}},
		{"bad base64", path, `{"records":[{"value":"!","value_encoding":"base64"}]}`, nil, 422, []string{`records[0].value`}},
		{"acks", path + "?acks=most", one, nil, 422, []string{`"field":"acks"`}},
		{"timeout", path + "?timeout_ms=0", one, nil, 422, []string{`"field":"timeout_ms"`}},
		{"timeout too long", path + "?timeout_ms=300001", one, nil, 422, nil},
		{"raw", path + "?raw=maybe", one, nil, 422, []string{`"field":"raw"`}},
		{"receipts", path + "?receipts=all", one, nil, 422, []string{`"field":"receipts"`}},
		{"receipts of JSON", path + "?receipts=record", one, nil, 422, []string{`NDJSON`}},
		{"key of many", path + "?key=a", one, nil, 422, []string{`"field":"key"`, `raw=true`}},
		{"partition of many", path + "?partition=1", one, nil, 422, []string{`"field":"partition"`, `raw=true`}},
		{"partition twice", "/v1/topics/orders/partitions/1/records?partition=1", one, nil, 400, []string{`"field":"partition"`}},
		{"partition is no number", "/v1/topics/orders/partitions/one/records", one, nil, 422, []string{`"field":"partition"`}},
		{"partition is negative", "/v1/topics/orders/partitions/-1/records", one, nil, 422, nil},
		{"partition is huge", "/v1/topics/orders/partitions/2147483648/records", one, nil, 422, nil},
		{"partitions differ", "/v1/topics/orders/partitions/1/records", `{"records":[{"value":1,"partition":0}]}`, nil, 422, []string{`records[0].partition`}},
		{"partition unknown", "/v1/topics/orders/partitions/9/records", one, nil, 404, []string{`partition_not_found`}},
		{"key too long", path, one, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 422, []string{`Idempotency-Key`}},
		{"key empty", path, one, []string{"Idempotency-Key", ""}, 422, []string{`Idempotency-Key`}},
		{"key with a space", path, one, []string{"Idempotency-Key", "a b"}, 422, []string{`Idempotency-Key`}},
		{"condition is no number", "/v1/topics/orders/partitions/0/records", one, []string{"If-Last-Offset", "x"}, 422, []string{`If-Last-Offset`}},
		{"name", "/v1/topics/a%20b/records", one, nil, 422, nil},
		{"name too long", "/v1/topics/" + strings.Repeat("a", 250) + "/records", one, nil, 422, nil},
		{"the node's own", "/v1/topics/__groups/records", one, nil, 403, []string{`"resource":"topic:__groups"`}},
		{"the node's own partition", "/v1/topics/__groups/partitions/0/records", one, nil, 403, nil},
		{"encoding", path, one, []string{"Content-Encoding", "br"}, 415, []string{`unsupported_media_type`, `gzip`}},
		{"two encodings", path, one, []string{"Content-Encoding", "gzip, gzip"}, 415, nil},
		{"encoding of a partition", "/v1/topics/orders/partitions/0/records", one, []string{"Content-Encoding", "deflate"}, 415, nil},
		{"not gzip", path, one, []string{"Content-Encoding", "gzip"}, 400, []string{`Content-Encoding`}},
		{"not zstd", path, one, []string{"Content-Encoding", "zstd"}, 400, []string{`Content-Encoding`}},
		{"a record too large", path, `{"records":[{"value":"` + strings.Repeat("a", 1<<20) + `"}]}`, nil, 413, []string{`record_too_large`}},
		{"too many records", path, `{"records":[` + strings.Repeat(`{"value":1},`, 10000) + `{"value":1}]}`, nil, 413, []string{`request_too_large`, `10000`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			before := w.node.calls.Load()
			r := w.json(c.path, c.body, c.headers...).want(t, c.status, c.parts...)
			if c.status == 413 || c.status == 404 {
				return
			}
			if w.node.calls.Load() != before {
				t.Errorf("the node was asked, and the answer is %s", r.body)
			}
		})
	}
}

// A request without a body and without a word about one is a mistake; with either it is an empty record.
func TestAnEmptyRecordMustBeMeant(t *testing.T) {
	w := start(t)
	const topics, part = "/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"
	for _, path := range []string{topics, part, topics + "?key=k", topics + "?raw=false"} {
		w.send("POST", path, "").want(t, 400, `"code":"bad_request"`, `the request has no body`, `raw=true`)
	}
	if w.node.calls.Load() != 0 {
		t.Fatal("the node was asked")
	}
	w.send("POST", topics+"?raw=true", "").want(t, 200)
	w.send("POST", topics, "", "Content-Type", "text/plain").want(t, 200)
	w.send("POST", part+"?key=k&raw=true", "", "Content-Type", "application/json").want(t, 200)
	w.send("POST", topics, "", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Specversion", "1.0", "Ce-Type", "t").want(t, 200)
	for i, r := range w.node.stored("orders", 0) {
		if r.Value == nil || len(r.Value) > 0 {
			t.Errorf("record %d is %q", i, r.Value)
		}
	}
}

func packed(t testing.TB, coding, text string) string {
	var b bytes.Buffer
	switch coding {
	case "gzip":
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(text))
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = z.Write([]byte(text))
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
	default:
		return text
	}
	return b.String()
}

func TestBodiesMayBePacked(t *testing.T) {
	w := start(t)
	for _, coding := range []string{"gzip", "zstd", "identity"} {
		r := w.json("/v1/topics/orders/records", packed(t, coding, `{"records":[{"value":"`+coding+`"}]}`), "Content-Encoding", coding)
		r.want(t, 200)
	}
	got := w.node.stored("orders", 0)
	if len(got) != 3 || string(got[0].Value) != `"gzip"` || string(got[1].Value) != `"zstd"` || string(got[2].Value) != `"identity"` {
		t.Errorf("stored %+v", got)
	}
	// The reader is used again after a body that was broken.
	whole := packed(t, "zstd", `{"records":[{"value":1}]}`)
	for range 3 {
		w.json("/v1/topics/orders/records", whole[:len(whole)-3], "Content-Encoding", "zstd").want(t, 400)
		w.json("/v1/topics/orders/records", whole, "Content-Encoding", "zstd").want(t, 200)
		w.json("/v1/topics/orders/records", whole+"trailing", "Content-Encoding", "zstd").want(t, 400)
	}
}

func TestBombsAreRefusedBeforeTheyUnfold(t *testing.T) {
	w := start(t)
	for _, coding := range []string{"gzip", "zstd"} {
		over := packed(t, coding, strings.Repeat("a", 200<<20))
		w.json("/v1/topics/orders/records", over, "Content-Encoding", coding).want(t, 413, `request_too_large`)
		w.send("POST", "/v1/topics/orders/records", over, "Content-Type", typeNDJSON, "Content-Encoding", coding).want(t, 413)
	}
	if held := w.server.bodies.held.Load(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
	if n := w.node.calls.Load(); n != 0 {
		t.Errorf("the node was asked %d times", n)
	}
}

// A record of exactly the largest size arrives, also where JSON makes six bytes of each of its own.
func TestTheLargestRecordFitsInItsWorstEncoding(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"big","settings":{"max.message.bytes":8388608}}`).want(t, 201)
	value := strings.Repeat("\\u0000", 4<<20)
	w.json("/v1/topics/big/records", `{"records":[{"value":"`+value+`","value_encoding":"string"}]}`).want(t, 200)
	if n := len(w.node.stored("big", 0)[0].Value); n != 4<<20 {
		t.Errorf("%d bytes are stored", n)
	}
	w.json("/v1/topics/other/records", `{"records":[{"value":"`+value+`","value_encoding":"string"}]}`).want(t, 413, `request_too_large`)
	w.json("/v1/topics/big/partitions/0/records", `{"records":[{"value":"`+value+`x","value_encoding":"string"}]}`).want(t, 413, `record_too_large`)
}

func TestValuesKeepTheirBytes(t *testing.T) {
	w := start(t)
	headers := make([]string, 200)
	for i := range headers {
		headers[i] = fmt.Sprintf(`{"name":"h%d","value":"v"}`, i%7)
	}
	values := []string{`12.50`, `9223372036854775808`, `"\u0000"`, `"😀"`, `"\ud83d\ude00"`, "{\n  \"a\" :\t[1, 2]\n}", `""`, `true`, `-0.0e+10`}
	var body []string
	for _, v := range values {
		body = append(body, `{"value":`+v+`,"headers":[`+strings.Join(headers, ",")+`]}`)
	}
	w.json("/v1/topics/exact/records", `{"records":[`+strings.Join(body, ",")+`]}`).want(t, 200)
	for i, r := range w.node.stored("exact", 0) {
		if string(r.Value) != values[i] {
			t.Errorf("stored %q, sent %q", r.Value, values[i])
		}
		if len(r.Headers) != 200 || r.Headers[8].Name != "h1" {
			t.Errorf("stored %d headers", len(r.Headers))
		}
	}
}
