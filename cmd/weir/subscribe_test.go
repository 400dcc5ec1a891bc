package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// dial opens a WebSocket on a node and reads its hello.
func dial(t testing.TB, base string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{HandshakeTimeout: 10 * time.Second, Subprotocols: []string{"weir.v1.json"}}
	conn, resp, err := dialer.Dial(strings.Replace(base, "http", "ws", 1)+"/v1/ws", nil)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	_ = resp.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	if hello := frame(t, conn); hello.Op != "hello" {
		t.Fatalf("the first frame is %+v", hello)
	}
	return conn
}

// wsFrame is what a node sends.
type wsFrame struct {
	ID      int
	Op      string
	Sub     string
	Cursor  string
	Code    int
	Records []json.RawMessage
	Results []struct {
		Status int
		Offset int64
	}
	Problem json.RawMessage
}

// frame reads the next one.
func frame(t testing.TB, conn *websocket.Conn) wsFrame {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var f wsFrame
	if err := conn.ReadJSON(&f); err != nil {
		t.Fatalf("read a frame: %v", err)
	}
	return f
}

func send(t testing.TB, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// stream is an open answer that has no end of its own.
type stream struct {
	status int
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// follow opens a stream. It ends with the test, or with the node.
func follow(t testing.TB, url string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return &stream{resp.StatusCode, lines, cancel}
}

// next is the next line that is not empty, or "" at the end.
func (s *stream) next() string {
	for s.lines.Scan() {
		if s.lines.Text() != "" {
			return s.lines.Text()
		}
	}
	return ""
}

// until reads lines up to one that begins with a text, and returns its rest.
func (s *stream) until(t testing.TB, begin string) string {
	t.Helper()
	for line := s.next(); line != ""; line = s.next() {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return rest
		}
	}
	t.Fatalf("the stream ended without %q: %v", begin, s.lines.Err())
	return ""
}
