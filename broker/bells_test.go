package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

func rung(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBellsRingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bells
		c := make(chan struct{}, 1)
		stop, ok := b.add(c)
		if !ok || rung(c) {
			t.Fatal("rung before anything happened")
		}
		for range 3 {
			b.ring()
			if !rung(c) {
				t.Fatal("not rung at once although the last ring is long ago")
			}
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		stop()
		b.ring()
		if rung(c) || b.list != nil {
			t.Error("rung after it was stopped")
		}
	})
}

// TestBellsPace: with many listeners a second event waits for the next tick, and then all are rung once.
func TestBellsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bells
		bellsOf := make([]chan struct{}, 2000)
		for i := range bellsOf {
			bellsOf[i] = make(chan struct{}, 1)
			b.add(bellsOf[i])
		}
		rings := func() (n int) {
			for _, c := range bellsOf {
				if rung(c) {
					n++
				}
			}
			return n
		}
		b.ring()
		synctest.Wait()
		if n := rings(); n != len(bellsOf) {
			t.Fatalf("the first event rang %d of %d", n, len(bellsOf))
		}
		begun := time.Now()
		for range 100 {
			b.ring()
			time.Sleep(10 * time.Microsecond)
		}
		synctest.Wait()
		if n := rings(); n != 0 {
			t.Fatalf("%d were rung again after a millisecond", n)
		}
		time.Sleep(bellMost - time.Since(begun))
		synctest.Wait()
		if n := rings(); n != len(bellsOf) {
			t.Fatalf("after %v, %d of %d are rung", bellMost, n, len(bellsOf))
		}
	})
}

func TestBellsClose(t *testing.T) {
	var b bells
	c := make(chan struct{}, 1)
	stop, _ := b.add(c)
	b.close()
	if !rung(c) {
		t.Error("not rung at the end")
	}
	stop()
	if _, ok := b.add(c); ok {
		t.Error("registered after the end")
	}
}

// TestBellsLeaveInAnyOrder: whoever leaves takes nobody else away.
func TestBellsLeaveInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bells
		var chans [5]chan struct{}
		var stops [5]func()
		for i := range chans {
			chans[i] = make(chan struct{}, 1)
			stops[i], _ = b.add(chans[i])
		}
		for n, i := range []int{2, 0, 4, 1} {
			stops[i]()
			time.Sleep(time.Second)
			b.ring()
			for j, c := range chans {
				left := false
				for _, gone := range []int{2, 0, 4, 1}[:n+1] {
					left = left || gone == j
				}
				if rung(c) == left {
					t.Fatalf("after %d left: bell %d rung is %v", n+1, j, left)
				}
			}
		}
	})
}
