package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/weirlog/weir/internal/fault"
)

// sentence is an error's text for a person at a terminal: operations and kinds, which are for programs and
// logs, are left out, and the place is kept where the words do not name it.
func sentence(err error) string {
	text := err.Error()
	for e := range faults(err) {
		words := e.Err.Error()
		if e.Where != "" && !strings.Contains(words, e.Where) && !strings.Contains(words, filepath.Clean(e.Where)) {
			words = e.Where + ": " + words
		}
		text = strings.Replace(text, e.Error(), words, 1)
	}
	return text
}

// faults walks the faults in an error, the outer ones first.
func faults(err error) func(yield func(*fault.Error) bool) {
	return func(yield func(*fault.Error) bool) { walkFaults(err, yield) }
}

func walkFaults(err error, yield func(*fault.Error) bool) bool {
	if e, ok := err.(*fault.Error); ok && !yield(e) { //nolint:errorlint // the walk unwraps
		return false
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the walk unwraps
		for _, below := range joined.Unwrap() {
			if !walkFaults(below, yield) {
				return false
			}
		}
		return true
	}
	below := errors.Unwrap(err)
	return below == nil || walkFaults(below, yield)
}
