package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// probe listens on an address for a moment, so that one that cannot be had is said before a data directory
// is made for it.
func probe(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return hinted(address, err)
	}
	return l.Close()
}

// hinted adds to an error of listening what to do about it.
func hinted(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s: %w; is a node running there? Choose another with --http HOST:PORT (setting http.address); port 0 takes a free one",
			address, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("cannot listen on %s: %w; choose a port above 1023 with --http HOST:PORT (setting http.address)", address, syscall.EACCES)
	default:
		return err
	}
}
