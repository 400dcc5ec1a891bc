package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// pageBytes is the unit in which content reaches the disk.
const pageBytes = 4096

// page is never written to once it stands in a file, so files, crashes and copies share it. A nil
// page is zeros.
type page = *[pageBytes]byte

// mostVersions bounds how many states of one page are kept between two syncs.
const mostVersions = 4

// content of a file: what callers see, what a power cut leaves for sure, and what may be between.
type content struct {
	size  int64
	pages []page

	savedSize  int64
	savedPages []page
	// dirty has, by page number, each state that the page got since the last sync, the newest last. The
	// system may have written any of them.
	dirty map[int64][]page
	// low is the smallest size since the last sync: behind it, old bytes may be gone.
	low int64
}

func pagesOf(size int64) int64 { return (size + pageBytes - 1) / pageBytes }

func (c *content) pagesBytes() int64 { return int64(len(c.pages)) * pageBytes }

// set puts a new state of a page in place.
func (c *content) set(number int64, p page) {
	c.pages[number] = p
	if c.dirty == nil {
		c.dirty = map[int64][]page{}
	}
	versions := append(c.dirty[number], p)
	if len(versions) > mostVersions {
		versions = versions[1:]
	}
	c.dirty[number] = versions
}

func (c *content) grow(size int64) {
	if size <= c.size {
		return
	}
	c.size = size
	for number := int64(len(c.pages)); number < pagesOf(size); number++ {
		c.pages = append(c.pages, nil)
		if number < int64(len(c.savedPages)) {
			c.set(number, nil) // it was cut off and comes back as zeros, which is not what is saved
		}
	}
}

func (c *content) write(b []byte, off int64) {
	c.grow(off + int64(len(b)))
	for len(b) > 0 {
		number, at := off/pageBytes, off%pageBytes
		fresh := new([pageBytes]byte)
		if old := c.pages[number]; old != nil {
			*fresh = *old
		}
		n := copy(fresh[at:], b)
		c.set(number, fresh)
		b, off = b[n:], off+int64(n)
	}
}

func (c *content) read(b []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	b = b[:min(int64(len(b)), c.size-off)]
	total := len(b)
	for len(b) > 0 {
		number, at := off/pageBytes, off%pageBytes
		var n int
		if p := c.pages[number]; p != nil {
			n = copy(b, p[at:])
		} else {
			n = min(len(b), int(pageBytes-at))
			clear(b[:n])
		}
		b, off = b[n:], off+int64(n)
	}
	return total
}

func (c *content) truncate(size int64) {
	if size >= c.size {
		c.grow(size)
		return
	}
	c.size, c.low = size, min(c.low, size)
	c.pages = c.pages[:pagesOf(size):pagesOf(size)]
	if at := size % pageBytes; at != 0 {
		if old := c.pages[len(c.pages)-1]; old != nil {
			fresh := new([pageBytes]byte)
			copy(fresh[:at], old[:at])
			c.set(int64(len(c.pages)-1), fresh)
		}
	}
}

func (c *content) sync() {
	if len(c.dirty) == 0 && c.savedSize == c.size && c.low == c.size {
		return
	}
	c.savedSize, c.low = c.size, c.size
	// Only what changed is copied: a log of many pages is synced after each of its appends.
	if len(c.savedPages) > len(c.pages) {
		c.savedPages = c.savedPages[:len(c.pages):len(c.pages)]
	}
	for number := int64(len(c.savedPages)); number < int64(len(c.pages)); number++ {
		c.savedPages = append(c.savedPages, c.pages[number])
	}
	for number := range c.dirty {
		if number < int64(len(c.pages)) {
			c.savedPages[number] = c.pages[number]
		}
	}
	c.dirty = nil
}

// memFile is an open file of a Mem.
type memFile struct {
	fs       *Mem
	node     *node
	name     string
	writable bool
}

// Name is the name that the file was opened with.
func (f *memFile) Name() string { return f.name }

// use locks the file system and refuses a file that is closed.
func (f *memFile) use(op string) error {
	f.fs.mu.Lock()
	if _, ok := f.fs.open[f]; !ok {
		f.fs.mu.Unlock()
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

// ReadAt reads.
func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.use("read"); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	n := f.node.read(b, off)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes, as much as there is room for.
func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.use("write"); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if !f.writable {
		return 0, pathError("write", f.name, syscall.EBADF)
	}
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	fits := b
	if n := f.node; n.place.dir != nil {
		before := n.pagesBytes()
		end := min(off+int64(len(b)), (before+f.fs.free())/pageBytes*pageBytes)
		fits = b[:max(0, end-off)]
		defer func() { f.fs.used += n.pagesBytes() - before }()
	}
	if len(fits) > 0 {
		f.node.write(fits, off)
	}
	if len(fits) < len(b) {
		return len(fits), pathError("write", f.name, syscall.ENOSPC)
	}
	return len(b), nil
}

func (m *Mem) free() int64 { return max(0, m.total-m.used) }

// Sync makes the content and the size durable.
func (f *memFile) Sync() error {
	if err := f.use("sync"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.node.sync()
	return nil
}

// Truncate sets the size.
func (f *memFile) Truncate(size int64) error {
	if err := f.use("truncate"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	switch {
	case !f.writable:
		return pathError("truncate", f.name, syscall.EBADF)
	case size < 0:
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	f.fs.resize(f.node, size)
	return nil
}

// Size is the file's size.
func (f *memFile) Size() (int64, error) {
	if err := f.use("size"); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return f.node.size, nil
}

// Close ends the use of the file.
func (f *memFile) Close() error {
	if err := f.use("close"); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	delete(f.fs.open, f)
	return nil
}

// String names the file for a failed test.
func (f *memFile) String() string { return fmt.Sprintf("mem file %s", f.name) }
