package session

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// peer is the client of a WebSocket. Its session's goroutine is the only one that writes and that touches
// subscriptions; a second one reads frames, and a third stores records while there are any to store.
type peer struct {
	*session
	hub  *Hub
	conn *websocket.Conn

	inbox     chan *command // from the reading goroutine
	done      chan struct{} // closed when nothing is done any more about what the client sends
	outbox    outbox
	producing producing
	left      atomic.Pointer[leave] // why the reading goroutine has ended
	heard     atomic.Int64          // when the client last sent something, in nanoseconds since 1970
	vitals    vitals                // the members of groups that this connection is

	// mu guards what follows. The session's goroutine holds it but while it waits for the bell; meanwhile
	// serve may do its work for it.
	mu       sync.Mutex
	rest     []byte // what serve could not write at once
	subs     []*subscription
	turn     int           // of subs: whose turn it is
	pace     time.Duration // between two pings
	pinging  bool          // a ping is in what is about to be written
	pinged   time.Time     // when the write began of the ping that is not answered yet; zero: none
	awaited  time.Time     // when that write returned
	stopped  bool          // done is closed
	retrying atomic.Bool
}

// leave is why reading has ended.
type leave struct {
	code   int // of the close frame to send; 0: none, the connection is gone
	reason string
	theirs bool // the client has sent a close frame
}

// flushBytes is how much is put together before it is written.
const flushBytes = 64 << 10

func (h *Hub) newPeer(s *session, c *websocket.Conn) *peer {
	p := &peer{session: s, hub: h, conn: c, inbox: make(chan *command, 8), done: make(chan struct{}), pace: h.cfg.PingEvery}
	p.outbox.init()
	p.producing.init()
	p.heard.Store(time.Now().UnixNano())
	c.SetPingHandler(func(payload string) error {
		p.heard.Store(time.Now().UnixNano())
		p.outbox.setPong(payload)
		p.ring()
		return nil
	})
	s.socket.moved = p.vitals.alive
	c.SetPongHandler(func(string) error {
		p.heard.Store(time.Now().UnixNano())
		p.vitals.alive()
		return nil
	})
	c.SetCloseHandler(func(int, string) error { return nil })
	return p
}

func (p *peer) run(ws WebSocket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.closeAll()
	p.hub.beside(p.session, p.read)
	buf := takeBuffer()
	defer func() { buf.give() }()
	buf.b = p.appendHello(buf.b)
	if ws.Reader != nil {
		buf.b = p.attach(buf.b, newSubscription(ws.Sub, ws.Reader, nil), &command{sub: ws.Sub})
	}
	p.wake(p.hub.cfg.PingEvery)
	for {
		if l := p.left.Load(); l != nil {
			return p.leave(buf, l)
		}
		if p.hub.closing.Load() {
			ms := p.hub.reconnectAfter().Milliseconds()
			buf.b = p.appendClosing(buf.b, ms)
			return p.goodbye(buf, problem.CloseShutdown, "the node is shutting down")
		}
		if p.rest != nil {
			buf.b = append(buf.b, p.rest...)
			p.rest = nil
		}
		buf.b = p.outbox.take(buf.b)
		var asked, more, alive bool
		buf.b, asked = p.obey(buf.b)
		buf.b = p.heed(buf.b)
		if p.due.Load() {
			if buf.b, alive = p.tick(buf.b); !alive {
				p.hub.metrics.cut.WithLabelValues("no_pong").Inc()
				return p.goodbye(buf, problem.CloseNoPong, "no pong within "+p.hub.cfg.PongWithin.String())
			}
		}
		buf.b, more = p.pump(buf.b)
		if len(buf.b) > 0 {
			if err := p.flush(buf); err != nil {
				return err
			}
			p.took()
		}
		if !more && !asked {
			buf.give()
			p.mu.Unlock()
			<-p.bell
			p.mu.Lock()
			buf = takeBuffer()
		}
	}
}

// serve sends what is new at the tail while the session's goroutine waits, on the caller's goroutine: waking
// another one for each of many sessions costs more than the rest of the work. It returns false when
// something is left to do for the session's own.
func (p *peer) serve() bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.rest != nil || p.stopped || p.left.Load() != nil || p.hub.closing.Load() || len(p.subs) != 1 || !p.subs[0].caught {
		return false
	}
	if g := p.subs[0].group; g != nil && g.member.news.Load() {
		return false
	}
	buf := takeBuffer()
	defer buf.give()
	var more bool
	if buf.b, more = p.pump(buf.b); len(buf.b) == 0 {
		return !more
	}
	p.sent.Add(float64(len(buf.b)))
	n := p.socket.try(buf.b)
	if n < len(buf.b) {
		p.rest = append([]byte(nil), buf.b[n:]...)
		return false
	}
	p.took()
	return !more
}

// pump appends what the subscriptions have, in turn, until there is enough for one write. more says that
// there may be more.
func (p *peer) pump(dst []byte) (_ []byte, more bool) {
	ended := false
	for range p.subs {
		if len(dst) >= flushBytes {
			more = true
			break
		}
		p.turn = (p.turn + 1) % len(p.subs)
		s := p.subs[p.turn]
		var again bool
		dst, again = p.next(dst, s)
		more = more || again
		ended = ended || s.ended
	}
	if ended {
		p.forget()
	}
	return dst, more
}

// next appends one page of a subscription. again says that there may be another.
func (p *peer) next(dst []byte, s *subscription) (_ []byte, again bool) {
	limit, ok := s.limit(Limit{Records: p.hub.cfg.WindowRecords, Bytes: p.hub.cfg.WindowBytes})
	if !ok {
		return dst, false
	}
	page, err := s.reader.Next(p.hub.ctx, limit)
	switch {
	case err != nil && passes(err):
		if p.retrying.CompareAndSwap(false, true) {
			time.AfterFunc(retryAfter, func() {
				p.retrying.Store(false)
				p.ring()
			})
		}
		return dst, false
	case err != nil:
		s.ended = true
		var at int
		dst, at = beginFrame(dst)
		return endFrame(appendError(dst, nil, s.name, err), at, frameText), false
	}
	dst = s.append(dst, page)
	p.records.Add(float64(page.Records))
	if page.AtEnd && !s.caught && s.reader.Partitions() > 0 {
		s.caught = true
		dst = s.appendCaughtUp(dst)
	}
	return dst, !page.AtEnd && !page.Empty()
}

// forget drops subscriptions that have ended.
func (p *peer) forget() {
	kept := p.subs[:0]
	for _, s := range p.subs {
		if s.ended {
			s.reader.Close()
			p.part(s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(p.subs[len(kept):])
	p.subs = kept
}

func (p *peer) appendHello(dst []byte) []byte {
	dst, at := beginFrame(dst)
	dst = append(dst, `{"op":"hello","session":"`...)
	dst = append(dst, p.id...)
	dst = append(dst, `","node":`...)
	dst = strconv.AppendInt(dst, int64(p.hub.nodeID), 10)
	dst = append(dst, `,"ping_ms":`...)
	dst = strconv.AppendInt(dst, p.hub.cfg.PingEvery.Milliseconds(), 10)
	dst = append(dst, `,"max_frame_bytes":`...)
	dst = strconv.AppendInt(dst, int64(p.hub.cfg.MaxFrameBytes), 10)
	return endFrame(append(dst, `,"auth":"none"}`...), at, frameText)
}

func (p *peer) appendClosing(dst []byte, ms int64) []byte {
	dst, at := beginFrame(dst)
	dst = append(dst, `{"op":"closing",`...)
	dst = append(dst, appendClosing(nil, ms)[1:]...)
	return endFrame(dst, at, frameText)
}

// tick is the alarm's work: it asks for a ping to be sent, or looks whether the last one was answered.
func (p *peer) tick(dst []byte) (_ []byte, alive bool) {
	p.pace = p.every()
	if !p.pinged.IsZero() {
		waited := time.Since(p.awaited)
		unanswered := p.unanswered()
		switch {
		case unanswered && waited >= p.hub.cfg.PongWithin:
			return dst, false
		case unanswered:
			p.wake(p.hub.cfg.PongWithin - waited)
			return dst, true
		}
		p.pinged = time.Time{}
		if waited < p.pace {
			p.wake(p.pace - waited)
			return dst, true
		}
	}
	p.pinging = true
	p.wake(p.pace) // sooner, as soon as the ping has left
	return appendFrame(dst, framePing, nil), true
}

// unanswered says that a ping was sent, and nothing was heard since.
func (p *peer) unanswered() bool { return !p.pinged.IsZero() && p.heard.Load() < p.pinged.UnixNano() }

// every is how often the client is pinged: groups may ask for more signs of life than the node does.
func (p *peer) every() time.Duration { return p.vitals.every(p.hub.cfg.PingEvery) }

// flush writes what was put together. The time for an answer to a ping counts from when it has left; the
// answer may be here before the write has returned.
func (p *peer) flush(buf *buffer) error {
	p.sent.Add(float64(len(buf.b)))
	begun := time.Now()
	err := p.socket.write(buf.b)
	buf.b = buf.b[:0]
	if fault.Is(err, fault.Timeout) {
		p.hub.metrics.cut.WithLabelValues("write_timeout").Inc()
	}
	if p.pinging && err == nil {
		p.pinging, p.pinged, p.awaited = false, begun, time.Now()
		p.wake(min(p.hub.cfg.PongWithin, p.pace))
	}
	return err
}

// goodbye ends the connection with a close frame, and waits for the client's for a while: closing at
// once could take away what it has not read yet.
func (p *peer) goodbye(buf *buffer, code int, reason string) error {
	p.stop()
	p.socket.hurry(p.hub.cfg.Goodbye)
	buf.b = appendClose(buf.b, code, reason)
	if err := p.flush(buf); err != nil {
		return err
	}
	p.wake(p.hub.cfg.Goodbye)
	for !p.gone.Load() && !p.due.Load() {
		if l := p.left.Load(); l != nil && l.theirs {
			break
		}
		<-p.bell
	}
	return nil
}

// leave ends the connection after reading has ended.
func (p *peer) leave(buf *buffer, l *leave) error {
	if l.code == 0 {
		return nil
	}
	if !l.theirs {
		p.hub.metrics.cut.WithLabelValues("client_fault").Inc()
	}
	return p.goodbye(buf, l.code, l.reason)
}

// stop makes the reading goroutine throw away what the client still sends.
func (p *peer) stop() {
	if !p.stopped {
		p.stopped = true
		close(p.done)
		p.outbox.close()
		p.producing.close()
	}
}

func (p *peer) closeAll() {
	p.stop()
	for _, s := range p.subs {
		s.reader.Close()
		p.part(s)
	}
}
