package session_test

import (
	"bytes"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/weirlog/weir/gateway/session"
)

// lateReturn is a connection whose writes of a ping return long after the bytes have left, as they do for a
// goroutine that the scheduler lets wait.
type lateReturn struct{ net.Conn }

func (c lateReturn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.HasSuffix(b, []byte{0x89, 0}) {
		time.Sleep(time.Second)
	}
	return n, err
}

// A pong may come before the write of its ping has returned. It counts: the client is alive.
func TestPongBeforeTheWriteReturns(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *fakeLog, h *session.Hub) {
		near, far := net.Pipe()
		c := connect(t, near, func(head http.Header) {
			h.WebSocket(lateReturn{far}, session.WebSocket{Request: head})
		})
		c.next("hello")
		begun := time.Now()
		pings := 0
		c.conn.SetPingHandler(func(payload string) error {
			if pings++; pings > 3 {
				return nil // dead from now on
			}
			return c.conn.WriteControl(websocket.PongMessage, []byte(payload), time.Now().Add(time.Second))
		})
		c.closed()
		if pings != 4 {
			t.Errorf("cut after %v, %d pings were sent, want 4 of which 3 are answered", time.Since(begun), pings)
		}
		closeBoth(c)
		synctest.Wait()
		if h.Live() != 0 {
			t.Error("the session goes on after it was cut")
		}
	})
}
