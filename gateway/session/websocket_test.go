package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
)

// client is the other end of a WebSocket, over a pipe in memory.
type client struct {
	t    testing.TB
	conn *websocket.Conn
	raw  net.Conn
}

func handshake() http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
}

// dial connects a client to a hub, as the gateway does after it has read the request.
func dial(t testing.TB, h *session.Hub, ws session.WebSocket) *client {
	t.Helper()
	near, far := net.Pipe()
	return connect(t, near, func(h2 http.Header) { ws.Request = h2; h.WebSocket(far, ws) })
}

func connect(t testing.TB, near net.Conn, serve func(http.Header)) *client {
	t.Helper()
	// The request goes nowhere: the server's side begins with the answer to it.
	head := &headSwallower{Conn: near, serve: serve}
	dialer := websocket.Dialer{ReadBufferSize: 1024, WriteBufferSize: 1024, NetDial: func(string, string) (net.Conn, error) { return head, nil }}
	c, _, err := dialer.Dial("ws://weir/v1/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	cl := &client{t: t, conn: c, raw: near}
	t.Cleanup(func() { _ = near.Close() })
	return cl
}

// headSwallower takes the handshake's request off what a client writes, and starts the server's side with it.
type headSwallower struct {
	net.Conn
	serve func(http.Header)
	begun bool
}

func (s *headSwallower) Write(b []byte) (int, error) {
	if s.begun {
		return s.Conn.Write(b)
	}
	s.begun = true
	header := http.Header{}
	for line := range strings.SplitSeq(string(b), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header.Add(name, value)
		}
	}
	s.serve(header)
	return len(b), nil
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if err := c.conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// message is any message of the server.
type message struct {
	Op, Sub, Cursor, Auth string
	ID                    json.RawMessage
	Records               []json.RawMessage
	Problem               struct {
		Code   string
		Status int
		Detail string
	}
	Results []struct {
		Status    int
		Partition int
		Offset    int64
		Error     struct{ Code string }
	}
	From, To int64
	Reason   string
	Count    int
	Code     int
	After    int64 `json:"reconnect_after_ms"`

	Member                     string
	Epoch                      int64
	Assignment, Added, Removed assigned
	Offsets                    []struct {
		Topic     string
		Partition int
		Next      int64 `json:"next_offset"`
		Reason    string
	}
	raw string
}

func (c *client) read() (message, error) {
	// In fake time an hour is short, and a test that waits in vain fails.
	if err := c.conn.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		return message{}, err
	}
	kind, b, err := c.conn.ReadMessage()
	var m message
	if err != nil {
		return m, err
	}
	if kind != websocket.TextMessage {
		return m, fmt.Errorf("a frame of kind %d", kind)
	}
	m.raw = string(b)
	checkContract(c.t, b)
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w", b, err)
	}
	return m, nil
}

// next is the next message, which has to have this op.
func (c *client) next(op string) message {
	c.t.Helper()
	m, err := c.read()
	if err != nil {
		c.t.Fatalf("waiting for %s: %v", op, err)
	}
	if m.Op != op {
		c.t.Fatalf("got %s, want %s", m.raw, op)
	}
	return m
}

// closed is the close code that the server ends with.
func (c *client) closed() int {
	c.t.Helper()
	for {
		_, err := c.read()
		var e *websocket.CloseError
		switch {
		case errors.As(err, &e):
			return e.Code
		case err != nil:
			c.t.Fatalf("the connection ended with %v, and not with a close frame", err)
		}
	}
}

// values are the values of n records.
func (c *client) values(n int) []string {
	c.t.Helper()
	var got []string
	for len(got) < n {
		for _, r := range c.next("records").Records {
			var m struct{ Value json.RawMessage }
			if err := json.Unmarshal(r, &m); err != nil {
				c.t.Fatal(err)
			}
			got = append(got, string(m.Value))
		}
	}
	return got
}

// bubble runs a test with a hub in fake time, and sees to it that nothing is left when the hub is drained.
func bubble(t *testing.T, change func(*session.Config), test func(t *testing.T, log *fakeLog, h *session.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog(t)
		log.create("orders", 1)
		h := newHub(t, log, change)
		test(t, log, h)
		h.Drain(t.Context())
		if h.Live() != 0 || log.listeners() != 0 {
			t.Errorf("%d sessions and %d bells are left after the drain", h.Live(), log.listeners())
		}
	})
}

func TestSubscribe(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		log.values("orders", 0, "12.50", `{ "a" : 1 }`)
		c := dial(t, h, session.WebSocket{})
		if m := c.next("hello"); m.Auth != "none" {
			t.Errorf("hello is %s", m.raw)
		}
		c.send(`{"id":7,"op":"subscribe","sub":"a","topic":"orders"}`)
		ok := c.next("ok")
		if string(ok.ID) != "7" || ok.Sub != "a" || !strings.HasPrefix(ok.Cursor, "c1.") {
			t.Errorf("ok is %s", ok.raw)
		}
		records := c.next("records")
		if want := `{"topic":"orders","partition":0,"offset":0,"timestamp":0,"value":12.50}`; string(records.Records[0]) != want {
			t.Errorf("got %s, want %s", records.Records[0], want)
		}
		if !bytes.Contains(records.Records[1], []byte(`"value":{ "a" : 1 }`)) {
			t.Errorf("the bytes of the value have changed: %s", records.Records[1])
		}
		c.next("caught_up")
		log.values("orders", 0, "3")
		if got := c.values(1); got[0] != "3" {
			t.Errorf("got %v", got)
		}
		// Another connection goes on behind the first two.
		d := dial(t, h, session.WebSocket{})
		d.next("hello")
		d.send(`{"op":"subscribe","sub":"x","topic":"orders","from":{"cursor":%q}}`, records.Cursor)
		d.next("ok")
		if got := d.values(1); got[0] != "3" {
			t.Errorf("the cursor resumes at %v", got)
		}
		closeBoth(c, d)
	})
}

func closeBoth(clients ...*client) {
	for _, c := range clients {
		_ = c.raw.Close()
	}
	synctest.Wait()
}

func TestSubscribesAtOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		log.values("orders", 0, "1")
		r, err := h.Open(t.Context(), session.Spec{Topics: names("orders")})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, h, session.WebSocket{Reader: r, Sub: "orders"})
		c.next("hello")
		if m := c.next("ok"); m.Sub != "orders" || m.ID != nil {
			t.Errorf("ok is %s", m.raw)
		}
		c.values(1)
		closeBoth(c)
	})
}

func TestCredit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		for i := range 10 {
			log.values("orders", 0, fmt.Sprint(i))
		}
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","topic":"orders","credit":{"records":3}}`)
		c.next("ok")
		if got := c.values(3); got[2] != "2" {
			t.Errorf("got %v", got)
		}
		nothingComes(t, c, log)
		c.send(`{"op":"credit","sub":"a","records":2,"bytes":100}`)
		if got := c.values(2); got[1] != "4" {
			t.Errorf("got %v", got)
		}
		c.send(`{"op":"credit","sub":"a","records":100}`)
		if got := c.values(5); got[4] != "9" {
			t.Errorf("got %v", got)
		}
		c.next("caught_up")

		// One byte is enough for one record, and the debt has to be paid before the next.
		c.send(`{"op":"subscribe","sub":"b","topic":"orders","credit":{"bytes":1}}`)
		c.next("ok")
		first := c.next("records")
		if len(first.Records) != 1 {
			t.Errorf("one byte of credit brought %s", first.raw)
		}
		c.send(`{"op":"credit","sub":"b","bytes":10}`)
		nothingComes(t, c, log)
		c.send(`{"op":"credit","sub":"b","bytes":%d}`, len(first.Records[0]))
		if m := c.next("records"); len(m.Records) != 1 {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}

// nothingComes checks that the server has nothing to say: the answer to a ping is next.
func nothingComes(t *testing.T, c *client, log *fakeLog) {
	t.Helper()
	synctest.Wait()
	c.send(`{"id":"quiet","op":"ping"}`)
	if m := c.next("pong"); string(m.ID) != `"quiet"` {
		t.Errorf("got %s", m.raw)
	}
}

func TestPauseSeekUnsubscribe(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		log.values("orders", 0, "0", "1")
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","topic":"orders","from":"latest"}`)
		c.next("ok")
		c.next("caught_up")
		c.send(`{"op":"pause","sub":"a"}`)
		c.next("ok")
		log.values("orders", 0, "2")
		nothingComes(t, c, log)
		c.send(`{"id":1,"op":"resume","sub":"a"}`)
		c.next("ok")
		if got := c.values(1); got[0] != "2" {
			t.Errorf("got %v", got)
		}
		c.next("caught_up")
		for _, s := range []struct {
			to   string
			want string
		}{{`"earliest"`, "0"}, {`{"offsets":{"0":1}}`, "1"}, {`"-1"`, "2"}, {`{"timestamp":0}`, "0"}, {`{"timestamp":"1970-01-01T00:00:00Z"}`, "0"}, {`"ts:1970-01-01T00:00:00Z"`, "0"}} {
			c.send(`{"op":"seek","sub":"a","to":%s}`, s.to)
			c.next("ok")
			var got []string
			for {
				m, err := c.read()
				if err != nil {
					t.Fatal(err)
				}
				if m.Op == "caught_up" {
					break
				}
				for range m.Records {
					got = append(got, m.raw)
				}
			}
			if len(got) == 0 || !strings.Contains(got[0], `"value":`+s.want) {
				t.Errorf("after a seek to %s: %v", s.to, got)
			}
		}
		c.send(`{"op":"unsubscribe","sub":"a"}`)
		c.next("ok")
		log.values("orders", 0, "3")
		nothingComes(t, c, log)
		if n := log.listeners(); n != 0 {
			t.Errorf("%d bells hang in the log after unsubscribe", n)
		}
		closeBoth(c)
	})
}

func TestTopicIsDeleted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","topic":"orders"}`)
		c.next("ok")
		c.next("caught_up")
		log.remove("orders")
		if m := c.next("error"); m.Sub != "a" || m.Problem.Code != "topic_not_found" || m.Problem.Status != 404 || !strings.Contains(m.raw, `topic \"orders\" was deleted`) {
			t.Errorf("got %s", m.raw)
		}
		nothingComes(t, c, log)
		closeBoth(c)
	})
}

func TestWebSocketProduces(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		for i := range 20 { // in the order of the frames
			c.send(`{"id":%d,"op":"produce","topic":"orders","records":[{"value":%d}]}`, i, i)
			if m := c.next("produced"); string(m.ID) != fmt.Sprint(i) || m.Results[0].Offset != int64(i) || m.Results[0].Status != 200 {
				t.Errorf("got %s", m.raw)
			}
		}
		c.send(`{"id":"p","op":"produce","topic":"orders","records":[{"value":1},{"partition":9,"value":2}]}`)
		if m := c.next("produced"); m.Results[0].Status != 200 || m.Results[1].Status != 404 || m.Results[1].Error.Code != "partition_not_found" {
			t.Errorf("got %s", m.raw)
		}
		for frame, code := range map[string]string{
			`{"id":1,"op":"produce","topic":"nowhere","records":[{"value":1}]}`:                               "topic_not_found",
			`{"id":1,"op":"produce","topic":"orders"}`:                                                        "validation_failed",
			`{"id":1,"op":"produce","topic":"orders","records":[]}`:                                           "validation_failed",
			`{"id":1,"op":"produce","topic":"orders","records":[{"key":"k"}]}`:                                "validation_failed",
			`{"id":1,"op":"produce","topic":"orders","records":[{"value":1}],"acks":"some"}`:                  "validation_failed",
			`{"id":1,"op":"produce","topic":"orders","records":[{"value":1}],"timeout_ms":0}`:                 "validation_failed",
			`{"id":1,"op":"produce","topic":"orders","records":[{"value":1}],"idempotency_key":"with space"}`: "validation_failed",
			`{"id":1,"op":"produce","topic":"a b","records":[{"value":1}]}`:                                   "validation_failed",
		} {
			c.send("%s", frame)
			if m := c.next("error"); m.Problem.Code != code || string(m.ID) != "1" {
				t.Errorf("%s: got %s, want %s", frame, m.raw, code)
			}
		}
		log.setTrouble(fault.Newf("fake", fault.Timeout, nil, "too slow"))
		c.send(`{"id":1,"op":"produce","topic":"orders","records":[{"value":1}]}`)
		if m := c.next("error"); m.Problem.Status != 504 || !strings.Contains(m.Problem.Detail, "unknown") {
			t.Errorf("a timeout says %s", m.raw)
		}
		closeBoth(c)
	})
}

// Frames that wait to be stored are bounded: the server stops reading, and forgets none.
func TestProducingIsBounded(t *testing.T) {
	const most, frames = 4, 30
	bubble(t, func(c *session.Config) { c.MaxProducing = most }, func(t *testing.T, log *fakeLog, h *session.Hub) {
		log.hold = make(chan struct{})
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		var sent atomic.Int64
		go func() {
			for i := range frames {
				if err := c.conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"id":%d,"op":"produce","topic":"orders","records":[{"value":%d}]}`, i, i)); err != nil {
					return // the connection has ended; the test says why
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		// One is being stored, most wait, one waits for its place, and one may be on its way.
		if n := sent.Load(); n < most || n > most+3 {
			t.Errorf("the server took %d frames while none could be stored, the bound is %d", n, most)
		}
		close(log.hold)
		for i := range frames {
			if m := c.next("produced"); string(m.ID) != fmt.Sprint(i) || m.Results[0].Offset != int64(i) {
				t.Errorf("answer %d is %s", i, m.raw)
			}
		}
		closeBoth(c)
	})
	// A client that goes away while its frames are being stored leaves nothing behind.
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		log.hold = make(chan struct{})
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"produce","topic":"orders","records":[{"value":1}]}`)
		c.send(`{"op":"produce","topic":"orders","records":[{"value":2}]}`)
		synctest.Wait() // the first is at the node, which holds it
		closeBoth(c)
		time.Sleep(11 * time.Second) // the call's own limit
		synctest.Wait()
		if h.Live() != 0 || log.producing != 1 {
			t.Errorf("%d sessions are left, and %d frames reached the node", h.Live(), log.producing)
		}
	})
}

// What cannot be done is an error, and the connection stays.
func TestOpsThatAreRefused(t *testing.T) {
	bubble(t, func(c *session.Config) { c.MaxSubscriptions = 2 }, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		for _, frame := range []string{
			`{"id":1,"op":"subscribe","sub":"a","topic":"orders","from":"latest"}`,
			`{"id":1,"op":"subscribe","sub":"b","topic":"orders","from":"latest"}`,
		} {
			c.send("%s", frame)
			c.next("ok")
			c.next("caught_up")
		}
		for _, s := range []struct{ frame, code string }{
			{`{}`, "bad_request"},
			{`{"id":1,"op":"fly"}`, "bad_request"},
			{`{"id":1,"op":5}`, "validation_failed"},
			{`{"id":{},"op":"ping"}`, "validation_failed"},
			{`{"id":"` + strings.Repeat("x", 80) + `","op":"ping"}`, "validation_failed"},
			{`{"id":1,"op":"auth","token":"x"}`, "bad_request"},
			{`{"op":"subscribe","topic":"orders"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"a","topic":"orders"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders"}`, "limit_exceeded"},
			{`{"op":"seek","sub":"a"}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":"yesterday"}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"timestamp":1,"cursor":"c1."}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"timestamp":-1}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"timestamp":"yesterday"}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"timestamp":{}}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"offsets":{"x":1}}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"offsets":{"00":1}}}`, "validation_failed"},
			{`{"op":"seek","sub":"a","to":{"cursor":"c1.!"}}`, "invalid_cursor"},
			{`{"op":"pause","sub":"z"}`, "not_found"},
			{`{"op":"credit","sub":"a","records":-1}`, "validation_failed"},
			{`{"op":"credit","sub":"a","records":1.5}`, "validation_failed"},
			{`{"op":"unsubscribe","sub":"` + strings.Repeat("s", 65) + `"}`, "validation_failed"},
		} {
			c.send("%s", s.frame)
			if m := c.next("error"); m.Problem.Code != s.code {
				t.Errorf("%s: got %s, want %s", s.frame, m.raw, s.code)
			}
		}
		c.send(`{"op":"unsubscribe","sub":"b"}`)
		c.next("ok")
		for _, s := range []struct{ frame, code string }{
			{`{"op":"subscribe","sub":"c","topic":"ordrs"}`, "topic_not_found"},
			{`{"op":"subscribe","sub":"c"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","partitions":[]}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","partitions":[7]}`, "partition_not_found"},
			{`{"op":"subscribe","sub":"c","topic":"orders","partitions":"0"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","on_gap":"jump"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","value_format":"xml"}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","credit":5}`, "validation_failed"},
			{`{"op":"subscribe","sub":"c","topic":"orders","from":{"offsets":{"0":99}},"on_gap":"error"}`, "offset_out_of_range"},
		} {
			c.send("%s", s.frame)
			if m := c.next("error"); m.Problem.Code != s.code {
				t.Errorf("%s: got %s, want %s", s.frame, m.raw, s.code)
			}
		}
		closeBoth(c)
	})
}

// Frames that are no frame end the connection with a code and a reason.
func TestBadFrames(t *testing.T) {
	for name, s := range map[string]struct {
		kind int
		data string
		code int
	}{
		"not JSON":         {websocket.TextMessage, `{"op":`, 4500},
		"no object":        {websocket.TextMessage, `[1]`, 4500},
		"empty":            {websocket.TextMessage, ``, 4500},
		"two objects":      {websocket.TextMessage, `{"op":"ping"} {}`, 4500},
		"duplicate member": {websocket.TextMessage, `{"op":"ping","op":"ping"}`, 4500},
		"broken UTF-8":     {websocket.TextMessage, "{\"op\":\"\xff\"}", 4500},
		"lone surrogate":   {websocket.TextMessage, `{"op":"\ud800"}`, 4500},
		"binary":           {websocket.BinaryMessage, `{"op":"ping"}`, 4500},
		"deep":             {websocket.TextMessage, `{"x":` + strings.Repeat("[", 50_000), 4500},
		"too big":          {websocket.TextMessage, `{"op":"ping","x":"` + strings.Repeat("y", 100<<10) + `"}`, 4505},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *session.Config) { c.MaxFrameBytes = 64 << 10 }, func(t *testing.T, log *fakeLog, h *session.Hub) {
				c := dial(t, h, session.WebSocket{})
				c.next("hello")
				go func() { _ = c.conn.WriteMessage(s.kind, []byte(s.data)) }() // the server may stop reading in the middle
				if code := c.closed(); code != s.code {
					t.Errorf("closed with %d, want %d", code, s.code)
				}
				closeBoth(c)
			})
		})
	}
}

// Bytes that are no WebSocket frame at all.
func TestBadFraming(t *testing.T) {
	for name, raw := range map[string]string{
		"not masked":          "\x81\x02{}",
		"unknown op":          "\x83\x80\x00\x00\x00\x00",
		"compressed":          "\xc1\x80\x00\x00\x00\x00",
		"long control frame":  "\x89\xfe\x00\x80\x00\x00\x00\x00",
		"continues nothing":   "\x80\x80\x00\x00\x00\x00",
		"enormous":            "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
		"negative":            "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
		"close code not ours": "\x88\x82\x00\x00\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
				c := dial(t, h, session.WebSocket{})
				c.next("hello")
				if _, err := c.raw.Write([]byte(raw)); err != nil {
					t.Fatal(err)
				}
				if name == "enormous" { // nothing is wrong with it until bytes come: the time for them is bounded
					_ = c.raw.Close()
					synctest.Wait()
					return
				}
				if code := c.closed(); code/100 != 45 {
					t.Errorf("closed with %d", code)
				}
				closeBoth(c)
			})
		})
	}
}

func TestClientCloses(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		if err := c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "bye"), time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if code := c.closed(); code != 1000 {
			t.Errorf("the close frame was answered with %d", code)
		}
		synctest.Wait()
		if h.Live() != 0 {
			t.Error("the session goes on after both close frames")
		}
	})
}

func TestPings(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		begun := time.Now()
		pings := 0
		c.conn.SetPingHandler(func(payload string) error {
			if pings++; pings > 3 {
				return nil // dead from now on
			}
			return c.conn.WriteControl(websocket.PongMessage, []byte(payload), time.Now().Add(time.Second))
		})
		if code := c.closed(); code != 4004 {
			t.Errorf("closed with %d, want 4004", code)
		}
		if lived := time.Since(begun); lived < 4*25*time.Second || lived > 4*25*time.Second+15*time.Second {
			t.Errorf("lived for %v with three answers to pings", lived)
		}
		closeBoth(c)
	})
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		got := make(chan string, 1)
		c.conn.SetPongHandler(func(payload string) error { got <- payload; return nil })
		if err := c.conn.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.read() }()
		if payload := <-got; payload != "are you there" {
			t.Errorf("the pong has %q", payload)
		}
		closeBoth(c)
	})
}

// A large frame on a slow line takes longer than a pong may, and no pong can come in the middle of it: its
// own bytes are the sign of life.
func TestALargeFrameOnASlowLine(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		const pieces, size = 30, 17 << 10
		head := binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, pieces*size)
		if _, err := c.raw.Write(append(head, 0, 0, 0, 0)); err != nil { // the mask changes nothing
			t.Fatal(err)
		}
		c.conn.SetPingHandler(func(string) error { return nil }) // the writer is in the middle of a frame
		answered := make(chan error, 1)
		go func() {
			for {
				switch m, err := c.read(); {
				case err != nil || m.Op == "pong":
					answered <- err
					return
				}
			}
		}()
		for i := range pieces {
			time.Sleep(5 * time.Second)
			piece := strings.Repeat(" ", size)
			if i == pieces-1 {
				const op = `{"op":"ping"}`
				piece = piece[len(op):] + op
			}
			if _, err := c.raw.Write([]byte(piece)); err != nil {
				t.Fatalf("cut after %d pieces: %v, %v", i, err, <-answered)
			}
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		closeBoth(c)
	})
}

// A client that reads nothing is cut after 30 s without a byte, and its session holds nothing meanwhile.
func TestStalledClientIsCut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		for i := range 100 {
			log.values("orders", 0, fmt.Sprintf("%q", strings.Repeat("x", 1000)), fmt.Sprint(i))
		}
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","topic":"orders"}`)
		begun := time.Now()
		// Take a byte now and then: that is slow, and not stalled.
		one := make([]byte, 1)
		for range 5 {
			time.Sleep(25 * time.Second)
			if _, err := c.raw.Read(one); err != nil {
				t.Fatalf("cut after %v though bytes were taken: %v", time.Since(begun), err)
			}
		}
		last := time.Now()
		for h.Live() > 0 {
			time.Sleep(time.Second)
		}
		if waited := time.Since(last); waited < 30*time.Second || waited > 40*time.Second {
			t.Errorf("cut after %v without a byte", waited)
		}
	})
}

// A frame that stays half sent does not hold its memory for ever.
func TestHalfAFrame(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		w, err := c.conn.NextWriter(websocket.TextMessage)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, strings.Repeat(" ", 5000)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		go func() { // answers pings, as a client that is alive
			for {
				if _, err := c.read(); err != nil {
					return
				}
			}
		}()
		for h.Live() > 0 && time.Since(begun) < 10*time.Minute {
			time.Sleep(time.Second)
		}
		if lived := time.Since(begun); lived > time.Minute {
			t.Errorf("the connection lives on for %v with half a frame", lived)
		}
		closeBoth(c)
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog(t)
		log.create("orders", 1)
		h := newHub(t, log, nil)
		clients := make([]*client, 20)
		for i := range clients {
			clients[i] = dial(t, h, session.WebSocket{})
			clients[i].next("hello")
			clients[i].send(`{"op":"subscribe","sub":"a","topic":"orders"}`)
			clients[i].next("ok")
			clients[i].next("caught_up")
		}
		stalled := dial(t, h, session.WebSocket{})
		stalled.next("hello")
		stalled.send(`{"op":"ping"}`) // is answered, and the answer is not read

		after := map[int64]bool{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, c := range clients {
				m := c.next("closing")
				if m.Code != 4001 || m.After <= 0 {
					t.Errorf("got %s", m.raw)
				}
				after[m.After] = true
				if code := c.closed(); code != 4001 {
					t.Errorf("closed with %d, want 4001", code)
				}
			}
		}()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		h.Drain(ctx)
		<-done
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the drain took %v", took)
		}
		if len(after) < 5 {
			t.Errorf("20 clients are asked to come back after only %d different times", len(after))
		}
		if err := h.Room(); !fault.Is(err, fault.Stopping) {
			t.Errorf("after the drain there is room: %v", err)
		}
		late, far := net.Pipe()
		h.WebSocket(far, session.WebSocket{Request: handshake()})
		if _, err := late.Read(make([]byte, 1)); err == nil {
			t.Error("a session begins after the drain")
		}
	})
}

// What is wrong with a frame is said of the member that it has.
func TestAnErrorNamesTheMemberThatWasSent(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *fakeLog, h *session.Hub) {
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		for frame, want := range map[string]string{
			`"topics":[]`:               "topics must name at least one",
			`"from":"latest"`:           "topic is required, or topics",
			`"topics":["orders","a b"]`: `topics[1]: topic name "a b": `,
			`"topic":"a b"`:             `topic name "a b": `,
			`"topics":"orders"`:         "topics must be a list of strings",
		} {
			c.send(`{"op":"subscribe","sub":"a",%s}`, frame)
			if m := c.next("error"); m.Problem.Code != "validation_failed" || !strings.HasPrefix(m.Problem.Detail, want) {
				t.Errorf("%s: got %s", frame, m.raw)
			}
		}
		closeBoth(c)
	})
}
