package vfs

// Hooked calls before ahead of each operation on below.
func Hooked(below FS, before func(op Op, bytes int)) FS {
	w := &wrapped{below: below}
	w.do = func(c call, run func(int) (int, error)) (int, error) {
		before(c.op, c.bytes)
		return run(c.bytes)
	}
	return w
}
