package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
)

// session is what all live ones have. Its goroutine alone writes to the socket, and waits on one bell
// only, which everyone rings who has something for it.
type session struct {
	id     string
	mouth  string
	socket *socket
	bell   chan struct{} // room for one ring

	gone  atomic.Bool // the peer has closed its side
	due   atomic.Bool // the alarm has rung
	alarm *time.Timer // the session's goroutine's

	records, sent prometheus.Counter
}

func newSession(mouth string, socket *socket, m *metrics) *session {
	return &session{
		id: nuid.Next(), mouth: mouth, socket: socket, bell: make(chan struct{}, 1),
		records: m.records.WithLabelValues(mouth), sent: m.bytes.WithLabelValues(mouth),
	}
}

// ring wakes the session's goroutine. Rings that it has not heard yet are one.
func (s *session) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// wake rings after a while and sets due. A wake that was asked for before is forgotten.
func (s *session) wake(after time.Duration) {
	s.due.Store(false)
	if s.alarm == nil {
		s.alarm = time.AfterFunc(after, func() {
			s.due.Store(true)
			s.ring()
		})
		return
	}
	s.alarm.Reset(after)
}

// silence ends wakes.
func (s *session) silence() {
	if s.alarm != nil {
		s.alarm.Stop()
	}
}

// buffer is what a session writes from. An idle session holds none.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) give() {
	if cap(b.b) <= mostPooled {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// retryAfter is how long a session waits when the log has trouble that may pass.
const retryAfter = 500 * time.Millisecond
