package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
			go func() { said <- secondSignal(got, done, func(os.Signal) { close(stopped) }) }()
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

// TestTheExitCodeSaysWhichSignal: shells and supervisors tell by it what ended a client command.
func TestTheExitCodeSaysWhichSignal(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		asked, over := make(chan struct{}, 8), make(chan struct{})
		node := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-over:
			}
		}))
		cmd := exec.Command(os.Args[0], "topic", "list", "--server", node.URL)
		cmd.Env = append(os.Environ(), asWeir+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
			t.Error("the command asks nothing")
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // its error is the exit code
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%v: the exit code is %d, want %d", sig, got, want)
		}
		close(over)
		node.Close()
	}
}
