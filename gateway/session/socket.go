package session

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weirlog/weir/internal/fault"
)

// socket is a connection that one goroutine writes to, with a limit for how long the peer may take
// nothing of what is written.
type socket struct {
	net.Conn
	patience time.Duration // a write that moves no byte for this long fails
	moved    func()        // called while a long write goes on, each time that it has; nil: nobody cares

	raw   syscall.RawConn // nil where writes cannot be tried
	tried attempt         // of the one who writes

	mu       sync.Mutex
	deadline time.Time // of writes, as it is set on the connection; guarded by mu
	hurried  time.Time // no deadline goes past it; zero: none; guarded by mu
	closed   bool      // guarded by mu
}

// errStalled is the peer that takes no bytes.
var errStalled = errors.New("the peer has taken no byte for too long")

func newSocket(conn net.Conn, patience time.Duration) *socket {
	s := &socket{Conn: conn, patience: patience}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw = raw
			s.tried.once = s.tried.write
		}
	}
	return s
}

// attempt is one write that does not wait.
type attempt struct {
	b    []byte
	n    int
	once func(fd uintptr) bool // write, made once
}

// try writes as much of b as the kernel takes now. It returns how much that was; errors are left for the
// next write to meet.
func (s *socket) try(b []byte) int {
	if err := s.extend(time.Now()); err != nil {
		return 0
	}
	s.tried.b, s.tried.n = b, 0
	err := s.raw.Write(s.tried.once)
	s.tried.b = nil
	if err != nil {
		return 0 // nothing was tried
	}
	return s.tried.n
}

// write writes all of b. A peer that takes some of it, however slowly, is waited for; one that takes
// nothing for the socket's patience, or an eighth of it longer, is a fault of kind Timeout.
func (s *socket) write(b []byte) error {
	moved := time.Now()
	now := moved
	for {
		if err := s.extend(now); err != nil {
			return err
		}
		n, err := s.Conn.Write(b)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		b, now = b[n:], time.Now()
		if n > 0 {
			moved = now
			if s.moved != nil {
				s.moved()
			}
		}
		if now.Sub(moved) >= s.patience || s.late(now) {
			return fault.New("session.write", fault.Timeout, nil, errStalled)
		}
	}
}

// extend moves the deadline when little is left of it. Moving it costs a timer each time, so it is set
// twice as far ahead as needed and then left alone for a while.
func (s *socket) extend(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurried.IsZero() {
		return s.Conn.SetWriteDeadline(s.hurried)
	}
	look := s.patience / 16
	if s.deadline.Sub(now) >= look {
		return nil
	}
	s.deadline = now.Add(2 * look)
	return s.Conn.SetWriteDeadline(s.deadline)
}

// late says that the socket was hurried and the time is up.
func (s *socket) late(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hurried.IsZero() && !now.Before(s.hurried)
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
