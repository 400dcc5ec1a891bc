// Package vfs is the file system as the storage sees it: the real one, one in memory that can lose
// power, one whose operations fail when a test says so, and one that counts.
//
// Everything that storage does to a disk goes through an [FS]. [OS] is the machine's own; [Mem] keeps
// files in memory and knows, page by page, what was synced, so that [Mem.Crash] returns what a disk may
// hold after a power cut; [Failing] wraps another and fails the n-th operation of a kind; [Counting]
// wraps another and counts operations and bytes; [Watched] wraps another and tells when one of its
// operations hangs.
//
// The promises that storage may build on, and no others:
//
//   - What a file held when Sync returned nil survives a power cut, its size included. What was written
//     since may survive in part, page by page and in any order.
//   - A name that was created, renamed or removed is so after a power cut only once SyncDir of its
//     directory returned nil. Until then each change of a name may be undone on its own; a rename that
//     replaces a file leaves the old file or the new one under the name, never none.
//   - When Sync failed, nobody knows what is on disk, and another Sync says nothing about it.
//
// Names are plain file names with the semantics of path/filepath.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// FS is a file system. It is safe for concurrent use. Errors match fs.ErrNotExist, fs.ErrExist and
// syscall.ENOSPC with errors.Is where those are meant.
type FS interface {
	// Open opens a file as os.OpenFile does; flag is of os.O_RDONLY, O_RDWR, O_CREATE, O_EXCL and O_TRUNC.
	Open(name string, flag int, perm fs.FileMode) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a name and all below it; a name that is not there is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory. A file that has the new name is replaced.
	Rename(from, to string) error
	// MkdirAll makes a directory and its missing parents. Each parent that got a new entry needs a SyncDir.
	MkdirAll(dir string, perm fs.FileMode) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable, not what the files hold.
	SyncDir(dir string) error
	// Lock takes a lock that ends with Close or with the process. When another holds it, in this
	// process or elsewhere, the error is a *LockedError.
	Lock(name string) (io.Closer, error)
	// Space says how much room the file system below dir has.
	Space(dir string) (Space, error)
}

// File is an open file. ReadAt and WriteAt may be called from several goroutines at once, and beside
// a Sync, which then covers those writes that had returned before it began.
type File interface {
	io.ReaderAt // a read that ends at or after the end of the file returns io.EOF with what there was
	io.WriterAt // a short write returns an error with the number of bytes that were written
	// Sync makes the content and the size durable, not the name.
	Sync() error
	// Truncate sets the size; what is added reads as zeros.
	Truncate(size int64) error
	// Size is the file's size in bytes.
	Size() (int64, error)
	// Close ends the use of this File. It does not sync.
	Close() error
	// Name is the name that the file was opened with.
	Name() string
}

// Space of a file system, in bytes.
type Space struct {
	Free  int64 // what this process may still take
	Total int64
}

// LockedError says that a lock is held by another.
type LockedError struct {
	Name string // of the lock's file
	PID  int    // of the process that holds it; 0 when the file does not say
}

// Error names the holder.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Name)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Name, e.PID)
}

// ErrTooLarge is in the chain of ReadFile's error about a file that is larger than it may be.
var ErrTooLarge = errors.New("the file is too large")

// ReadFile reads a whole file of at most most bytes. A larger one is an error, so that a damaged size
// never fills the memory.
func ReadFile(fsys FS, name string, most int64) (content []byte, err error) {
	f, err := fsys.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are expected", ErrTooLarge, name, size, most)
	}
	content = make([]byte, size)
	n, err := f.ReadAt(content, 0)
	if n == len(content) || errors.Is(err, io.EOF) { // shorter: somebody cut it meanwhile
		return content[:n], nil
	}
	return nil, err
}

// Exists says whether a name is there.
func Exists(fsys FS, name string) (bool, error) {
	switch _, err := fsys.Stat(name); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

// info is the FileInfo and DirEntry of the file systems that are not the machine's own.
type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (i info) Name() string               { return i.name }
func (i info) Size() int64                { return i.size }
func (i info) Mode() fs.FileMode          { return i.mode }
func (i info) ModTime() time.Time         { return time.Time{} }
func (i info) IsDir() bool                { return i.mode.IsDir() }
func (i info) Sys() any                   { return nil }
func (i info) Type() fs.FileMode          { return i.mode.Type() }
func (i info) Info() (fs.FileInfo, error) { return i, nil }
