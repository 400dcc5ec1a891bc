package storage

import (
	"errors"
	"fmt"

	"github.com/weirlog/weir/internal/fault"
)

// finalError is the disk's last word: after it nobody knows what the disk holds.
type finalError struct {
	op  string // "fsync 00000000000000000000.log"
	err error
}

func (e *finalError) Error() string { return fmt.Sprintf("%s: %v", e.op, e.err) }
func (e *finalError) Unwrap() error { return e.err }

// Final says that err ends the log: a sync, cut, rename or close failed, or a write with something
// other than a lack of room. Nothing that was not acknowledged may be acknowledged any more, and the
// process must end.
func Final(err error) bool {
	var final *finalError
	return errors.As(err, &final)
}

// fail makes err the log's last word and returns the first such.
func (l *Log) fail(op string, err error) error {
	first := fault.New("storage", fault.Internal, l.cfg.Path, &finalError{op, err})
	if !l.failed.CompareAndSwap(nil, &first) {
		return *l.failed.Load()
	}
	return first
}

// Failed is the error that ended the log, or nil.
func (l *Log) Failed() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}
