//go:build unix

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(dir string) error {
	f, err := os.Open(dir) //nolint:gosec // the name is storage's own
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lockFile locks f, or says that another open file holds the lock. The lock is the open file's, so a
// second one in this process is refused too.
func lockFile(f *os.File) (held bool, err error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return false, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return true, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

func space(dir string) (Space, error) {
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(dir, &stat)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return Space{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
	block := int64(stat.Bsize) //nolint:unconvert // its type differs from system to system
	return Space{Free: int64(stat.Bavail) * block, Total: int64(stat.Blocks) * block}, nil
}
