package broker

import (
	"sync"
	"time"
)

// paceWindow is the time over which a pace is taken.
const paceWindow = 100 * time.Millisecond

// pace counts how often something happens. It is safe for concurrent use.
type pace struct {
	mu     sync.Mutex
	window int64 // the number of the window that is counted in
	count  int   // in it
	before int   // in the one before
}

// add counts one at a time, which does not go back by more than a window.
func (p *pace) add(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	p.count++
}

// recent is how many there were in the last full window, or so far in this one where those are more.
func (p *pace) recent(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	return max(p.before, p.count)
}

func (p *pace) turn(now time.Time) {
	window := now.UnixNano() / int64(paceWindow)
	switch {
	case window == p.window+1:
		p.before, p.count = p.count, 0
	case window > p.window:
		p.before, p.count = 0, 0
	default:
		return
	}
	p.window = window
}
