package broker

import (
	"sync"

	"github.com/weirlog/weir/internal/fault"
)

// inbox is the queue of appends in front of a partition. Everything that waits is taken at once.
type inbox struct {
	most int
	wake chan struct{} // has a ring when something waits

	mu      sync.Mutex
	waiting []*part
	closed  error // why nothing is taken any more; nil while open
}

func newInbox(most int) inbox { return inbox{most: most, wake: make(chan struct{}, 1)} }

// put hands a part to the owner. After an error the part is still the caller's.
func (q *inbox) put(p *part) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case len(q.waiting) >= q.most:
		return fault.Newf("broker.Produce", fault.Overloaded, p.to.path, "%d appends wait already", len(q.waiting))
	}
	q.waiting = append(q.waiting, p)
	if len(q.waiting) == 1 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// take returns all that waits, and reuses room, which the caller has done with, for what comes next.
func (q *inbox) take(room []*part) []*part {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting = room[:0]
	return all
}

// empty says that nothing waits.
func (q *inbox) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0
}

// close refuses everything that comes from now on. What waits still waits.
func (q *inbox) close(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = why
	}
}
