package session

import (
	"runtime"
	"slices"
	"sync"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// tails holds, for each partition that somebody listens to, those who do. The log rings one bell a
// partition, however many listen.
type tails struct {
	hub *Hub
	mu  sync.Mutex
	by  map[topic.Ref]*tail
}

// tail is those who listen to one partition. A goroutine of its own passes rings on.
type tail struct {
	bell chan struct{}
	stop func() // of the log's Listen
	over chan struct{}

	mu      sync.Mutex
	members []*member
}

// member is one who listens.
type member struct {
	bell chan<- struct{}
	// serve, when not nil, does what the ring asks for on the caller's goroutine, if that can be done
	// without a wait. It returns false when it cannot: then the bell is rung.
	serve func() bool
	place int // in the tail's members
}

// crowdForTwo is from how many members on a ring is passed on by several goroutines.
const crowdForTwo = 128

// listen adds a member.
func (ts *tails) listen(ref topic.Ref, m *member) (stop func(), err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.by[ref]
	if t == nil {
		if t, err = ts.begin(ref); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	m.place = len(t.members)
	t.members = append(t.members, m)
	t.mu.Unlock()
	return func() { ts.leave(ref, t, m) }, nil
}

// begin starts listening to a partition. ts.mu is held.
func (ts *tails) begin(ref topic.Ref) (*tail, error) {
	t := &tail{bell: make(chan struct{}, 1), over: make(chan struct{})}
	var err error
	if t.stop, err = ts.hub.log.Listen(ref, t.bell); err != nil {
		return nil, err
	}
	if !ts.hub.enter() {
		t.stop()
		return nil, fault.Newf("session.Listen", fault.Stopping, nil, "the node is shutting down")
	}
	ts.by[ref] = t
	go func() {
		defer ts.hub.goroutines.Done()
		for {
			select {
			case <-t.bell:
				t.pass(ts.hub)
			case <-t.over:
				return
			}
		}
	}()
	return t, nil
}

func (ts *tails) leave(ref topic.Ref, t *tail, m *member) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.members) - 1
	t.members[m.place] = t.members[last]
	t.members[m.place].place = m.place
	t.members[last] = nil
	if t.members = t.members[:last]; last == 0 {
		delete(ts.by, ref)
		t.stop()
		close(t.over)
	}
}

// crowd is how many listen to a partition.
func (ts *tails) crowd(ref topic.Ref) int {
	ts.mu.Lock()
	t := ts.by[ref]
	ts.mu.Unlock()
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.members)
}

// pass serves or rings every member. Rings that come meanwhile are one.
func (t *tail) pass(h *Hub) {
	t.mu.Lock()
	all := slices.Clone(t.members)
	t.mu.Unlock()
	if len(all) < crowdForTwo {
		passTo(h, all)
		return
	}
	var others sync.WaitGroup
	share := (len(all) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for part := range slices.Chunk(all[share:], share) {
		others.Go(func() { passTo(h, part) })
	}
	passTo(h, all[:share])
	others.Wait()
}

func passTo(h *Hub, members []*member) {
	at := 0
	for at < len(members) {
		err := run.Safely("session.tail", func() error {
			for at < len(members) {
				m := members[at]
				if m.serve == nil || !m.serve() {
					m.ring()
				}
				at++
			}
			return nil
		})
		if err != nil {
			h.logger.Error("serving a session failed by a defect", "err", err)
			members[at].ring() // its own goroutine may meet the defect again, and ends the session
			at++
		}
	}
}

func (m *member) ring() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}
