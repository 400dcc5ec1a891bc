//go:build unix

package gateway

import (
	"errors"
	"syscall"
)

// hungUp says whether the client has closed its end, without taking a byte of what it may have sent: a next
// request that waits already is a sign of life. A client that only has no more to send is taken for one
// that is gone; nothing tells them apart.
func (c *conn) hungUp() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == nil:
			gone = n == 0
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
		default:
			gone = true
		}
	})
	return gone || err != nil
}
