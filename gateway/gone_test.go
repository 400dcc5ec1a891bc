//go:build unix

package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// longReads are requests that wait for a minute where there is nothing to read.
var longReads = []string{
	"GET /v1/topics/orders/partitions/0/records?offset=latest&wait_ms=%d HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics/orders/records?from=latest&wait_ms=%d HTTP/1.1\r\nHost: localhost\r\n\r\n",
}

// A read that waits for records ends soon after its client has gone, and not at the end of its wait.
func TestAReaderThatHangsUpIsNotWaitedFor(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	for _, request := range longReads {
		for name, leave := range map[string]func(*net.TCPConn) error{
			"closed":      (*net.TCPConn).Close,
			"reset":       func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
			"half closed": (*net.TCPConn).CloseWrite,
		} {
			c := w.ask(request, 60_000)
			until(t, func() bool { return w.server.inFlight.Load() == 1 })
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			t.Log(name)
			until(t, func() bool { return w.server.inFlight.Load() == 0 }) // much sooner than in a minute
		}
	}
}

// Who has sent its next request already is there.
func TestAReaderWhoseNextRequestWaitsIsNotGone(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	const wait = 2*lookAfter + 200*time.Millisecond
	for _, request := range longReads {
		begun := time.Now()
		c := w.ask(request, wait.Milliseconds())
		until(t, func() bool { return w.server.inFlight.Load() == 1 })
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(c)
		for i := range 2 {
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("answer %d: %v, %v", i, resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if took := time.Since(begun); i == 0 && took < wait {
				t.Errorf("answered after %v, before the wait was over", took)
			}
		}
	}
}

// So does a poll, and it renews no session: the group learns that its member may be gone.
func TestAPollerThatHangsUpIsNotWaitedFor(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 0)
	c := w.ask("%s", post(worker+"/poll", typeJSON, `{"topics":["orders"],"wait_ms":60000}`))
	until(t, func() bool { return w.groups.waiting("billing", "w") })
	_ = c.Close()
	until(t, func() bool { all, gone := w.groups.ends(); return all == 1 && gone == 1 })
}
