package session

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weirlog/weir/internal/fault"
)

// socket is a connection that one goroutine writes to, with a limit for how long the peer may take
// nothing of what is written.
type socket struct {
	net.Conn
	patience time.Duration // a write that moves no byte for this long fails

	mu       sync.Mutex
	deadline time.Time // of writes, as it is set on the connection; guarded by mu
	hurried  time.Time // no deadline goes past it; zero: none; guarded by mu
	closed   bool      // guarded by mu
}

// errStalled is the peer that takes no bytes.
var errStalled = errors.New("the peer has taken no byte for too long")

func newSocket(conn net.Conn, patience time.Duration) *socket {
	return &socket{Conn: conn, patience: patience}
}

// write writes all of b. A peer that takes some of it, however slowly, is waited for; one that takes
// nothing for the socket's patience is a fault of kind Timeout.
func (s *socket) write(b []byte) error {
	for {
		if err := s.extend(); err != nil {
			return err
		}
		n, err := s.Conn.Write(b)
		b = b[n:]
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n == 0 || s.late():
			return fault.New("session.write", fault.Timeout, nil, errStalled)
		}
	}
}

// extend moves the deadline when less than the patience is left of it. Doing so costs a timer each, so it
// is set further ahead than needed and then left alone for a while.
func (s *socket) extend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurried.IsZero() {
		return s.Conn.SetWriteDeadline(s.hurried)
	}
	now := time.Now()
	if s.deadline.Sub(now) >= s.patience {
		return nil
	}
	s.deadline = now.Add(s.patience + s.patience/4)
	return s.Conn.SetWriteDeadline(s.deadline)
}

// late says that the socket was hurried and the time is up.
func (s *socket) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hurried.IsZero() && !time.Now().Before(s.hurried)
}

// hurry gives everything that is still to be written this long, a write under way included.
func (s *socket) hurry(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.hurried.IsZero() {
		return
	}
	s.hurried = time.Now().Add(within)
	_ = s.Conn.SetWriteDeadline(s.hurried) // fails only on a connection that is closed already
}

// abort closes the connection. Reads and writes under way return.
func (s *socket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		_ = s.Conn.Close() // nothing is left to do about a connection that does not close
	}
}
