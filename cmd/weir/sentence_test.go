package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/weirlog/weir/internal/fault"
)

func TestSentence(t *testing.T) {
	held := fault.Newf("storage.OpenDir", fault.Validation, "./weir-data", "process 7 uses this data directory")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{held, "./weir-data: process 7 uses this data directory"},
		{fmt.Errorf("start: %w", held), "start: ./weir-data: process 7 uses this data directory"},
		{errors.Join(held, errors.New("and")), "./weir-data: process 7 uses this data directory\nand"},
		{fault.New("storage.Dump", fault.NotFound, "no/such", &fs.PathError{Op: "open", Path: "no/such", Err: fs.ErrNotExist}), "open no/such: file does not exist"},
		{fault.New("a.B", fault.Internal, "x", fmt.Errorf("outer: %w", fault.Newf("c.D", fault.Corrupt, "y", "inner"))), "x: outer: y: inner"},
		{usageError{"weir", held}, "./weir-data: process 7 uses this data directory"},
	} {
		if got := sentence(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
