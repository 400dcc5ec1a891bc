package storage

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/weirlog/weir/storage/vfs"
)

// Files is the bounded set of open files and of indexes in memory that the logs of a node share. A
// file is opened when somebody uses it and stays open while it is in use or holds what was not synced
// yet; of the others the least recently used ones are closed. It is safe for concurrent use.
type Files struct {
	most       int
	indexBytes int64

	mu      sync.Mutex
	open    int           // open files; guarded by mu
	idle    list          // open files that may be closed, least recently used first; guarded by mu
	loaded  int64         // bytes of the indexes in cache; guarded by mu
	indexes []loadedIndex // of closed segments, for eviction with a second chance; guarded by mu
}

// Defaults for NewFiles.
const (
	DefaultOpenFiles  = 4096
	DefaultIndexBytes = 64 << 20
)

// NewFiles returns a set that keeps at most most files open, beside those that are in use or not yet
// synced, and about indexBytes of the indexes of closed segments in memory.
func NewFiles(most int, indexBytes int64) *Files {
	return &Files{most: most, indexBytes: indexBytes}
}

// Open is how many files are open now.
func (s *Files) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// errGone is for the reader that reached for a segment after it was deleted or replaced: there is a
// newer list of segments to look at.
var errGone = errors.New("the segment is not part of the log any more")

// file is a file that is opened when it is used. Its methods are safe for concurrent use.
type file struct {
	set  *Files
	fsys vfs.FS
	name string
	flag int // os.O_RDONLY or os.O_RDWR

	opening sync.Mutex // held by the one who opens

	// All below is guarded by set.mu.
	f        vfs.File // nil while closed
	users    int
	written  uint64 // counts writes
	synced   uint64 // writes before the last sync
	gone     bool   // deleted: nobody new may use it
	prev     *file  // neighbours in set.idle
	next     *file
	closeErr func(error) // told when closing failed; may be nil
}

// use opens the file if it is not, and keeps it open until the matching release.
func (f *file) use() (vfs.File, error) {
	f.set.mu.Lock()
	if f.gone {
		f.set.mu.Unlock()
		return nil, errGone
	}
	f.users++
	if f.f != nil {
		f.set.idle.remove(f)
		open := f.f
		f.set.mu.Unlock()
		return open, nil
	}
	f.set.mu.Unlock()
	open, err := f.openOnce()
	if err != nil {
		f.release()
		if errors.Is(err, fs.ErrNotExist) && f.isGone() {
			return nil, errGone
		}
		return nil, err
	}
	if f.isGone() { // what was opened may be a file that has taken over the name
		f.release()
		return nil, errGone
	}
	return open, nil
}

func (f *file) isGone() bool {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	return f.gone
}

func (f *file) openOnce() (vfs.File, error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.set.mu.Lock()
	open := f.f
	f.set.mu.Unlock()
	if open != nil {
		return open, nil
	}
	open, err := f.fsys.Open(f.name, f.flag, 0o644)
	if err != nil {
		return nil, err
	}
	f.adopt(open)
	return open, nil
}

// adopt takes over an open file, and closes others if there are too many now.
func (f *file) adopt(open vfs.File) {
	f.set.mu.Lock()
	f.f = open
	f.set.open++
	var old []*closing
	for f.set.open > f.set.most && f.set.idle.first != nil {
		old = append(old, f.set.idle.first.detach())
	}
	f.set.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// release ends a use.
func (f *file) release() {
	f.set.mu.Lock()
	f.users--
	c := f.settle()
	f.set.mu.Unlock()
	c.close()
}

// wrote notes that a write was made, so the file stays open until it is synced.
func (f *file) wrote() {
	f.set.mu.Lock()
	f.written++
	f.set.mu.Unlock()
}

// writes counts the writes so far, for didSync.
func (f *file) writes() uint64 {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	return f.written
}

// dirty says whether a write waits for a sync.
func (f *file) dirty() bool {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	return f.written != f.synced
}

// didSync notes that all writes up to a count are durable.
func (f *file) didSync(writes uint64) {
	f.set.mu.Lock()
	f.synced = max(f.synced, writes)
	f.set.mu.Unlock()
}

// remove lets nobody new use the file. It is closed with its last use.
func (f *file) remove() {
	f.set.mu.Lock()
	f.gone = true
	f.synced = f.written
	f.set.idle.remove(f)
	c := f.settle()
	f.set.mu.Unlock()
	c.close()
}

// rest closes the file if nobody uses it and nothing in it waits for a sync.
func (f *file) rest() {
	f.set.mu.Lock()
	var c *closing
	if f.f != nil && f.users == 0 && f.written == f.synced {
		c = f.detach()
	}
	f.set.mu.Unlock()
	c.close()
}

// settle decides what becomes of a file after a change. The set's lock is held.
func (f *file) settle() *closing {
	switch {
	case f.f == nil || f.users > 0 || f.written != f.synced:
		return nil
	case f.gone || f.set.open > f.set.most:
		return f.detach()
	default:
		f.set.idle.add(f)
		return nil
	}
}

// closing is a file on its way out, to be closed without a lock.
type closing struct {
	f    vfs.File
	tell func(error)
}

func (c *closing) close() {
	if c == nil {
		return
	}
	if err := c.f.Close(); err != nil && c.tell != nil {
		c.tell(err)
	}
}

// detach takes the open file out. The set's lock is held.
func (f *file) detach() *closing {
	f.set.idle.remove(f)
	c := &closing{f: f.f, tell: f.closeErr}
	f.f = nil
	f.set.open--
	return c
}

// list of files, least recently used first.
type list struct{ first, last *file }

func (l *list) has(f *file) bool { return f.prev != nil || f.next != nil || l.first == f }

func (l *list) add(f *file) {
	l.remove(f)
	f.prev = l.last
	if l.last != nil {
		l.last.next = f
	} else {
		l.first = f
	}
	l.last = f
}

func (l *list) remove(f *file) {
	if !l.has(f) {
		return
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.last = f.prev
	}
	f.prev, f.next = nil, nil
}

// create makes a new, empty file, or empties an old one of its name, and leaves it open.
func (f *file) create() error {
	open, err := f.fsys.Open(f.name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	f.set.mu.Lock()
	f.users++
	f.set.mu.Unlock()
	f.adopt(open)
	f.release()
	return nil
}

// loadedIndex is the index of a closed segment that is in memory.
type loadedIndex struct {
	index *index
	bytes int64
}

// keep counts an index that was loaded, and drops others from memory if there is too much now.
func (s *Files) keep(x *index, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexes = append(s.indexes, loadedIndex{x, bytes})
	s.loaded += bytes
	for chances := len(s.indexes); s.loaded > s.indexBytes && len(s.indexes) > 1; {
		oldest := s.indexes[0]
		s.indexes = s.indexes[1:]
		if chances > 0 && oldest.index.used.Swap(false) {
			chances--
			s.indexes = append(s.indexes, oldest)
			continue
		}
		oldest.index.forget()
		s.loaded -= oldest.bytes
	}
}
