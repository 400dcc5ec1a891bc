package session

import "sync"

// outbox holds frames that goroutines beside the session's want to be sent. It is bounded: who puts waits
// while too much is in it.
type outbox struct {
	mu     sync.Mutex
	room   sync.Cond
	frames []byte
	pong   []byte // the answer to the peer's last ping
	closed bool
}

// outboxBytes is how much may wait before the next one has to wait too.
const outboxBytes = 256 << 10

func (o *outbox) init() { o.room.L = &o.mu }

// put adds a frame. It returns false when nothing is sent any more.
func (o *outbox) put(frame []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.frames) > 0 && len(o.frames)+len(frame) > outboxBytes && !o.closed {
		o.room.Wait()
	}
	if !o.closed {
		o.frames = append(o.frames, frame...)
	}
	return !o.closed
}

// setPong answers a ping; one that was not yet answered is not answered any more, as RFC 6455 allows.
func (o *outbox) setPong(payload string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pong = append(o.pong[:0], payload...)
	if o.pong == nil {
		o.pong = []byte{}
	}
}

// take appends everything to dst.
func (o *outbox) take(dst []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pong != nil {
		dst = appendFrame(dst, framePong, o.pong)
		o.pong = nil
	}
	if len(o.frames) > 0 {
		dst = append(dst, o.frames...)
		o.frames = nil
		o.room.Broadcast()
	}
	return dst
}

// close ends the waits of those who put.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.frames = nil
	o.room.Broadcast()
}
