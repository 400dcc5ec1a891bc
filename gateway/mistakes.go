package gateway

import (
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
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

// err is nil where there are none.
func (m *mistakes) err(op string) error {
	if len(*m) == 0 {
		return nil
	}
	return fault.New(op, fault.Validation, nil, &problem.Invalid{Fields: *m})
}
