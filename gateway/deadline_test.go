package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// isOpen says whether a call may still wait.
func isOpen(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	default:
		return ctx.Err() == nil
	}
}

// after sleeps until just behind a moment of the bubble's time.
func after(d time.Duration) {
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		works, endWorks := context.WithCancel(t.Context())
		defer endWorks()
		var d deadline

		// A call that is late ends, and the next one has all its time.
		ctx := d.begin(works, time.Second)
		if due, ok := ctx.Deadline(); !ok || !due.Equal(time.Now().Add(time.Second)) {
			t.Fatalf("the deadline is %v, %v", due, ok)
		}
		after(500 * time.Millisecond)
		if !isOpen(ctx) {
			t.Fatal("ended at half its time")
		}
		after(500 * time.Millisecond)
		if isOpen(ctx) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatalf("open at its end, err %v", ctx.Err())
		}
		d.end()

		// The timer of one call serves the next: later than it was set for, and earlier.
		d.begin(works, time.Second)
		d.end()
		after(600 * time.Millisecond)
		ctx = d.begin(works, time.Second)
		after(900 * time.Millisecond) // the first call's timer rang in between
		if !isOpen(ctx) {
			t.Fatal("ended by the time of the call before it")
		}
		after(100 * time.Millisecond)
		if isOpen(ctx) {
			t.Fatal("open behind its end")
		}
		d.end()
		d.begin(works, time.Minute)
		d.end()
		ctx = d.begin(works, time.Second)
		after(time.Second)
		if isOpen(ctx) {
			t.Fatal("a short limit waited for the timer of a long one")
		}
		d.end()

		// No call is under way when the timer rings: nothing ends.
		d.begin(works, time.Second)
		d.end()
		after(time.Minute)
		ctx = d.begin(works, time.Second)
		if !isOpen(ctx) {
			t.Fatal("a new call has no time")
		}
		d.stop() // not while a call is under way
		after(time.Second)
		if isOpen(ctx) {
			t.Fatal("stop took the timer of a call under way")
		}
		d.end()

		// Between calls stop lets go of the timer; a call after it has one again.
		d.begin(works, time.Second)
		d.end()
		d.stop()
		ctx = d.begin(works, time.Second)
		after(time.Second)
		if isOpen(ctx) {
			t.Fatal("no timer after stop")
		}
		d.end()

		// The parent's end ends a call under way, and every later one at once.
		ctx = d.begin(works, time.Second)
		d.cancel()
		if !isOpen(ctx) {
			t.Fatal("cancelled before the parent was")
		}
		endWorks()
		d.cancel()
		if isOpen(ctx) || !errors.Is(ctx.Err(), context.Canceled) {
			t.Fatalf("open after its parent, err %v", ctx.Err())
		}
		d.end()
		d.cancel() // no call
		if ctx = d.begin(works, time.Second); isOpen(ctx) {
			t.Fatal("began after the parent's end")
		}
		d.end()
	})
}

// TestDeadlineAllocates nothing from the second call on.
func TestDeadlineAllocates(t *testing.T) {
	var d deadline
	defer d.stop()
	once := func() { d.begin(t.Context(), time.Minute); d.end() }
	once()
	if n := testing.AllocsPerRun(100, once); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}
