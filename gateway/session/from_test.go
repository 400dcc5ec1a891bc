package session_test

import (
	"reflect"
	"testing"

	"github.com/weirlog/weir/gateway/session"
)

func TestPositionsOfAQuery(t *testing.T) {
	for text, want := range map[string]session.From{
		"":                               {Kind: session.Earliest},
		"earliest":                       {Kind: session.Earliest},
		"latest":                         {Kind: session.Latest},
		"-3":                             {Kind: session.Last, Last: 3},
		"ts:1500":                        {Kind: session.Time, Time: 1500},
		"ts:1970-01-01T00:00:01.5Z":      {Kind: session.Time, Time: 1500},
		"ts:1970-01-01T01:00:01.5+01:00": {Kind: session.Time, Time: 1500},
		"ts:1970-01-01T01:00:01.5 01:00": {Kind: session.Time, Time: 1500}, // a + that was not escaped
	} {
		if got, err := session.ParseFrom(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-0", "--1", "ts:", "ts:-1", "ts:soon", "ts:1970-01-01", "Latest", "c1.!"} {
		if got, err := session.ParseFrom(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
