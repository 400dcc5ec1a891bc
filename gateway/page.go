package gateway

import (
	"io"

	"github.com/gofiber/fiber/v2"
)

// pageBody is an answer with records, while it is written and until the client has taken it. What it holds
// is taken from the node's budget for pages: a page may have 64 MiB, and many clients may ask for one and
// then take none of it. The engine reads it as a stream and closes it when it is done with the answer.
type pageBody struct {
	*buffer
	budget *budget
	held   int // bytes taken from the budget
	sent   int // bytes that the engine has read

	answered bool // the engine releases it
}

func (s *Server) newPage() *pageBody { return &pageBody{buffer: takeBuffer(), budget: &s.pages} }

// payStep is how much is taken from the budget at a time.
const payStep = 32 << 10

// pay takes from the budget what the page has grown by. After an error the page is larger than it may be.
func (p *pageBody) pay() error {
	more := len(p.b) - p.held
	if more <= 0 {
		return nil
	}
	more = max(more, payStep)
	if err := p.budget.take(more); err != nil {
		return err
	}
	p.held += more
	return nil
}

// settle has the page hold what it has, be that more than the budget or not.
func (p *pageBody) settle() {
	p.budget.force(len(p.b) - p.held)
	p.held = len(p.b)
}

// release gives everything back. Nothing of the page is used after it.
func (p *pageBody) release() {
	if p.buffer == nil {
		return
	}
	p.budget.give(p.held)
	p.buffer.release()
	p.buffer, p.held = nil, 0
}

// drop releases a page that did not become an answer.
func (p *pageBody) drop() {
	if !p.answered {
		p.release()
	}
}

// answer makes the page the answer to a request. The engine releases it then.
func (p *pageBody) answer(c *fiber.Ctx, contentType string) error {
	p.settle()
	p.answered = true
	c.Response().Header.SetContentType(contentType)
	c.Response().SetBodyStream(p, len(p.b))
	return nil
}

// become puts other bytes, such as the packed ones, in the place of the page's own.
func (p *pageBody) become(b []byte) {
	old := p.buffer
	p.buffer = &buffer{b: b}
	old.release()
	p.settle()
}

// Read reads what was not read yet.
func (p *pageBody) Read(dst []byte) (int, error) {
	if p.buffer == nil || p.sent == len(p.b) {
		return 0, io.EOF
	}
	n := copy(dst, p.b[p.sent:])
	p.sent += n
	return n, nil
}

// WriteTo writes what was not read yet, without copying it.
func (p *pageBody) WriteTo(w io.Writer) (int64, error) {
	if p.buffer == nil {
		return 0, nil
	}
	n, err := w.Write(p.b[p.sent:])
	p.sent += n
	return int64(n), err
}

// Close is called by the engine when the client has the answer or is gone.
func (p *pageBody) Close() error {
	p.release()
	return nil
}
