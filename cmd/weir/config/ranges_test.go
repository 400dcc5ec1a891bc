package config_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/weirlog/weir/cmd/weir/config"
)

// takes is what a setting takes, for the reference. The range of a number is not written down anywhere but in the
// checks, so these are asked: which values are taken, when all other settings have their defaults?
func takes(d config.Doc) string {
	var initial int64
	var err error
	print := func(n int64) string { return strconv.FormatInt(n, 10) }
	switch d.Kind {
	case "number":
		initial, err = strconv.ParseInt(d.Default, 10, 64)
	case "bytes":
		initial, err = config.ParseBytes(d.Default)
		print = config.PrintBytes
	case "time":
		var t time.Duration
		t, err = time.ParseDuration(d.Default)
		initial = int64(t)
		print = func(n int64) string { return config.PrintDuration(time.Duration(n)) }
	default:
		return d.Kind
	}
	if err != nil {
		return err.Error() // as good as a failure: the page does not say this
	}
	valid := func(n int64) bool {
		c := config.Default()
		text := strconv.FormatInt(n, 10)
		if d.Kind == "time" {
			text = time.Duration(n).String()
		}
		return config.Set(&c, d.Name, text) == nil && c.Validate() == nil
	}
	least := edge(-1, initial, valid)
	above := d.Kind == "time" && least == 1 // a nanosecond
	switch unbounded := valid(math.MaxInt64); {
	case unbounded && above:
		return d.Kind + ", more than 0"
	case unbounded:
		return d.Kind + ", at least " + print(least)
	case above:
		return d.Kind + ", up to " + print(edge(math.MaxInt64, initial, valid))
	default:
		return fmt.Sprintf("%s, %s to %s", d.Kind, print(least), print(edge(math.MaxInt64, initial, valid)))
	}
}

// edge is the last valid value on the way from one that is valid to one that is not.
func edge(invalid, good int64, valid func(int64) bool) int64 {
	for {
		middle := good + (invalid-good)/2
		switch {
		case middle == good:
			return good
		case valid(middle):
			good = middle
		default:
			invalid = middle
		}
	}
}

func TestEdge(t *testing.T) {
	from5to90 := func(n int64) bool { return n >= 5 && n <= 90 }
	if least, most := edge(-1, 50, from5to90), edge(math.MaxInt64, 50, from5to90); least != 5 || most != 90 {
		t.Errorf("%d to %d", least, most)
	}
}

// TestNothingNegativeIsTaken: edge may begin at -1.
func TestNothingNegativeIsTaken(t *testing.T) {
	for _, d := range config.Docs() {
		value := map[string]string{"number": "-1", "bytes": "-1", "time": "-1ns"}[d.Kind]
		c := config.Default()
		if value != "" && config.Set(&c, d.Name, value) == nil && c.Validate() == nil {
			t.Errorf("%s may be %s", d.Name, value)
		}
	}
}
