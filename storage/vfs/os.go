package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// OS is the machine's own file system.
type OS struct{}

var _ FS = OS{}

// Open opens a file.
func (OS) Open(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm) //nolint:gosec // names are made by storage, from ids and numbers
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

// Remove removes a file or an empty directory.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll removes a name and all below it.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// Rename moves a file or directory.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// MkdirAll makes a directory and its missing parents.
func (OS) MkdirAll(dir string, perm fs.FileMode) error { return os.MkdirAll(dir, perm) }

// ReadDir lists a directory.
func (OS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

// Stat describes a file or directory.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir makes the names in a directory durable.
func (OS) SyncDir(dir string) error { return syncDir(dir) }

// Space says how much room there is.
func (OS) Space(dir string) (Space, error) { return space(dir) }

// Lock takes an exclusive lock on a file, which it makes when there is none, and writes the process id
// into it for whoever is refused. The file stays when the lock ends: to remove it would let two
// processes lock two files of one name.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // the name is the caller's own
	if err != nil {
		return nil, err
	}
	held, err := lockFile(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	if held {
		locked := &LockedError{Name: name, PID: readPID(f)}
		return nil, errors.Join(locked, f.Close())
	}
	pid := strconv.AppendInt(nil, int64(os.Getpid()), 10)
	if err := errors.Join(f.Truncate(0), writeAll(f, append(pid, '\n'))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil // closing a file ends its lock, on each system
}

func writeAll(f io.WriterAt, content []byte) error {
	_, err := f.WriteAt(content, 0)
	return err
}

// readPID reads what Lock wrote; 0 when it is not there, as in the moment between lock and write.
func readPID(f io.ReaderAt) int {
	var buf [32]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// osFile is an *os.File whose Sync is the cheapest one that makes content and size durable.
type osFile struct{ *os.File }

// Sync makes the content and the size durable.
func (f *osFile) Sync() error { return syncFile(f.File) }

// Size is the file's size.
func (f *osFile) Size() (int64, error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}
