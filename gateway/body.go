package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/internal/fault"
)

// buffer is bytes that are used again for the next request.
type buffer struct {
	b     []byte
	paced pacedReader // what fills it
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// mostKept is the largest buffer that is kept for the next request.
const mostKept = 1 << 20

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.b) <= mostKept {
		b.b, b.paced = b.b[:0], pacedReader{}
		buffers.Put(b)
	}
}

// body is a whole request body, unpacked.
type body struct {
	*buffer
	s    *Server
	held int // bytes taken from the budget
}

func (b *body) release() {
	b.s.bodies.give(b.held)
	b.buffer.release()
}

// grow makes room for n more bytes and pays for what the buffer grows by.
func (b *body) grow(n int) error {
	need := len(b.b) + n
	if need > b.held {
		if err := b.s.bodies.take(need - b.held); err != nil {
			return err
		}
		b.held = need
	}
	b.b = slices.Grow(b.b, n)
	return nil
}

// readPiece is how much of a body of unknown length is made room for at a time.
const readPiece = 32 << 10

// readBody reads the whole body of a request, unpacked, of at most limit bytes. The caller releases it,
// and uses nothing of it after that.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, limit int) (body, error) {
	h := &ctx.Request.Header
	n := h.ContentLength()
	if n > limit {
		return body{}, tooLarge(limit)
	}
	b := body{buffer: takeBuffer(), s: s}
	if err := s.fill(ctx, &b, n, limit); err != nil {
		b.release()
		return body{}, err
	}
	return b, nil
}

func (s *Server) fill(ctx *fasthttp.RequestCtx, b *body, n, limit int) error {
	stream := ctx.RequestBodyStream()
	coding := ctx.Request.Header.ContentEncoding()
	switch {
	case n == 0 || stream == nil:
		if len(coding) > 0 && !isIdentity(coding) {
			_, err := codecOf(coding) // an unknown coding is refused, whatever it stands over
			return err
		}
		return nil
	case isIdentity(coding) && n > 0:
		if err := b.grow(n); err != nil {
			return err
		}
		b.b = b.b[:n]
		_, err := io.ReadFull(b.pace(ctx, stream), b.b)
		return s.brokenBody(err)
	}
	var in io.Reader = b.pace(ctx, stream)
	if !isIdentity(coding) {
		u, err := unpack(coding, in, limit)
		if err != nil {
			return s.brokenBody(err)
		}
		defer u.release()
		in = u
	}
	for {
		if len(b.b) == cap(b.b) || cap(b.b)-len(b.b) < bytes.MinRead {
			if err := b.grow(max(readPiece, len(b.b))); err != nil {
				return err
			}
		}
		m, err := in.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+m]
		if len(b.b) > limit {
			return tooLarge(limit)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.brokenBody(err)
		}
	}
}

func (s *Server) bodyTooLarge() error { return tooLarge(s.cfg.RequestBytes) }

func tooLarge(limit int) error {
	return fault.Newf("gateway.Body", fault.RequestTooLarge, nil,
		"the body may have %d bytes, unpacked; NDJSON (Content-Type: application/x-ndjson) is streamed without that limit", limit)
}

// brokenBody turns an error of reading a body into one for the caller. The text of foreign errors stays inside.
func (s *Server) brokenBody(err error) error {
	if err == nil {
		return nil
	}
	return s.sayBroken(err)
}

func (s *Server) sayBroken(err error) error {
	var ours *fault.Error
	var netErr net.Error
	switch {
	case errors.As(err, &ours):
		return err
	case errors.As(err, &netErr) && netErr.Timeout():
		return &slowBody{limit: s.cfg.ReadTimeout.String()}
	default:
		return fault.Newf("gateway.Body", fault.BadRequest, nil, "the body ended early or is not framed as HTTP asks")
	}
}

// slowBody is the error of a body that does not arrive in time.
type slowBody struct{ limit string }

func (e *slowBody) Error() string { return "the body did not arrive in time" }

func (b *body) pace(ctx *fasthttp.RequestCtx, stream io.Reader) *pacedReader {
	b.paced = pacedReader{ctx: ctx, r: stream, timeout: b.s.cfg.ReadTimeout}
	return &b.paced
}

// pacedReader gives each piece of a body a time of its own, so that a large body on a slow line arrives
// and one that trickles in does not hold its memory for ever.
type pacedReader struct {
	ctx     *fasthttp.RequestCtx
	r       io.Reader
	timeout time.Duration
	left    int  // bytes until the deadline moves
	late    bool // the first piece, for which the engine set the deadline, is read
}

const pacePiece = 64 << 10

func (p *pacedReader) Read(b []byte) (int, error) {
	if p.left <= 0 {
		if p.late {
			if err := p.ctx.SetReadDeadline(now().Add(p.timeout)); err != nil {
				return 0, err
			}
		}
		p.late = true
		p.left = pacePiece
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}
