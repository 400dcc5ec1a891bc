package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirlog/weir/internal/fault"
)

func TestErrorPrintsOperationPlaceKindAndSentence(t *testing.T) {
	err := fault.New("storage.Append", fault.Fenced, "orders/3", errors.New("epoch 7 is over, the leader is now in 8"))
	want := "storage.Append orders/3: fenced: epoch 7 is over, the leader is now in 8"
	if err.Error() != want {
		t.Fatalf("got %q, want %q", err, want)
	}
	if got := fault.Sentence(fmt.Errorf("outer: %w", err)); got != "epoch 7 is over, the leader is now in 8" {
		t.Fatalf("sentence is %q", got)
	}
}

func TestKindOfLooksThroughWrappingAndKnowsContexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Kind
	}{
		{fmt.Errorf("more: %w", fault.Newf("x.Y", fault.NoTopic, nil, "no")), fault.NoTopic},
		{context.DeadlineExceeded, fault.Timeout},
		{fmt.Errorf("wait: %w", context.Canceled), fault.Closed},
		{errors.New("anything"), fault.Internal},
	} {
		if got := fault.KindOf(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
	if fault.Is(nil, fault.Internal) {
		t.Error("a nil error has no kind")
	}
}

func TestEveryKindHasItsOwnCode(t *testing.T) {
	seen := map[string]fault.Kind{}
	for _, k := range fault.Kinds() {
		code := k.String()
		if code == "" {
			t.Errorf("kind %d has no code", k)
		}
		if other, twice := seen[code]; twice {
			t.Errorf("kinds %d and %d share the code %q", k, other, code)
		}
		seen[code] = k
		if k.Unknown() && !k.Retryable() {
			t.Errorf("%v: an unknown outcome must say that a retry is possible", k)
		}
	}
}
