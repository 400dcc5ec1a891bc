package run_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/weirlog/weir/internal/run"
)

// diary notes what happened, from several goroutines.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// floor is a task that notes its start and its end, and ends with err.
func (d *diary) floor(name string, err error) func(context.Context, func()) error {
	return func(ctx context.Context, ready func()) error {
		d.note("start " + name)
		ready()
		<-ctx.Done()
		d.note("stop " + name)
		return err
	}
}

func TestAStackStopsInReverse(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var d diary
	s := run.NewStack(ctx)
	for _, name := range []string{"files", "partitions", "door"} {
		if err := s.Start(name, d.floor(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := s.Wait(); err != nil {
		t.Fatalf("an ordinary stop returned %v", err)
	}
	want := []string{"start files", "start partitions", "start door", "stop door", "stop partitions", "stop files"}
	if !slices.Equal(d.lines, want) {
		t.Fatalf("got %v, want %v", d.lines, want)
	}
}

func TestAFloorThatFailsStopsTheOnesAboveFirst(t *testing.T) {
	boom := errors.New("boom")
	broken := make(chan struct{})
	var d diary
	s := run.NewStack(t.Context())
	err := errors.Join(
		s.Start("files", d.floor("files", nil)),
		s.Start("partitions", func(_ context.Context, ready func()) error {
			ready()
			<-broken
			return boom
		}),
		s.Start("door", d.floor("door", nil)),
	)
	if err != nil {
		t.Fatal(err)
	}
	close(broken)
	if err := s.Wait(); !errors.Is(err, boom) || err.Error() != "partitions: boom" {
		t.Fatalf("got %v", err)
	}
	if want := []string{"start files", "start door", "stop door", "stop files"}; !slices.Equal(d.lines, want) {
		t.Fatalf("got %v, want %v", d.lines, want)
	}
}

func TestAFloorThatIsNeverReadyFailsTheStart(t *testing.T) {
	for _, c := range []struct {
		name string
		task func(context.Context, func()) error
		want string
	}{
		{"error", func(context.Context, func()) error { return errors.New("no port") }, "door: no port"},
		{"nil", func(context.Context, func()) error { return nil }, "door: has ended by itself"},
		{"panic", func(context.Context, func()) error { panic("torn") }, "door: door: panic: torn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d diary
			s := run.NewStack(t.Context())
			if err := s.Start("files", d.floor("files", nil)); err != nil {
				t.Fatal(err)
			}
			if err := s.Start("door", c.task); err == nil || err.Error() != c.want {
				t.Fatalf("start: got %v, want %q", err, c.want)
			}
			if err := s.Wait(); err == nil || err.Error() != c.want {
				t.Fatalf("wait: got %v, want %q", err, c.want)
			}
			if want := []string{"start files", "stop files"}; !slices.Equal(d.lines, want) {
				t.Fatalf("got %v", d.lines)
			}
		})
	}
}

func TestAStopWhileStartingLeavesNothingRunning(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var d diary
	s := run.NewStack(ctx)
	err := s.Start("files", func(ctx context.Context, _ func()) error {
		stop()
		<-ctx.Done()
		d.note("stopped")
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("start: got %v", err)
	}
	if err := s.Start("door", d.floor("door", nil)); !errors.Is(err, context.Canceled) {
		t.Fatalf("second start: got %v", err)
	}
	if err := s.Wait(); err != nil {
		t.Fatalf("wait: got %v", err)
	}
	if want := []string{"stopped"}; !slices.Equal(d.lines, want) {
		t.Fatalf("got %v", d.lines)
	}
}
