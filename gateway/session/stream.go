package session

import (
	"net"
	"strconv"
	"time"

	"github.com/weirlog/weir/internal/fault"
)

// Stream is an HTTP answer that goes on as the log does.
type Stream struct {
	Reader *Reader
	Member *Membership // that the reader reads for, from the same [Hub.Join]; nil: it reads for itself. The mouth is NDJSON then
	Mouth  Mouth
	Head   []byte // status line and headers, with the empty line behind them
	// Chunked frames the body as HTTP/1.1 does; otherwise its end is that of the connection.
	Chunked bool
}

// Mouth is how a stream speaks. Each method appends to dst. Page moves the reader's cursor on.
type Mouth interface {
	name() string
	hello(dst []byte, r *Reader) []byte
	Page(dst []byte, r *Reader, p *Page) []byte
	caughtUp(dst []byte) []byte
	heartbeat(dst []byte) []byte
	end(dst []byte, r *Reader) []byte
	failure(dst []byte, r *Reader, err error) []byte
	closing(dst []byte, r *Reader, reconnectAfter time.Duration) []byte
}

// Stream serves a stream on a connection that the HTTP server has given up. It returns at once; the
// connection and the reader are the hub's from now on.
func (h *Hub) Stream(conn net.Conn, st Stream) {
	h.start(st.Mouth.name(), conn, func(s *session) error {
		return (&streaming{Stream: st, hub: h, session: s}).run()
	}, func() {
		st.Reader.Close()
		if st.Member != nil {
			st.Member.close()
		}
	})
}

// streaming is a stream while it runs.
type streaming struct {
	Stream
	*session
	hub     *Hub
	written time.Time // when something was last written
	caught  bool      // caughtUp was said
}

func (st *streaming) run() error {
	if err := st.Reader.Listen(st.bell); err != nil {
		return st.fail(err)
	}
	st.hub.beside(st.session, st.watch)
	if st.Member != nil {
		st.Member.serve(st.session)
	}
	if err := st.say(false, func(b []byte) []byte { return st.Mouth.hello(b, st.Reader) }); err != nil {
		return err
	}
	st.wake(st.every())
	for !st.gone.Load() {
		if st.hub.closing.Load() {
			return st.say(true, func(b []byte) []byte { return st.Mouth.closing(b, st.Reader, st.hub.reconnectAfter()) })
		}
		if err := st.heed(); err != nil {
			return err
		}
		page, err := st.Reader.Next(st.hub.ctx, Limit{Records: st.hub.cfg.WindowRecords, Bytes: st.hub.cfg.WindowBytes})
		switch {
		case err != nil && passes(err):
			if time.Since(st.written) >= st.every() {
				if err := st.beat(); err != nil {
					return err
				}
			}
			st.wake(retryAfter)
			<-st.bell
			continue
		case err != nil:
			return st.fail(err)
		}
		if err := st.give(page); err != nil || page.Done {
			return err
		}
		if st.due.Load() {
			if err := st.beat(); err != nil {
				return err
			}
		}
		if page.AtEnd || page.Empty() {
			<-st.bell
		}
	}
	return nil
}

// passes says that an error of the log may go away while the reader waits.
func passes(err error) bool {
	return fault.KindOf(err).Retryable() && !fault.Is(err, fault.Stopping)
}

// give writes a page, and what follows from it.
func (st *streaming) give(page *Page) error {
	caughtUp := page.AtEnd && !st.caught
	if page.Empty() && !caughtUp && !page.Done {
		return nil
	}
	st.caught = st.caught || caughtUp
	st.records.Add(float64(page.Records))
	err := st.say(page.Done, func(b []byte) []byte {
		b = st.Mouth.Page(b, st.Reader, page)
		if caughtUp {
			b = st.Mouth.caughtUp(b)
		}
		if page.Done {
			b = st.Mouth.end(b, st.Reader)
		}
		return b
	})
	if err == nil && st.Member != nil {
		st.Member.took(st.Reader)
	}
	return err
}

// every is how often the stream shows that it lives, at least. To a group, what its client's socket has
// taken is a sign of the client's life.
func (st *streaming) every() time.Duration {
	if st.Member == nil {
		return st.hub.cfg.Heartbeat
	}
	return st.Member.every(st.hub.cfg.Heartbeat)
}

// heed writes what the group has said, and ends the stream of a member that is none any more.
func (st *streaming) heed() error {
	if st.Member == nil || !st.Member.news.Load() {
		return nil
	}
	n := st.Member.take()
	lines := st.Member.appendNews(nil, st.Reader, &n)
	if len(lines) > 0 {
		if err := st.say(false, func(b []byte) []byte { return append(b, lines...) }); err != nil {
			return err
		}
	}
	switch {
	case n.err != nil:
		return st.fail(n.err)
	case n.asleep:
		if err := st.say(false, st.Mouth.heartbeat); err != nil {
			return err
		}
		st.Member.alive()
	}
	return nil
}

// beat writes a sign of life when nothing else was written for a while: a peer that is gone without a
// word shows only then.
func (st *streaming) beat() error {
	silent, every := time.Since(st.written), st.every()
	if silent >= every {
		if err := st.say(false, st.Mouth.heartbeat); err != nil {
			return err
		}
		silent = 0
	}
	if st.Member != nil {
		st.Member.alive()
	}
	st.wake(every - silent)
	return nil
}

// fail ends the stream with an error that its reader can see.
func (st *streaming) fail(err error) error {
	if told := st.say(true, func(b []byte) []byte { return st.Mouth.failure(b, st.Reader, err) }); told != nil {
		return told
	}
	st.hub.metrics.cut.WithLabelValues(fault.KindOf(err).String()).Inc()
	return err
}

// chunkHead is room for the head of a chunk: its length in hexadecimal and a line end.
const chunkHead = "00000000\r\n"

// say writes what build appends, behind the head of the answer when that has not been written. last says
// that nothing follows.
func (st *streaming) say(last bool, build func([]byte) []byte) error {
	buf := takeBuffer()
	defer buf.give()
	b := append(buf.b[:0], st.Head...)
	skip := 0
	if st.Chunked {
		head := len(b)
		b = append(b, chunkHead...)
		from := len(b)
		if b = build(b); len(b) > from {
			var digits [8]byte
			length := strconv.AppendUint(digits[:0], uint64(len(b)-from), 16)
			skip = len(chunkHead) - len("\r\n") - len(length)
			copy(b[skip:], b[:head])
			copy(b[skip+head:], length)
			b = append(b, "\r\n"...)
		} else {
			b = b[:head]
		}
		if last {
			b = append(b, "0\r\n\r\n"...)
		}
	} else {
		b = build(b)
	}
	buf.b, st.Head = b, nil
	st.sent.Add(float64(len(b) - skip))
	st.written = time.Now()
	return st.socket.write(b[skip:])
}

// watch waits for the peer to close. What it sends is not asked for, and thrown away.
func (st *streaming) watch() error {
	var scratch [256]byte
	for {
		if _, err := st.socket.Read(scratch[:]); err != nil {
			st.gone.Store(true)
			st.ring()
			return nil // whatever the error says: nothing more comes from there
		}
	}
}
