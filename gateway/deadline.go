package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// deadline is a context that ends at a time, or with its parent. It serves one call after the other, so
// that a time limit costs a request neither memory nor a timer: the timer of one call is left to ring, and
// then looks at the call of that moment.
type deadline struct {
	parent context.Context // of the call under way

	mu    sync.Mutex
	peer  *conn         // looked after during the call under way, which ends when it is gone; nil: none is
	gone  bool          // it is
	due   time.Time     // of the call under way; zero while there is none
	done  chan struct{} // closed when the call under way must end
	err   error         // why it is closed; nil while it is open
	timer *time.Timer
	rings time.Time // when the timer does; zero while it is not set
}

// deadlineOf is that of a request's connection, which serves one request at a time. A connection that did
// not come through the listener has none of its own: what such a request waits for ends in time, but does
// not hear of the drain.
func deadlineOf(ctx *fasthttp.RequestCtx) *deadline {
	if c, ok := ctx.Conn().(*conn); ok {
		return &c.call
	}
	return new(deadline)
}

// begin makes d the context of a call that may take a time. Whoever was given d before must have
// returned. The call ends with end.
func (d *deadline) begin(parent context.Context, limit time.Duration) context.Context {
	return d.beginWait(parent, limit, nil)
}

// lookAfter is how often a waiting call looks whether its client is still there.
const lookAfter = 500 * time.Millisecond

// beginWait is begin for a call that may wait long for a client: it ends soon after the client has gone.
func (d *deadline) beginWait(parent context.Context, limit time.Duration, peer *conn) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := now()
	d.parent, d.due, d.peer, d.gone = parent, begun.Add(limit), peer, false
	if d.done == nil || d.err != nil {
		d.done, d.err = make(chan struct{}), nil
	}
	if err := parent.Err(); err != nil {
		d.close(err)
	} else if limit <= 0 {
		d.close(context.DeadlineExceeded)
	} else {
		d.set(begun, limit)
	}
	return d
}

// left says that the client of the call, or of the one before, has gone.
func (d *deadline) left() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// end tells that the call has returned.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due, d.peer = time.Time{}, nil
}

// cancel ends the call under way after its parent has ended.
func (d *deadline) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.due.IsZero() && d.parent.Err() != nil {
		d.close(d.parent.Err())
	}
}

// stop lets go of the timer, unless a call is under way.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && d.due.IsZero() {
		d.timer.Stop()
		d.rings = time.Time{}
	}
}

// ring is the timer's.
func (d *deadline) ring() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rings = time.Time{}
	if d.due.IsZero() {
		return
	}
	if d.peer != nil && d.peer.hungUp() {
		d.gone = true
		d.close(context.Canceled)
		return
	}
	at := now()
	if left := d.due.Sub(at); left > 0 { // the call that the timer was set for is over, or its client was looked after
		d.set(at, left)
		return
	}
	d.close(context.DeadlineExceeded)
}

// set lets the timer ring when the call is due, or its client is to be looked after, unless it rings before
// that. d.mu is held.
func (d *deadline) set(from time.Time, after time.Duration) {
	if d.peer != nil {
		after = min(after, lookAfter)
	}
	at := from.Add(after)
	if !d.rings.IsZero() && !at.Before(d.rings) {
		return
	}
	d.rings = at
	if d.timer == nil {
		d.timer = time.AfterFunc(after, d.ring)
		return
	}
	d.timer.Reset(after)
}

// close ends the call under way. d.mu is held.
func (d *deadline) close(why error) {
	if d.err == nil {
		d.err = why
		close(d.done)
	}
}

// Deadline, Done, Err and Value make it a context.Context.
func (d *deadline) Deadline() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.due, true
}

// Done is closed when the call must end.
func (d *deadline) Done() <-chan struct{} { return d.done } // written in begin alone

// Err says why the call must end; nil while it may go on.
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Value is the parent's.
func (d *deadline) Value(key any) any { return d.parent.Value(key) }
