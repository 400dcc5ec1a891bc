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
	if failed != nil {
		failed = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: failed}
	}
	return errors.Join(err, failed)
}
