package session

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// read is the goroutine that takes what the client sends, until it sends nothing more.
func (p *peer) read() error {
	p.left.Store(p.readFrames())
	p.ring()
	// Bytes that nobody reads would reset the connection, and with it the close frame on its way.
	_, _ = io.Copy(io.Discard, onlyReader{p.socket}) // ends with the connection, however that ends
	p.gone.Store(true)
	p.ring()
	return nil
}

// onlyReader hides what else a connection can do, so that a copy uses a buffer of its own.
type onlyReader struct{ io.Reader }

// readFrames hands frames on until there are no more, and says why.
func (p *peer) readFrames() *leave {
	for {
		kind, r, err := p.conn.NextReader()
		if err != nil {
			return leaveFor(err)
		}
		p.heard.Store(time.Now().UnixNano())
		f, err := p.readFrame(r)
		if err != nil {
			return leaveFor(err)
		}
		if kind != websocket.TextMessage {
			f.give()
			return &leave{code: problem.CloseBadFrame, reason: "frames must be text"}
		}
		op, err := parseFrame(f.b)
		if err != nil {
			f.give()
			return &leave{code: problem.CloseCode(err), reason: ascii(fault.Sentence(err))}
		}
		p.hand(f, op)
	}
}

// hand gives one frame to whoever does what it asks for, when they have room.
func (p *peer) hand(f *frameBuffer, op opFrame) {
	c := op.command()
	if c.err == nil && c.op == opProduce {
		j := &job{id: c.id, frame: f, op: op}
		if !p.producing.put(j, p.hub.cfg.MaxProducing, p.hub.cfg.MaxFrameBytes, func() { p.hub.beside(p.session, p.store) }) {
			f.give()
		}
		return
	}
	f.give()
	select {
	case p.inbox <- c:
		p.ring()
	case <-p.done:
	}
}

var (
	errFrameTooBig   = errors.New("the frame is too big")
	errTooManyFrames = errors.New("the node holds too many frames, try again later")
)

// leaveFor says what an error of reading means for the connection.
func leaveFor(err error) *leave {
	var closed *websocket.CloseError
	var netErr net.Error
	switch {
	case errors.As(err, &closed) && closed.Code == websocket.CloseAbnormalClosure:
		return &leave{}
	case errors.As(err, &closed) && closed.Code == websocket.CloseNoStatusReceived:
		return &leave{code: websocket.CloseNormalClosure, theirs: true}
	case errors.As(err, &closed):
		return &leave{code: closed.Code, theirs: true}
	case errors.Is(err, errFrameTooBig) || errors.Is(err, websocket.ErrReadLimit):
		return &leave{code: problem.CloseFrameTooBig, reason: errFrameTooBig.Error()}
	case errors.Is(err, errTooManyFrames):
		return &leave{code: problem.CloseRateLimited, reason: err.Error()}
	case errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe):
		return &leave{}
	default: // what the library has against the framing
		return &leave{code: problem.CloseBadFrame, reason: ascii(err.Error())}
	}
}

// ascii makes a text fit for a close frame, which must not be cut inside a character.
func ascii(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c >= 0x7f {
			b[i] = '?'
		}
	}
	return string(b)
}

// frameBuffer holds a frame of a client while it is read and used.
type frameBuffer struct {
	b    []byte
	hub  *Hub
	held int64 // taken from the hub's budget
}

var frameBuffers = sync.Pool{New: func() any { return new(frameBuffer) }}

func (f *frameBuffer) give() {
	f.hub.frameBytes.Add(-f.held)
	f.held, f.hub = 0, nil
	if cap(f.b) <= mostPooled {
		f.b = f.b[:0]
		frameBuffers.Put(f)
	}
}

// frameFree is the size up to which a frame is not counted.
const frameFree = 16 << 10

// grow makes room to read into.
func (f *frameBuffer) grow() error {
	if cap(f.b)-len(f.b) >= readBuffer {
		return nil
	}
	more := max(len(f.b), readBuffer)
	if size := len(f.b) + more; size > frameFree {
		extra := int64(size) - f.held
		if f.hub.frameBytes.Add(extra) > int64(f.hub.cfg.FrameBytes) {
			f.hub.frameBytes.Add(-extra)
			return errTooManyFrames
		}
		f.held += extra
	}
	f.b = slices.Grow(f.b, more)
	return nil
}

// readFrame reads one message. Once its first bytes are there, more have to follow within the time that
// the peer of a write has too: what is half sent holds memory.
func (p *peer) readFrame(r io.Reader) (*frameBuffer, error) {
	f := frameBuffers.Get().(*frameBuffer)
	f.hub = p.hub
	hurried := 0
	for {
		if err := f.grow(); err != nil {
			f.give()
			return nil, err
		}
		n, err := r.Read(f.b[len(f.b):cap(f.b)])
		f.b = f.b[:len(f.b)+n]
		if n > 0 { // a pong cannot come before the frame's end
			p.heard.Store(time.Now().UnixNano())
		}
		switch {
		case len(f.b) > p.hub.cfg.MaxFrameBytes:
			f.give()
			return nil, errFrameTooBig
		case err == io.EOF && hurried == 0:
			return f, nil
		case err == io.EOF:
			return f, p.socket.SetReadDeadline(time.Time{})
		case err != nil:
			f.give()
			return nil, err
		}
		if len(f.b) >= hurried {
			if err := p.socket.SetReadDeadline(time.Now().Add(p.hub.cfg.WriteTimeout)); err != nil {
				f.give()
				return nil, err
			}
			hurried = len(f.b) + frameFree
		}
	}
}
