package broker

import (
	"fmt"
	"slices"
	"testing"
)

func TestProduceFetch(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 2)
	for i := range 50 {
		got := r.produce("orders", to(0, fmt.Sprint("v", 2*i)), to(0, fmt.Sprint("v", 2*i+1)))
		if got[0].Offset != 0 && int(got[0].Offset) != 2*i || got[1].Offset != got[0].Offset+1 {
			t.Fatalf("call %d: offsets %d, %d", i, got[0].Offset, got[1].Offset)
		}
	}
	if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 100)) {
		t.Errorf("read %v", got)
	}
	if got := r.values("orders", 1, 0); got != nil {
		t.Errorf("partition 1 has %v", got)
	}
	r.stop()
}
