package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnswersOfAllSizes: an answer is whole whatever its size, on a connection where one request follows
// the other without waiting, and a HEAD does not upset the answer behind it.
func TestAnswersOfAllSizes(t *testing.T) {
	w := start(t)
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	counts := []int{3000, 10_000, 1}
	for n := 40; n < 130; n++ { // answers from below the engine's buffer to twice its size
		counts = append(counts, n)
	}
	const head = "HEAD /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
	go func() {
		for _, n := range counts {
			body := `{"records":[` + strings.Repeat(`{"value":1},`, n-1) + `{"value":1}]}`
			post := fmt.Sprintf("POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if _, err := io.WriteString(c, post+post+head); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	r := bufio.NewReader(c)
	for _, n := range counts {
		for range 2 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%d records: %v", n, err)
			}
			var got struct {
				Stored  int
				Results []json.RawMessage
			}
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Stored != n || len(got.Results) != n {
				t.Fatalf("%d records: status %d, %d stored, %d results, %v", n, resp.StatusCode, got.Stored, len(got.Results), err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodHead})
		if err != nil || resp.StatusCode != http.StatusOK || resp.ContentLength < writeBuffer {
			t.Fatalf("HEAD behind %d records: %v, %v", n, resp, err)
		}
	}
}

// TestJoinedWrites: a piece that another one surely follows waits for it.
func TestJoinedWrites(t *testing.T) {
	for _, size := range []int{1, mostJoined, mostJoined + 1, 3 * writePiece} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c := &conn{TCPConn: server.(*net.TCPConn), patience: time.Minute}
		got := make(chan string, 1)
		go func() {
			b, err := io.ReadAll(client)
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
		}()
		first, second := strings.Repeat("a", writeBuffer), strings.Repeat("b", size)
		c.more = true
		if n, err := io.WriteString(c, first); n != len(first) || err != nil || c.held == nil {
			t.Fatalf("the first of two: %d, %v, held %v", n, err, c.held)
		}
		for _, piece := range []string{second, "c"} {
			if n, err := io.WriteString(c, piece); n != len(piece) || err != nil || c.held != nil {
				t.Fatalf("%d bytes behind it: %d, %v, held %v", len(piece), n, err, c.held)
			}
		}
		for _, one := range []io.Closer{server, l} {
			if err := one.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if b := <-got; b != first+second+"c" {
			t.Errorf("%d bytes came of %d", len(b), len(first)+len(second)+1)
		}
		// On a broken connection the pieces are not said to be written.
		c.more = true
		if n, err := io.WriteString(c, first); n != len(first) || err != nil {
			t.Fatal(n, err) // nobody has tried yet
		}
		if n, err := io.WriteString(c, second); n != 0 || err == nil {
			t.Errorf("wrote %d bytes to a closed connection, err %v", n, err)
		}
		_ = client.Close()
	}
}
