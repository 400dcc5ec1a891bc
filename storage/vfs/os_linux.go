package vfs

import (
	"errors"
	"os"
	"syscall"
)

// syncFile leaves the times of the file to the system: fdatasync writes content and size.
func syncFile(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = syscall.Fdatasync(int(fd)); !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		failed = os.ErrClosed // the only reason for which Control does not run
	}
	if failed != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: failed}
	}
	return nil
}
