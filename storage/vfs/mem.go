package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Mem is a file system in memory that knows what a power cut would leave of it. See [Mem.Crash] and
// [Mem.Kill]. Make one with [NewMem].
type Mem struct {
	mu    sync.Mutex
	root  *node
	names []nameChange        // changes of names that no SyncDir has covered, oldest first
	locks map[string]*memLock // by clean name
	open  map[*memFile]string // by handle, the name it was opened with
	used  int64               // bytes in files that have a name, whole pages
	total int64               // room for them
}

// node is a file or a directory: its live state, which every caller sees, and its saved one, which a
// power cut leaves. Its fields are guarded by the Mem's mutex.
type node struct {
	dir      bool
	mode     fs.FileMode
	children map[string]*node // of a directory: the names that callers see
	saved    map[string]*node // of a directory: the names on disk
	content                   // of a file

	place, savedPlace place // where the node has its one name, live and on disk
}

// place is a name in a directory; a nil directory is no place.
type place struct {
	dir  *node
	name string
}

// nameChange is a change of names that a power cut undoes or keeps as a whole: node got the place to,
// from wherever it was, or, when to is no place, lost its place from.
type nameChange struct {
	node     *node
	from, to place
}

// covers says whether a SyncDir of dir makes the change durable.
func (c nameChange) covers(dir *node) bool {
	if c.to.dir != nil {
		return c.to.dir == dir
	}
	return c.from.dir == dir
}

// NewMem returns an empty file system with a root directory and room without end.
func NewMem() *Mem {
	return &Mem{
		root:  newNode(true, 0o755),
		locks: map[string]*memLock{},
		open:  map[*memFile]string{},
		total: math.MaxInt64,
	}
}

func newNode(dir bool, perm fs.FileMode) *node {
	n := &node{dir: dir, mode: perm.Perm()}
	if dir {
		n.mode |= fs.ModeDir
		n.children, n.saved = map[string]*node{}, map[string]*node{}
	}
	return n
}

// SetSpace sets how many bytes fit into the file system. A write that finds no room is a short write
// with ENOSPC.
func (m *Mem) SetSpace(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = total
}

// OpenFiles lists the names of the files that are open, sorted, for a test that looks for leaks.
func (m *Mem) OpenFiles() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Values(m.open))
}

// parts splits a name into its elements; the root has none.
func parts(name string) []string {
	clean := filepath.ToSlash(filepath.Clean(name))
	clean = strings.TrimPrefix(clean, filepath.ToSlash(filepath.VolumeName(name)))
	return strings.FieldsFunc(clean, func(r rune) bool { return r == '/' })
}

// walk finds the node of a name.
func (m *Mem) walk(elements []string) (*node, error) {
	at := m.root
	for _, element := range elements {
		if !at.dir {
			return nil, syscall.ENOTDIR
		}
		if element == "." {
			continue
		}
		next, ok := at.children[element]
		if !ok {
			return nil, fs.ErrNotExist
		}
		at = next
	}
	return at, nil
}

// find is the place a name means, and the node there, which is nil when there is none.
func (m *Mem) find(name string) (place, *node, error) {
	elements := parts(name)
	if len(elements) == 0 || elements[len(elements)-1] == "." {
		at, err := m.walk(elements)
		return place{}, at, err
	}
	dir, err := m.walk(elements[:len(elements)-1])
	if err != nil {
		return place{}, nil, err
	}
	if !dir.dir {
		return place{}, nil, syscall.ENOTDIR
	}
	at := place{dir, elements[len(elements)-1]}
	return at, dir.children[at.name], nil
}

// move gives a node a new place, or none, and notes the change.
func (m *Mem) move(n *node, to place) {
	from := n.place
	if from.dir != nil {
		delete(from.dir.children, from.name)
		m.used -= n.pagesBytes()
	}
	if to.dir != nil {
		if old := to.dir.children[to.name]; old != nil {
			old.place = place{}
			m.used -= old.pagesBytes()
		}
		to.dir.children[to.name] = n
		m.used += n.pagesBytes()
	}
	n.place = to
	m.names = append(m.names, nameChange{n, from, to})
}

// apply carries a change out on the saved names.
func (c nameChange) apply() {
	n := c.node
	if was := n.savedPlace; was.dir != nil && (c.to.dir != nil || was == c.from) {
		delete(was.dir.saved, was.name)
		n.savedPlace = place{}
	}
	if c.to.dir == nil {
		return
	}
	if old := c.to.dir.saved[c.to.name]; old != nil {
		old.savedPlace = place{}
	}
	c.to.dir.saved[c.to.name] = n
	n.savedPlace = c.to
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens a file.
func (m *Mem) Open(name string, flag int, perm fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.openFile(name, flag, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

func (m *Mem) openFile(name string, flag int, perm fs.FileMode) (*memFile, error) {
	if flag&(os.O_APPEND|os.O_WRONLY) != 0 {
		return nil, fmt.Errorf("flag %#x: %w", flag, errors.ErrUnsupported)
	}
	at, n, err := m.find(name)
	switch {
	case err != nil:
		return nil, err
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case n == nil:
		n = newNode(false, perm)
		m.move(n, at)
	case n.dir:
		return nil, syscall.EISDIR
	case flag&os.O_EXCL != 0:
		return nil, fs.ErrExist
	}
	f := &memFile{fs: m, node: n, name: name, writable: flag&os.O_RDWR != 0}
	if flag&os.O_TRUNC != 0 {
		m.resize(n, 0)
	}
	m.open[f] = name
	return f, nil
}

// resize truncates a file and keeps the count of used bytes.
func (m *Mem) resize(n *node, size int64) {
	before := n.pagesBytes()
	n.truncate(size)
	if n.place.dir != nil {
		m.used += n.pagesBytes() - before
	}
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, err := m.find(name)
	switch {
	case err != nil:
	case n == nil:
		err = fs.ErrNotExist
	case n == m.root:
		err = fs.ErrInvalid
	case len(n.children) > 0:
		err = syscall.ENOTEMPTY
	default:
		m.move(n, place{})
	}
	return pathError("remove", name, err)
}

// RemoveAll removes a name and all below it.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, err := m.find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && n == nil:
		return nil
	case err == nil && n == m.root:
		err = fs.ErrInvalid
	case err == nil:
		m.removeTree(n)
	}
	return pathError("removeall", name, err)
}

// removeTree removes entry by entry, from the leaves up, so a power cut may leave any part of it.
func (m *Mem) removeTree(n *node) {
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		m.removeTree(n.children[name])
	}
	m.move(n, place{})
}

// Rename moves a file or directory.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (m *Mem) rename(from, to string) error {
	_, n, err := m.find(from)
	if err != nil {
		return err
	}
	at, old, err := m.find(to)
	switch {
	case err != nil:
		return err
	case n == nil:
		return fs.ErrNotExist
	case n == m.root || at.dir == nil:
		return fs.ErrInvalid
	case n == old:
		return nil
	case old != nil && old.dir != n.dir:
		return fs.ErrExist
	case old != nil && len(old.children) > 0:
		return syscall.ENOTEMPTY
	}
	for up := at.dir; up != nil; up = up.place.dir {
		if up == n {
			return fs.ErrInvalid // into itself
		}
	}
	m.move(n, at)
	return nil
}

// MkdirAll makes a directory and its missing parents.
func (m *Mem) MkdirAll(dir string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.root
	for _, element := range parts(dir) {
		if element == "." {
			continue
		}
		next := at.children[element]
		if next == nil {
			next = newNode(true, perm)
			m.move(next, place{at, element})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		at = next
	}
	return nil
}

// ReadDir lists a directory.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(parts(dir))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", dir, err)
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		entries = append(entries, n.children[name].info(name))
	}
	return entries, nil
}

func (n *node) info(name string) info { return info{name, n.size, n.mode} }

// Stat describes a file or directory.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(parts(name))
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(filepath.Base(name)), nil
}

// SyncDir makes the names in a directory durable.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(parts(dir))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("syncdir", dir, err)
	}
	m.names = slices.DeleteFunc(m.names, func(c nameChange) bool {
		if !c.covers(n) {
			return false
		}
		c.apply()
		return true
	})
	return nil
}

// Space says how much room there is.
func (m *Mem) Space(string) (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Space{Free: max(0, m.total-m.used), Total: m.total}, nil
}

// memLock is a lock that is held.
type memLock struct {
	fs   *Mem
	name string
}

// Lock takes a lock; it is in this process alone.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clean := strings.Join(parts(name), "/")
	if m.locks[clean] != nil {
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	}
	f, err := m.openFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	delete(m.open, f) // the lock holds the name, not the file
	lock := &memLock{m, clean}
	m.locks[clean] = lock
	return lock, nil
}

// Close ends the lock.
func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.fs.locks[l.name] != l {
		return pathError("unlock", l.name, fs.ErrClosed)
	}
	delete(l.fs.locks, l.name)
	return nil
}
