package client

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progress shows on a terminal how far a long input is. On anything else it shows nothing.
type progress struct {
	w       io.Writer
	total   int64 // bytes, -1 when not known
	records atomic.Int64
	bytes   atomic.Int64
	start   time.Time
	ended   chan struct{}
	done    chan struct{}
	once    sync.Once
}

// patience is how long an input may take before it counts as long.
const patience = time.Second

// newProgress begins to watch. A person who types the input sees no bar.
func newProgress(w io.Writer, total int64, in io.Reader) *progress {
	p := &progress{w: w, total: total, start: time.Now(), ended: make(chan struct{}), done: make(chan struct{})}
	screen, ok := w.(*os.File)
	if source, typed := in.(*os.File); !ok || !terminal(screen) || typed && terminal(source) {
		close(p.done)
		return p
	}
	go p.draw()
	return p
}

// add counts a record of the input.
func (p *progress) add(bytes int) {
	p.records.Add(1)
	p.bytes.Add(int64(bytes))
}

// stop takes the bar off the screen. It may be called more than once.
func (p *progress) stop() {
	p.once.Do(func() { close(p.ended) })
	<-p.done
}

func (p *progress) draw() {
	defer close(p.done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	drawn := false
	for {
		select {
		case <-tick.C:
			if elapsed := time.Since(p.start); elapsed >= patience {
				fmt.Fprintf(p.w, "\r\x1b[K%s", bar(p.records.Load(), p.bytes.Load(), p.total, elapsed))
				drawn = true
			}
		case <-p.ended:
			if drawn {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		}
	}
}

// bar is one line of progress.
func bar(records, bytes, total int64, elapsed time.Duration) string {
	rate := float64(records) / max(elapsed.Seconds(), 0.001)
	counts := fmt.Sprintf("%d records, %s, %.0f records/s", records, humanBytes(bytes), rate)
	if total <= 0 {
		return counts
	}
	const width = 24
	share := min(float64(bytes)/float64(total), 1)
	full := int(share * width)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), share*100, counts)
}

func humanBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%d B", n)
	}
}
