package run_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weirlog/weir/internal/run"
)

func TestOneFailureEndsTheGroupAndIsReturned(t *testing.T) {
	boom := errors.New("boom")
	g := run.NewGroup(t.Context())
	g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	g.Go("failer", func(context.Context) error { return boom })
	if err := g.Wait(); !errors.Is(err, boom) {
		t.Fatalf("got %v, want %v", err, boom)
	}
}

func TestAPanicBecomesAnErrorWithItsStack(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go("bad", func(context.Context) error { panic("torn") })
	var p *run.PanicError
	if err := g.Wait(); !errors.As(err, &p) || p.Value != "torn" || len(p.Stack) == 0 {
		t.Fatalf("got %v", err)
	}
}

func TestStopIsNotAnError(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Fatalf("got %v", err)
	}
}
