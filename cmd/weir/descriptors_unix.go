//go:build linux || darwin

package main

import (
	"math"
	"syscall"
)

// mostDescriptors is how many the system lets this process have. The runtime has raised the soft limit to
// the hard one by now.
func mostDescriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}
