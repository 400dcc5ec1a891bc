package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// conn is a connection with patience: a write that makes no progress ends, however long the answer is.
// One goroutine reads it and one writes it, as the engine does.
type conn struct {
	*net.TCPConn
	l        *listener
	address  netip.Addr
	patience time.Duration // the longest time that a client may take no byte
	call     deadline      // of the request that is served

	armed  time.Time // when the write deadline was last set; the writer's
	manual bool      // the write deadline is somebody else's: it is left alone; the writer's
	more   bool      // the next write is surely followed by another: they go out as one; the writer's
	held   *buffer   // what waits for that other one; nil: nothing; the writer's

	// idle is called, in the reader's goroutine, when a read found nothing for idleAfter, before it
	// waits on for up to idleMost. A streamed body uses it to store what it has. nil: reads just wait.
	idle     func()
	idleMost time.Duration
	halt     context.Context // with idle: ends a wait; whoever ends it sets the read deadline after that

	linger bool // read a little more before closing, so that the client sees the answer and not a reset
	once   sync.Once
}

// connOf is a request's connection; nil for one that did not come through the listener.
func connOf(ctx *fasthttp.RequestCtx) *conn {
	c, _ := ctx.Conn().(*conn)
	return c
}

const (
	idleAfter     = 10 * time.Millisecond // of silence before a stream counts as idle
	writePiece    = 256 << 10             // bytes that get a deadline of their own
	lingerMost    = 64 << 20
	lingerTimeout = 2 * time.Second
)

// Read waits for bytes; see idle.
func (c *conn) Read(p []byte) (int, error) {
	if c.idle == nil {
		return c.TCPConn.Read(p)
	}
	if err := c.SetReadDeadline(now().Add(idleAfter)); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	c.idle()
	if err := c.SetReadDeadline(now().Add(c.idleMost)); err != nil {
		return 0, err
	}
	if c.halt.Err() != nil {
		return 0, os.ErrDeadlineExceeded // the deadline that was to end this wait is overwritten
	}
	return c.TCPConn.Read(p)
}

// writeBuffer is what the engine collects of an answer before it writes. Every connection keeps one.
const writeBuffer = 4 << 10

// mostJoined is the longest piece that is copied behind another one to be written with it.
const mostJoined = 64 << 10

// joinWrites lets an answer that is longer than the engine's buffer leave in one write. The engine makes
// two of it, and a write is the most expensive part of a small answer: it wakes the client each time.
func joinWrites(ctx *fasthttp.RequestCtx) {
	resp := &ctx.Response
	status := resp.StatusCode()
	if ctx.IsHead() || resp.IsBodyStream() || ctx.Hijacked() || status == http.StatusNoContent || status == http.StatusNotModified {
		return
	}
	if c, ok := ctx.Conn().(*conn); ok && len(resp.Body()) >= writeBuffer {
		c.more = true // with the head it does not fit into the buffer
	}
}

// Write writes p, now or with the write that follows.
func (c *conn) Write(p []byte) (int, error) {
	more := c.more
	c.more = false
	switch {
	case c.held != nil: // also when more is to come: whoever sends request upon request holds one piece at most
		return c.writeHeld(p)
	case more:
		c.held = takeBuffer()
		c.held.b = append(c.held.b, p...)
		return len(p), nil
	default:
		return c.write(p)
	}
}

// writeHeld writes what is held, and p behind it.
func (c *conn) writeHeld(p []byte) (int, error) {
	held := c.held
	c.held = nil
	defer held.release()
	if len(p) > mostJoined {
		if _, err := c.write(held.b); err != nil {
			return 0, err
		}
		return c.write(p)
	}
	before := len(held.b)
	held.b = append(held.b, p...)
	n, err := c.write(held.b)
	return max(0, n-before), err
}

// write writes p in pieces, each with the whole patience.
func (c *conn) write(p []byte) (int, error) {
	if c.manual {
		return c.TCPConn.Write(p)
	}
	written := 0
	for {
		piece := p[written:min(len(p), written+writePiece)]
		// Not for every small answer: an eighth less of patience does no harm.
		if t := now(); t.Sub(c.armed) > c.patience/8 || len(p) > writePiece {
			if err := c.TCPConn.SetWriteDeadline(t.Add(c.patience)); err != nil {
				return written, err
			}
			c.armed = t
		}
		n, err := c.TCPConn.Write(piece)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// SetWriteDeadline hands the write deadline to the caller; the zero time hands it back.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.manual = !t.IsZero()
	c.armed = time.Time{}
	return c.TCPConn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	c.manual = !t.IsZero()
	c.armed = time.Time{}
	return c.TCPConn.SetDeadline(t)
}

// Close closes the connection; where asked to, after it has given the client the chance to read the answer.
func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		if c.linger {
			c.readOn()
		}
		err = c.TCPConn.Close()
		c.call.stop()
		c.l.drop(c)
	})
	return err
}

// readOn takes what a client that was refused still sends. A kernel answers unread bytes with a reset,
// which would destroy the answer on its way.
func (c *conn) readOn() {
	if c.CloseWrite() != nil || c.SetReadDeadline(now().Add(lingerTimeout)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, onlyReader{c.TCPConn}, lingerMost)
}

// onlyReader hides the other methods, so that a copy uses a buffer and not splice.
type onlyReader struct{ io.Reader }
