package broker

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p pace
	at := time.UnixMilli(1_000_000)
	for i := range 30 {
		p.add(at.Add(time.Duration(i) * time.Millisecond))
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{
		{40 * time.Millisecond, 30},  // so far
		{150 * time.Millisecond, 30}, // in the window before
		{130 * time.Millisecond, 30}, // a clock that goes back a little
		{250 * time.Millisecond, 0},  // long ago
		{time.Hour, 0},
	} {
		if got := p.recent(at.Add(c.after)); got != c.want {
			t.Errorf("after %v: %d, want %d", c.after, got, c.want)
		}
	}
	p.add(at.Add(time.Hour))
	if got := p.recent(at.Add(time.Hour + 90*time.Millisecond)); got != 1 {
		t.Errorf("%d after an hour", got)
	}
}
