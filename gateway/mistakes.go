package gateway

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// mistakes collects what is wrong with a request, so that all of it is told at once.
type mistakes []problem.Field

func (m *mistakes) add(fields ...problem.Field) { *m = append(*m, fields...) }

// atLeastOne reads a number that may be missing, which is 0.
func (m *mistakes) atLeastOne(field string, n *int32) int {
	switch {
	case n == nil:
		return 0
	case *n < 1:
		m.add(problem.Field{Name: field, Message: "must be at least 1"})
		return 0
	default:
		return int(*n)
	}
}

// name adds what is wrong with the name of a topic.
func (m *mistakes) name(field, text string, err error) {
	var name *topic.NameError
	if errors.As(err, &name) {
		m.add(problem.Field{Name: field, Message: quote(text) + " " + name.Why})
	}
}

// within reads a number that may be missing, and then is initial.
func (m *mistakes) within(field string, n *int, initial, least, most int) int {
	switch {
	case n == nil:
		return initial
	case *n < least || *n > most:
		m.add(problem.Field{Name: field, Message: fmt.Sprintf("must be a whole number from %d to %d", least, most)})
		return initial
	default:
		return *n
	}
}

// at reads a position: earliest, latest, or ts: and a time.
func (m *mistakes) at(field, text string) topic.At {
	switch text {
	case "earliest":
		return topic.At{Kind: topic.AtEarliest}
	case "latest":
		return topic.At{Kind: topic.AtLatest}
	}
	if time, ok := strings.CutPrefix(text, "ts:"); ok {
		if ms, err := topic.ParseMillis(time); err == nil {
			return topic.At{Kind: topic.AtTime, Time: ms}
		}
	}
	m.add(problem.Field{Name: field, Message: "must be earliest, latest, or ts:<milliseconds since 1970, or RFC 3339>"})
	return topic.At{}
}

// mostMistakes is how many are told at once.
const mostMistakes = 100

// err is nil where there are none.
func (m *mistakes) err(op string) error {
	if len(*m) == 0 {
		return nil
	}
	return fault.New(op, fault.Validation, nil, &problem.Invalid{Fields: (*m)[:min(len(*m), mostMistakes)]})
}
