package vfs

import (
	"io/fs"
	"sync"
	"time"
)

// Watched is a file system that tells when an operation of the one below takes too long. Make one with
// [NewWatched]. The operation itself goes on: nothing can end a call into a disk that hangs.
//
// RemoveAll is not watched, as it takes the longer the more there is, nor is Lock, which may wait.
type Watched struct {
	FS

	limit time.Duration
	hung  func(op Op, name string)
	pool  sync.Pool // of *watch that are not running
}

// NewWatched watches the operations on below. Of each that has taken limit, hung is told once, on a
// goroutine of its own.
func NewWatched(below FS, limit time.Duration, hung func(op Op, name string)) *Watched {
	return &Watched{FS: below, limit: limit, hung: hung}
}

// watchedReadBytes is the most that is read in one operation: a long read from a busy disk is no sign
// that it hangs, a read of this much is.
const watchedReadBytes = 1 << 20

// watch is a timer for one operation at a time.
type watch struct {
	fs    *Watched
	timer *time.Timer
	op    Op
	name  string
}

func (w *Watched) begin(op Op, name string) *watch {
	if x, ok := w.pool.Get().(*watch); ok {
		x.op, x.name = op, name
		x.timer.Reset(w.limit)
		return x
	}
	x := &watch{fs: w, op: op, name: name}
	x.timer = time.AfterFunc(w.limit, func() { w.hung(x.op, x.name) })
	return x
}

func (x *watch) end() {
	if x.timer.Stop() { // otherwise hung is being told, and reads what the next operation would change
		x.fs.pool.Put(x)
	}
}

// Open opens a file whose operations are watched too.
func (w *Watched) Open(name string, flag int, perm fs.FileMode) (File, error) {
	defer w.begin(OpOpen, name).end()
	f, err := w.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w}, nil
}

// Remove removes a file or an empty directory.
func (w *Watched) Remove(name string) error {
	defer w.begin(OpRemove, name).end()
	return w.FS.Remove(name)
}

// Rename moves a file or directory.
func (w *Watched) Rename(from, to string) error {
	defer w.begin(OpRename, from).end()
	return w.FS.Rename(from, to)
}

// MkdirAll makes a directory and its missing parents.
func (w *Watched) MkdirAll(dir string, perm fs.FileMode) error {
	defer w.begin(OpMkdirAll, dir).end()
	return w.FS.MkdirAll(dir, perm)
}

// ReadDir lists a directory.
func (w *Watched) ReadDir(dir string) ([]fs.DirEntry, error) {
	defer w.begin(OpReadDir, dir).end()
	return w.FS.ReadDir(dir)
}

// Stat describes a file or directory.
func (w *Watched) Stat(name string) (fs.FileInfo, error) {
	defer w.begin(OpStat, name).end()
	return w.FS.Stat(name)
}

// SyncDir makes the names in a directory durable.
func (w *Watched) SyncDir(dir string) error {
	defer w.begin(OpSyncDir, dir).end()
	return w.FS.SyncDir(dir)
}

// Space says how much room there is.
func (w *Watched) Space(dir string) (Space, error) {
	defer w.begin(OpSpace, dir).end()
	return w.FS.Space(dir)
}

type watchedFile struct {
	File

	fs *Watched
}

func (f *watchedFile) ReadAt(b []byte, off int64) (n int, err error) {
	for {
		got, err := f.read(b[n:min(len(b), n+watchedReadBytes)], off+int64(n))
		n += got
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

func (f *watchedFile) read(b []byte, off int64) (int, error) {
	defer f.fs.begin(OpRead, f.Name()).end()
	return f.File.ReadAt(b, off)
}

func (f *watchedFile) WriteAt(b []byte, off int64) (int, error) {
	defer f.fs.begin(OpWrite, f.Name()).end()
	return f.File.WriteAt(b, off)
}

func (f *watchedFile) Sync() error {
	defer f.fs.begin(OpSync, f.Name()).end()
	return f.File.Sync()
}

func (f *watchedFile) Truncate(size int64) error {
	defer f.fs.begin(OpTruncate, f.Name()).end()
	return f.File.Truncate(size)
}

func (f *watchedFile) Size() (int64, error) {
	defer f.fs.begin(OpSize, f.Name()).end()
	return f.File.Size()
}

func (f *watchedFile) Close() error {
	defer f.fs.begin(OpClose, f.Name()).end()
	return f.File.Close()
}
