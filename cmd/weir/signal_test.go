package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestASignalMayComeTwice: what sends a signal to a process and to its group sends one.
func TestASignalMayComeTwice(t *testing.T) {
	for _, c := range []struct {
		second os.Signal
		after  time.Duration
		want   bool
	}{
		{os.Interrupt, 0, false},
		{os.Interrupt, echo - time.Millisecond, false},
		{os.Interrupt, echo, true},
		{syscall.SIGTERM, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, done, said := make(chan os.Signal, 2), make(chan struct{}), make(chan bool, 1)
			stopped := make(chan struct{})
			go func() { said <- secondSignal(got, done, func() { close(stopped) }) }()
			got <- os.Interrupt
			<-stopped
			time.Sleep(c.after)
			got <- c.second
			synctest.Wait()
			close(done)
			if second := <-said; second != c.want {
				t.Errorf("%v %v after the first counts as a second signal: %v", c.second, c.after, second)
			}
		})
	}
}
