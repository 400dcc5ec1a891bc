package vfs

import (
	"io"
	"io/fs"
	"strings"
)

// Op is a kind of operation, or a set of kinds.
type Op uint32

// The kinds of operation.
const (
	OpOpen Op = 1 << iota
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpSize
	OpClose
	OpRemove
	OpRemoveAll
	OpRename
	OpMkdirAll
	OpReadDir
	OpStat
	OpSyncDir
	OpLock
	OpSpace
	endOfOps

	AllOps = endOfOps - 1
	// ChangeOps are those that change what is on disk.
	ChangeOps = OpWrite | OpSync | OpTruncate | OpRemove | OpRemoveAll | OpRename | OpMkdirAll | OpSyncDir
)

var opNames = []string{
	"open", "read", "write", "sync", "truncate", "size", "close", "remove", "removeall", "rename", "mkdirall",
	"readdir", "stat", "syncdir", "lock", "space",
}

// String lists the kinds, as "write|sync".
func (o Op) String() string {
	var words []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, "|")
}

// call is one operation on its way through a wrapper.
type call struct {
	op    Op
	name  string // of the file or directory; of a rename the old one
	bytes int    // asked for by a read or write
}

// wrapped is a file system each of whose operations passes through do. run carries an operation out;
// of a write at most limit bytes. It returns the bytes that were read or written.
type wrapped struct {
	below FS
	do    func(c call, run func(limit int) (int, error)) (int, error)
}

func (w *wrapped) plain(op Op, name string, run func() error) error {
	_, err := w.do(call{op: op, name: name}, func(int) (int, error) { return 0, run() })
	return err
}

// Open opens a file.
func (w *wrapped) Open(name string, flag int, perm fs.FileMode) (File, error) {
	var f File
	err := w.plain(OpOpen, name, func() (err error) { f, err = w.below.Open(name, flag, perm); return err })
	if err != nil {
		return nil, orClose(err, f)
	}
	return &wrappedFile{w, f}, nil
}

// orClose closes what an operation opened although it is reported as failed.
func orClose(err error, c io.Closer) error {
	if c != nil {
		_ = c.Close() // the caller gets the injected error, and nobody else has the handle
	}
	return err
}

// Remove removes a file or an empty directory.
func (w *wrapped) Remove(name string) error {
	return w.plain(OpRemove, name, func() error { return w.below.Remove(name) })
}

// RemoveAll removes a name and all below it.
func (w *wrapped) RemoveAll(name string) error {
	return w.plain(OpRemoveAll, name, func() error { return w.below.RemoveAll(name) })
}

// Rename moves a file or directory.
func (w *wrapped) Rename(from, to string) error {
	return w.plain(OpRename, from, func() error { return w.below.Rename(from, to) })
}

// MkdirAll makes a directory and its missing parents.
func (w *wrapped) MkdirAll(dir string, perm fs.FileMode) error {
	return w.plain(OpMkdirAll, dir, func() error { return w.below.MkdirAll(dir, perm) })
}

// ReadDir lists a directory.
func (w *wrapped) ReadDir(dir string) (entries []fs.DirEntry, err error) {
	err = w.plain(OpReadDir, dir, func() (err error) { entries, err = w.below.ReadDir(dir); return err })
	return entries, err
}

// Stat describes a file or directory.
func (w *wrapped) Stat(name string) (stat fs.FileInfo, err error) {
	err = w.plain(OpStat, name, func() (err error) { stat, err = w.below.Stat(name); return err })
	return stat, err
}

// SyncDir makes the names in a directory durable.
func (w *wrapped) SyncDir(dir string) error {
	return w.plain(OpSyncDir, dir, func() error { return w.below.SyncDir(dir) })
}

// Lock takes a lock.
func (w *wrapped) Lock(name string) (io.Closer, error) {
	var lock io.Closer
	err := w.plain(OpLock, name, func() (err error) { lock, err = w.below.Lock(name); return err })
	if err != nil {
		return nil, orClose(err, lock)
	}
	return lock, nil
}

// Space says how much room there is.
func (w *wrapped) Space(dir string) (space Space, err error) {
	err = w.plain(OpSpace, dir, func() (err error) { space, err = w.below.Space(dir); return err })
	return space, err
}

type wrappedFile struct {
	w     *wrapped
	below File
}

func (f *wrappedFile) Name() string { return f.below.Name() }

func (f *wrappedFile) ReadAt(b []byte, off int64) (int, error) {
	return f.w.do(call{OpRead, f.Name(), len(b)}, func(limit int) (int, error) { return f.below.ReadAt(b[:limit], off) })
}

func (f *wrappedFile) WriteAt(b []byte, off int64) (int, error) {
	return f.w.do(call{OpWrite, f.Name(), len(b)}, func(limit int) (int, error) { return f.below.WriteAt(b[:limit], off) })
}

func (f *wrappedFile) Sync() error { return f.w.plain(OpSync, f.Name(), f.below.Sync) }

func (f *wrappedFile) Truncate(size int64) error {
	return f.w.plain(OpTruncate, f.Name(), func() error { return f.below.Truncate(size) })
}

func (f *wrappedFile) Size() (size int64, err error) {
	err = f.w.plain(OpSize, f.Name(), func() (err error) { size, err = f.below.Size(); return err })
	return size, err
}

func (f *wrappedFile) Close() error { return f.w.plain(OpClose, f.Name(), f.below.Close) }
