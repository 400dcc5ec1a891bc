package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/weirlog/weir/gateway/session"
)

// stream is an answer that is read while it grows.
type stream struct {
	*bufio.Reader
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc
}

func (w *world) stream(path string, headers ...string) *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: w.client.Transport}).Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	contract().check(w.t, req, resp, nil)
	if resp.StatusCode != 200 {
		body, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	return &stream{bufio.NewReader(resp.Body), w.t, resp, cancel}
}

// line is the next line, without its end.
func (s *stream) line() string {
	s.t.Helper()
	text, err := s.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the stream ended after %q: %v", text, err)
	}
	line := strings.TrimSuffix(text, "\n")
	if line != "" && s.resp.Header.Get("Content-Type") == typeNDJSON {
		contract().checkLine(s.t, line)
	}
	return line
}

// event is a server-sent event by its fields; data lines are joined as browsers do. Heartbeats are skipped.
func (s *stream) event() map[string]string {
	s.t.Helper()
	e := map[string]string{}
	for {
		line := s.line()
		if line == "" {
			if len(e) > 0 {
				if e["event"] != "" && !s.resp.Request.URL.Query().Has("event") {
					contract().checkEvent(s.t, e["event"])
				}
				return e
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if old, again := e[name]; again && name == "data" {
			value = old + "\n" + value
		}
		if name != "" {
			e[name] = value
		}
	}
}

func (s *stream) wantEvent(name string) map[string]string {
	s.t.Helper()
	e := s.event()
	if e["event"] != name {
		s.t.Fatalf("got %v, want event %q", e, name)
	}
	return e
}

func (w *world) socket(path string) *websocket.Conn {
	w.t.Helper()
	c, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(w.url, "http")+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if resp.Header.Get("X-Request-Id") == "" {
		w.t.Error("the handshake has no X-Request-Id")
	}
	return c
}

// frame is the next message of a WebSocket, which has to have this op.
func frame(t testing.TB, c *websocket.Conn, op string) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := c.ReadJSON(&m); err != nil {
		t.Fatalf("waiting for %s: %v", op, err)
	}
	if got := strings.Trim(string(m["op"]), `"`); got != op {
		t.Fatalf("got %s, want %s", m, op)
	}
	return m
}

func TestEvents(t *testing.T) {
	w := start(t)
	w.produceValues(`"a"`, `{"b":
  2}`)
	s := w.stream("/v1/topics/orders/events")
	if got := s.resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the content type is %s", got)
	}
	if s.resp.Header.Get("X-Accel-Buffering") != "no" || s.resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("a proxy may buffer: %v", s.resp.Header)
	}
	if e := s.wantEvent("ready"); !strings.HasPrefix(e["id"], "c1.") {
		t.Errorf("ready is %v", e)
	}
	first, second := s.event(), s.event()
	if first["data"] != `{"topic":"orders","partition":0,"offset":0,"timestamp":1000,"value":"a"}` || first["event"] != "" {
		t.Errorf("got %v", first)
	}
	if !strings.Contains(second["data"], "\"value\":{\"b\":\n  2}") {
		t.Errorf("the lines of the value are %q", second["data"])
	}
	s.wantEvent("caught_up")
	w.produceValues("3")
	if e := s.event(); !strings.Contains(e["data"], `"offset":2`) {
		t.Errorf("got %v", e)
	}
	// The id of a message resumes behind it, in the header and in the query; the header wins.
	for _, resumed := range []*stream{
		w.stream("/v1/topics/orders/events?from=latest", "Last-Event-ID", first["id"]),
		w.stream("/v1/topics/orders/events?from=latest&last_event_id=" + first["id"]),
		w.stream("/v1/topics/orders/events?cursor="+second["id"], "Last-Event-ID", first["id"]),
	} {
		resumed.wantEvent("ready")
		if e := resumed.event(); !strings.Contains(e["data"], `"offset":1`) {
			t.Errorf("resumed at %v", e)
		}
	}
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":2}]}`).want(t, 200)
	s = w.stream("/v1/topics/orders/events", "Last-Event-ID", first["id"])
	s.wantEvent("ready")
	if e := s.wantEvent("gap"); e["data"] != `{"topic":"orders","partition":0,"from":1,"to":2,"reason":"retention"}` || e["id"] == "" {
		t.Errorf("got %v", e)
	}
	if e := s.event(); !strings.Contains(e["data"], `"offset":2`) {
		t.Errorf("after the gap: %v", e)
	}
	s.wantEvent("caught_up")
	w.send("PATCH", "/v1/topics/orders", `{"partitions":2}`, "Content-Type", "application/json").want(t, 200)
	w.produceValues("4") // the fake node rings for records alone
	if e := s.wantEvent("partitions"); e["data"] != `{"topic":"orders","count":2,"added":[1]}` {
		t.Errorf("got %v", e)
	}
	s.event()
	w.send("DELETE", "/v1/topics/orders", "").want(t, 204)
	if e := s.wantEvent("error"); !strings.Contains(e["data"], `"code":"topic_not_found"`) || !strings.Contains(e["data"], `topic \"orders\" was deleted`) {
		t.Errorf("got %v", e)
	}
	if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
		t.Errorf("after the error come %q, %v", rest, err)
	}
}

func TestEventForms(t *testing.T) {
	w := start(t)
	w.json("/v1/topics/orders/records", `{"records":[
		{"value":{"n":1},"headers":{"type":"made"}},
		{"value":"two\r\nlines","value_encoding":"string","headers":{"type":"bad\nname"}},
		{"value":null},
		{"value":"","value_encoding":"string"},
		{"value":"/wA=","value_encoding":"base64"}]}`).want(t, 200)
	w.json("/v1/topics/bills/records", `{"records":[{"value":7}]}`).want(t, 200)
	s := w.stream("/v1/topics/orders/events?data=value&event=type")
	s.wantEvent("ready")
	for i, want := range []string{`made|{"n":1}`, "|two\nlines", "|null", "|", "|/wA="} {
		e := s.event()
		if got := e["event"] + "|" + e["data"]; got != want {
			t.Errorf("event %d is %q, want %q", i, got, want)
		}
	}
	s = w.stream("/v1/topics/orders/events?data=value&value_format=string")
	s.wantEvent("ready")
	if e := s.event(); e["data"] != `"{\"n\":1}"` {
		t.Errorf("as a string: %v", e)
	}
	several := w.stream("/v1/events?topic=orders&topic=bills&data=value&from=-1")
	several.wantEvent("ready")
	got := several.event()["data"] + several.event()["data"]
	if got != "/wA=7" && got != "7/wA=" {
		t.Errorf("the last of both topics are %q", got)
	}
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/v1/events", 422},
		{"/v1/events?topic=a%20b", 422},
		{"/v1/events?topic=orders&topic=ordrs", 404},
		{"/v1/events?topic=orders&topic=orders", 422},
		{"/v1/events?topic=orders&cursor=c1.x", 400},
		{"/v1/topics/orders/events?data=half", 422},
		{"/v1/topics/orders/events?value_format=xml", 422},
		{"/v1/topics/orders/events?from=yesterday", 422},
		{"/v1/topics/orders/events?cursor=c1.x", 400},
		{"/v1/topics/ordrs/events", 404},
	} {
		w.send("GET", c.path, "").want(t, c.status)
	}
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":2}]}`).want(t, 200)
	w.send("GET", "/v1/topics/orders/events?on_gap=error&cursor="+w.cursorAt(0), "").want(t, 416)
	w.send("GET", "/v1/events?topic=orders&on_gap=error&cursor="+w.cursorAt(0), "").want(t, 416)
	if r := w.send("HEAD", "/v1/topics/orders/events", ""); r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %+v", r)
	}
}

// With many partitions a cursor is long: one a flush is enough, and it covers all of it.
func TestEventsOfManyPartitions(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders","partitions":40}`).want(t, 201)
	for p := range 40 {
		w.json(fmt.Sprintf("/v1/topics/orders/partitions/%d/records", p), `{"records":[{"value":1}]}`).want(t, 200)
	}
	s := w.stream("/v1/topics/orders/events")
	s.wantEvent("ready")
	last, ids := "", 0
	for range 40 {
		e := s.event()
		if id := e["id"]; id != "" {
			last = id
			ids++
		}
	}
	if ids == 0 || ids > 10 {
		t.Fatalf("%d of 40 events have an id", ids)
	}
	s = w.stream("/v1/topics/orders/events", "Last-Event-ID", last)
	s.wantEvent("ready")
	s.wantEvent("caught_up") // nothing comes again
}

// withHub gives the server a hub of its own config.
func withHub(t testing.TB, change func(*session.Config)) func(*Config, *Deps) {
	return func(_ *Config, d *Deps) {
		cfg := session.DefaultConfig()
		change(&cfg)
		node := d.Node.(*fakeNode)
		hub, err := session.NewHub(cfg, session.Deps{Log: node, Producer: node, NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		d.Hub = hub
	}
}

func TestStreamsShowThatTheyLive(t *testing.T) {
	w := start(t, withHub(t, func(c *session.Config) { c.Heartbeat = 20 * time.Millisecond }))
	w.produceValues("0")
	s := w.stream("/v1/topics/orders/events?from=latest")
	s.wantEvent("ready")
	s.wantEvent("caught_up")
	if line := s.line(); line != ":" {
		t.Errorf("the heartbeat is %q", line)
	}
	lines := w.stream("/v1/topics/orders/records?from=latest&follow=true", "Accept", typeNDJSON)
	for range 3 {
		if line := lines.line(); line != "" {
			t.Errorf("the heartbeat is %q", line)
		}
	}
}

// Who goes away frees what the stream has held, though nothing is produced.
func TestClientsThatGoAwayAreNoticed(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	open := func(c *stream) context.CancelFunc {
		c.line()
		return c.cancel
	}
	end := []func(){
		open(w.stream("/v1/topics/orders/events")),
		open(w.stream("/v1/topics/orders/records?follow=true", "Accept", typeNDJSON)),
		func() { _ = w.socket("/v1/ws").Close() },
		func() { _ = w.socket("/v1/topics/orders/ws").Close() },
	}
	for _, f := range end {
		f()
	}
	until(t, func() bool { return w.server.deps.Hub.Live() == 0 && w.node.waiting() == 0 })
}

func TestFollow(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	s := w.stream("/v1/topics/orders/records?follow=true", "Accept", typeNDJSON)
	for i := range 20 {
		if line := s.line(); !strings.Contains(line, fmt.Sprintf(`"offset":%d,`, i)) {
			t.Fatalf("line %d is %s", i, line)
		}
		w.produceValues("1")
	}
	s.line() // the last of them
	w.send("PATCH", "/v1/topics/orders", `{"partitions":2}`, "Content-Type", "application/json").want(t, 200)
	w.produceValues("1") // the fake node rings for records alone
	if line := s.line(); line != `{"partitions":{"topic":"orders","count":2,"added":[1]}}` {
		t.Errorf("partitions are added with %s", line)
	}
	s.line()
	w.send("DELETE", "/v1/topics/orders", "").want(t, 204)
	// The name of the topic, and not the id by which the node knew it.
	if last := s.line(); !strings.HasPrefix(last, `{"error":{`) || !strings.Contains(last, `"cursor":"c1.`) || !strings.Contains(last, `topic \"orders\" was deleted`) {
		t.Errorf("the stream ends with %s", last)
	}
	if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
		t.Errorf("after the error come %q, %v", rest, err)
	}
}

// A client of HTTP/1.0 gets the stream without chunks.
func TestStreamsForOldClients(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/topics/orders/records?until=end HTTP/1.0\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	if strings.Contains(head, "chunked") || !strings.HasPrefix(body, `{"topic":"orders",`) || !strings.HasSuffix(body, "\"}\n") {
		t.Errorf("got %s\n\n%s", head, body)
	}
}

func TestUpgrades(t *testing.T) {
	w := start(t)
	w.produceValues("7")
	ask := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	with := func(name, value string) []string {
		headers := append([]string(nil), ask...)
		for i := 0; i < len(headers); i += 2 {
			if headers[i] == name {
				headers[i+1] = value
			}
		}
		return headers
	}
	r := w.send("GET", "/v1/ws", "").want(t, 426, `"code":"upgrade_required"`)
	if r.header.Get("Upgrade") != "websocket" || r.header.Get("Sec-WebSocket-Version") != "13" {
		t.Errorf("426 does not say to what: %v", r.header)
	}
	w.send("GET", "/v1/ws", "", with("Sec-WebSocket-Version", "8")...).want(t, 426)
	w.send("GET", "/v1/ws", "", with("Sec-WebSocket-Key", "short")...).want(t, 400)
	w.send("GET", "/v1/topics/orders/ws", "").want(t, 426)
	w.send("GET", "/v1/topics/ordrs/ws", "", ask...).want(t, 404)
	w.send("GET", "/v1/topics/orders/ws?from=never", "", ask...).want(t, 422)
	w.send("GET", "/v1/topics/orders/ws?cursor=c1.x", "", ask...).want(t, 400)
	w.send("GET", "/v1/ws", "", append(ask, "Origin", "http://evil.example")...).want(t, 403)

	c := w.socket("/v1/topics/orders/ws?from=-1&value_format=string")
	frame(t, c, "hello")
	frame(t, c, "ok")
	if m := frame(t, c, "records"); string(m["sub"]) != `"orders"` || !strings.Contains(string(m["records"]), `"value":"7"`) {
		t.Errorf("got %s", m)
	}
	for asked, got := range map[string]string{"": "", session.Subprotocol: session.Subprotocol, "chat": ""} {
		d := websocket.Dialer{}
		if asked != "" {
			d.Subprotocols = []string{asked, "other"}
		}
		c, resp, err := d.Dial("ws"+strings.TrimPrefix(w.url, "http")+"/v1/ws", http.Header{"Origin": {"http://localhost:3000"}})
		if err != nil {
			t.Fatal(err)
		}
		frame(t, c, "hello")
		if c.Subprotocol() != got || resp.StatusCode != 101 {
			t.Errorf("asked for %q, got %q, status %d", asked, c.Subprotocol(), resp.StatusCode)
		}
		contract().check(t, resp.Request, resp, nil)
		_ = c.Close()
	}
	resp := w.handshakeOnly("/v1/topics/orders/ws", ask)
	contract().check(t, resp.Request, resp, nil)
}

// handshakeOnly upgrades with plain HTTP, so that the answer can be looked at.
func (w *world) handshakeOnly(path string, headers []string) *http.Response {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	req, err := http.NewRequest("GET", w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if err := req.Write(c); err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

func TestStreamsAreCapped(t *testing.T) {
	w := start(t, withHub(t, func(c *session.Config) { c.MaxConnections = 2 }))
	w.produceValues("0")
	w.stream("/v1/topics/orders/events").line()
	frame(t, w.socket("/v1/ws"), "hello")
	w.send("GET", "/v1/topics/orders/events", "").want(t, 503, `"code":"overloaded"`, `"retryable":true`)
	w.send("GET", "/v1/ws", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==").want(t, 503)
	w.send("GET", "/v1/topics/orders/records", "").want(t, 200) // a page is no stream
}

// Every stream gets its goodbye, and the server ends in bounded time, though some read nothing.
func TestADrainSaysGoodbyeToStreams(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	events := w.stream("/v1/topics/orders/events?from=latest")
	events.wantEvent("ready")
	lines := w.stream("/v1/topics/orders/records?follow=true", "Accept", typeNDJSON)
	lines.line()
	c := w.socket("/v1/ws")
	frame(t, c, "hello")
	stalled := w.socket("/v1/topics/orders/ws?from=earliest")
	frame(t, stalled, "hello")
	big := strings.Repeat(`"`+strings.Repeat("x", 100_000)+`",`, 100)
	w.json("/v1/topics/orders/records", `{"records":[{"value":[`+big+`1]}]}`).want(t, 413) // larger than a record may be
	for range 30 {
		w.produceValues(`"` + strings.Repeat("x", 900_000) + `"`)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e := events.event()
		for e["event"] != "closing" {
			e = events.event()
		}
		if !strings.Contains(e["data"], `"code":4001,"reconnect_after_ms":`) || e["retry"] == "" {
			t.Errorf("the goodbye over SSE is %v", e)
		}
		last := ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			last = line
		}
		if !strings.HasPrefix(last, `{"error":{`) || !strings.Contains(last, `"code":"stopping"`) || !strings.Contains(last, `"cursor":"c1.`) {
			t.Errorf("the goodbye over NDJSON is %.200q", last)
		}
		m := frame(t, c, "closing")
		if string(m["code"]) != "4001" {
			t.Errorf("the goodbye over WebSocket is %s", m)
		}
		_, _, err := c.ReadMessage()
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != 4001 {
			t.Errorf("the WebSocket ends with %v", err)
		}
	}()
	begun := time.Now()
	w.end()
	<-done
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the drain took %v", took)
	}
}

// What was produced comes back with its own bytes, on every transport.
func TestExactBytesOnEveryTransport(t *testing.T) {
	w := start(t)
	long := strings.Repeat("0123456789abcdef", 1<<20/16-4)
	var headers []string
	for i := range 200 {
		headers = append(headers, fmt.Sprintf(`{"name":"h%d","value":"v%d"}`, i%50, i))
	}
	all := "[" + strings.Join(headers, ",") + "]"
	for _, c := range []struct{ name, record, want, lines string }{
		{"a decimal", `{"value":12.50}`, `"value":12.50`, ""},
		{"a large integer", `{"value":9223372036854775808}`, `"value":9223372036854775808`, ""},
		{"an emoji", `{"key":"🦫","value":"🦫"}`, `"key":"🦫","value":"🦫"`, ""},
		{"escapes", `{"value":"\ud83e\uddab\u0000\/"}`, `"value":"\ud83e\uddab\u0000\/"`, ""},
		{"a NUL in text", `{"value":"AGEA","value_encoding":"base64"}`, `"value":"\u0000a\u0000","value_encoding":"string"`, ""},
		{"bytes", `{"value":"/wA=","value_encoding":"base64"}`, `"value":"/wA=","value_encoding":"base64"`, ""},
		{"a tombstone", `{"key":"k","value":null}`, `"key":"k","value":null`, ""},
		{"the text null", `{"value":"null","value_encoding":"string"}`, `"value":"null","value_encoding":"string"`, ""},
		{"an empty value", `{"value":"","value_encoding":"string"}`, `"value":"","value_encoding":"string"`, ""},
		{"an empty key", `{"key":"","value":1}`, `"key":"","value":1`, ""},
		{"pretty JSON", "{\"value\":{\n\t\"a\": [1,\r\n 2]\n}}", "\"value\":{\n\t\"a\": [1,\r\n 2]\n}", "\"value\":{ \t\"a\": [1,   2] }"},
		{"200 headers", `{"value":1,"headers":` + all + `}`, `"headers":` + all, ""},
		{"a megabyte", `{"value":"` + long + `","value_encoding":"string"}`, `"value":"` + long + `","value_encoding":"string"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.json("/v1/topics/exact/records", `{"records":[`+c.record+`]}`).want(t, 200)
			onLines := c.lines
			if onLines == "" {
				onLines = c.want
			}
			w.send("GET", "/v1/topics/exact/partitions/0/records?offset=-1", "").want(t, 200, c.want)
			w.send("GET", "/v1/topics/exact/records?from=-1", "").want(t, 200, c.want)
			w.send("GET", "/v1/topics/exact/records?from=-1", "", "Accept", typeNDJSON).want(t, 200, onLines)
			w.send("GET", "/v1/topics/exact/records?from=-1&until=end", "", "Accept", typeNDJSON).want(t, 200, onLines)
			s := w.stream("/v1/topics/exact/events?from=-1")
			s.wantEvent("ready")
			if e := s.event(); !strings.Contains(e["data"], strings.ReplaceAll(c.want, "\r\n", "\n")) {
				t.Errorf("over SSE: %.300q", e["data"])
			}
			s.cancel()
			ws := w.socket("/v1/topics/exact/ws?from=-1")
			frame(t, ws, "hello")
			frame(t, ws, "ok")
			if m := frame(t, ws, "records"); !strings.Contains(string(m["records"]), c.want) {
				t.Errorf("over WebSocket: %.300q", m["records"])
			}
			_ = ws.Close()
		})
	}
}

// A reader that stops reading holds no more than its window, slows nobody, and goes on without a loss.
func TestAStalledReaderHoldsItsWindowOnly(t *testing.T) {
	// On a busy machine the test may take longer than a stalled reader is given.
	w := start(t, withHub(t, func(c *session.Config) { c.WriteTimeout, c.PingEvery = time.Hour, time.Hour }))
	w.produceValues("0")
	const stalled, records, size = 4, 20, 500_000
	var sockets []*websocket.Conn
	for range stalled {
		c := w.socket("/v1/topics/orders/ws?from=latest")
		frame(t, c, "hello")
		sockets = append(sockets, c)
	}
	healthy := w.socket("/v1/topics/orders/ws?from=latest")
	for _, op := range []string{"hello", "ok", "caught_up"} {
		frame(t, healthy, op)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	value := `"` + strings.Repeat("x", size) + `"`
	for i := range records {
		w.produceValues(value)
		if m := frame(t, healthy, "records"); !strings.Contains(string(m["records"]), fmt.Sprintf(`"offset":%d,`, i+1)) {
			t.Fatalf("the healthy reader got %.100s", m["records"])
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The records themselves are in this process too, in the fake node, and so are shared encodings.
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc) - 3*records*size
	if most := int64(stalled * 2 * (size + 512<<10)); held > most {
		t.Errorf("%d stalled readers hold %d kB, more than %d kB", stalled, held>>10, most>>10)
	}
	for i, c := range sockets {
		frame(t, c, "ok")
		frame(t, c, "caught_up")
		next := 1
		for next <= records {
			var list []struct{ Offset int }
			if err := json.Unmarshal(frame(t, c, "records")["records"], &list); err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				if r.Offset != next {
					t.Fatalf("stalled reader %d got offset %d, want %d", i, r.Offset, next)
				}
				next++
			}
		}
	}
}
