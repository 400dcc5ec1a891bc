package broker

import (
	"sync"
	"time"
)

// The pace of bells. Waking a listener costs the node some microseconds, so the more there are, the
// longer they wait for each other; nobody waits longer than bellMost.
const (
	bellEach   = 5 * time.Microsecond
	bellMost   = 5 * time.Millisecond
	bellInline = 64 // so few are rung by whoever brings the news
)

// bells is the list of those who want to hear that something about a partition has changed.
type bells struct {
	mu     sync.Mutex
	list   []*bell
	last   time.Time   // of the last ring
	timer  *time.Timer // made with the first ring that has to wait
	armed  bool        // the timer will ring
	closed bool
}

// bell is one registration.
type bell struct {
	c  chan<- struct{}
	at int // its place in the list; -1 when it is not there any more
}

// add registers c. It reports false when the partition is closed, and rings no more.
func (b *bells) add(c chan<- struct{}) (stop func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false
	}
	one := &bell{c: c, at: len(b.list)}
	b.list = append(b.list, one)
	return func() { b.remove(one) }, true
}

func (b *bells) remove(one *bell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.at < 0 {
		return
	}
	end := len(b.list) - 1
	b.list[one.at] = b.list[end]
	b.list[one.at].at = one.at
	b.list[end] = nil
	b.list = b.list[:end]
	one.at = -1
	if end == 0 {
		b.list = nil // a crowd that has left leaves no memory behind
	}
}

// ring tells everyone: at once when the last ring is long enough ago, else when it is.
func (b *bells) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 || b.armed {
		return
	}
	wait := min(time.Duration(len(b.list))*bellEach, bellMost) - time.Since(b.last)
	if wait <= 0 && len(b.list) <= bellInline {
		b.ringAll()
		return
	}
	b.armed = true
	if wait = max(wait, 0); b.timer == nil {
		b.timer = time.AfterFunc(wait, b.late)
	} else {
		b.timer.Reset(wait)
	}
}

func (b *bells) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.armed {
		b.ringAll()
	}
}

func (b *bells) ringAll() {
	b.armed = false
	b.last = time.Now()
	for _, one := range b.list {
		select {
		case one.c <- struct{}{}:
		default: // it has a ring that it has not heard yet
		}
	}
}

// close tells everyone at once, for the last time.
func (b *bells) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.ringAll()
}
