package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

func syncFile(f *os.File) error { return f.Sync() }

// syncDir does nothing: a directory cannot be flushed here, NTFS journals its names.
func syncDir(string) error { return nil }

// lockFile locks one byte far behind the content, so that the process id stays readable.
func lockFile(f *os.File) (held bool, err error) {
	far := &windows.Overlapped{OffsetHigh: 1 << 30}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, far)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return true, nil
	}
	return false, err
}

func space(dir string) (Space, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return Space{}, err
	}
	var free, total, unused uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, &total, &unused); err != nil {
		return Space{}, &os.PathError{Op: "space", Path: dir, Err: err}
	}
	return Space{Free: int64(free), Total: int64(total)}, nil //nolint:gosec // no disk has 2^63 bytes
}
