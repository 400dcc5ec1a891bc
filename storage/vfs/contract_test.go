package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/storage/vfs"
)

// Every file system keeps the same contract, so what a test in memory shows holds on a disk.
func TestContract(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (vfs.FS, string){
		"OS":       func(t *testing.T) (vfs.FS, string) { return vfs.OS{}, t.TempDir() },
		"Mem":      func(*testing.T) (vfs.FS, string) { return vfs.NewMem(), "/" },
		"Failing":  func(*testing.T) (vfs.FS, string) { return vfs.NewFailing(vfs.NewMem()), "/" },
		"Counting": func(*testing.T) (vfs.FS, string) { return vfs.NewCounting(vfs.NewMem()), "/" },
		"Watched": func(t *testing.T) (vfs.FS, string) {
			return vfs.NewWatched(vfs.NewMem(), time.Hour, func(op vfs.Op, name string) { t.Errorf("%v of %s hangs", op, name) }), "/"
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, scene := range []struct {
				name string
				run  func(t *testing.T, fsys vfs.FS, dir string)
			}{
				{"a file holds what was written", sceneContent},
				{"truncate cuts and fills with zeros", sceneTruncate},
				{"open obeys its flags", sceneFlags},
				{"names", sceneNames},
				{"a lock is held once", sceneLock},
				{"a closed file is of no use", sceneClosed},
			} {
				t.Run(scene.name, func(t *testing.T) {
					fsys, dir := make(t)
					scene.run(t, fsys, dir)
				})
			}
		})
	}
}

func open(t *testing.T, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f vfs.File, s string, off int64) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	must(t, err)
	if n != len(s) {
		t.Fatalf("wrote %d of %d bytes without an error", n, len(s))
	}
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<30)
	must(t, err)
	return string(b)
}

func sceneContent(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	f := open(t, fsys, name)
	if f.Name() != name {
		t.Fatalf("the name is %q", f.Name())
	}
	write(t, f, "hello", 0)
	write(t, f, "world", 5000) // over a hole and a page
	write(t, f, "J", 0)
	must(t, f.Sync())
	want := "Jello" + strings.Repeat("\x00", 4995) + "world"
	if got := content(t, fsys, name); got != want {
		t.Fatalf("got %q", got)
	}
	size, err := f.Size()
	must(t, err)
	if size != 5005 {
		t.Fatalf("size %d", size)
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 5000); n != 5 || !errors.Is(err, io.EOF) || string(b[:n]) != "world" {
		t.Fatalf("a read over the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(b, 9000); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("a read behind the end: %d, %v", n, err)
	}
	must(t, f.Close())
	if _, err := vfs.ReadFile(fsys, name, 5004); err == nil {
		t.Fatal("a file larger than allowed was read")
	}
}

func sceneTruncate(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	f := open(t, fsys, name)
	defer func() { must(t, f.Close()) }()
	write(t, f, strings.Repeat("x", 10_000), 0)
	must(t, f.Truncate(4100))
	must(t, f.Truncate(9000))
	want := strings.Repeat("x", 4100) + strings.Repeat("\x00", 4900)
	if got := content(t, fsys, name); got != want {
		t.Fatal("what was cut off came back")
	}
}

func sceneFlags(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	if _, err := fsys.Open(name, os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file: %v", err)
	}
	f := open(t, fsys, name)
	write(t, f, "old", 0)
	must(t, f.Close())
	if _, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a file that must be new: %v", err)
	}
	f, err := fsys.Open(name, os.O_RDONLY, 0)
	must(t, err)
	if _, err := f.WriteAt([]byte("new"), 0); err == nil {
		t.Fatal("wrote to a file that is open for reading")
	}
	must(t, f.Close())
	f, err = fsys.Open(name, os.O_RDWR|os.O_TRUNC, 0)
	must(t, err)
	must(t, f.Close())
	if got := content(t, fsys, name); got != "" {
		t.Fatalf("after O_TRUNC: %q", got)
	}
}

func names(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	var list []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		list = append(list, name)
	}
	return list
}

func sceneNames(t *testing.T, fsys vfs.FS, dir string) {
	at := func(elements ...string) string { return filepath.Join(append([]string{dir}, elements...)...) }
	want := func(where string, list ...string) {
		t.Helper()
		if got := names(t, fsys, at(where)); !slices.Equal(got, list) {
			t.Fatalf("%s holds %v, want %v", where, got, list)
		}
	}
	must(t, fsys.MkdirAll(at("d", "e"), 0o755))
	must(t, fsys.MkdirAll(at("d", "e"), 0o755))
	for _, name := range []string{"b", "a"} {
		f := open(t, fsys, at("d", name))
		write(t, f, name, 0)
		must(t, f.Close())
	}
	want("d", "a", "b", "e/")
	must(t, fsys.Rename(at("d", "a"), at("d", "b")))
	want("d", "b", "e/")
	if got := content(t, fsys, at("d", "b")); got != "a" {
		t.Fatalf("the file that was renamed holds %q", got)
	}
	must(t, fsys.SyncDir(at("d")))
	must(t, fsys.Rename(at("d"), at("f")))
	want("f", "b", "e/")
	stat, err := fsys.Stat(at("f", "b"))
	must(t, err)
	if stat.Name() != "b" || stat.Size() != 1 || stat.IsDir() {
		t.Fatalf("stat says %v", stat)
	}
	if there, err := vfs.Exists(fsys, at("d", "b")); there || err != nil {
		t.Fatalf("the old name: %v, %v", there, err)
	}
	for what, err := range map[string]error{
		"remove":       fsys.Remove(at("d")),
		"rename":       fsys.Rename(at("d"), at("g")),
		"syncdir":      fsys.SyncDir(at("d")),
		"rename below": fsys.Rename(at("f", "b"), at("no", "b")),
	} {
		if what == "syncdir" && !strings.HasPrefix(dir, "/") {
			continue // Windows has nothing to sync
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
	if err := fsys.Remove(at("f")); err == nil {
		t.Fatal("removed a directory that was not empty")
	}
	must(t, fsys.Remove(at("f", "e")))
	must(t, fsys.RemoveAll(at("f")))
	must(t, fsys.RemoveAll(at("f")))
	want(".")
	space, err := fsys.Space(dir)
	must(t, err)
	if space.Free <= 0 || space.Total < space.Free {
		t.Fatalf("space %+v", space)
	}
}

func sceneLock(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "lock")
	lock, err := fsys.Lock(name)
	must(t, err)
	_, err = fsys.Lock(name)
	var held *vfs.LockedError
	if !errors.As(err, &held) || held.PID != os.Getpid() || !strings.Contains(err.Error(), name) {
		t.Fatalf("the second lock: %v", err)
	}
	must(t, lock.Close())
	lock, err = fsys.Lock(name)
	must(t, err)
	must(t, lock.Close())
}

func sceneClosed(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"))
	must(t, f.Close())
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	_, writeErr := f.WriteAt([]byte{1}, 0)
	_, sizeErr := f.Size()
	for what, err := range map[string]error{
		"read": readErr, "write": writeErr, "size": sizeErr,
		"sync": f.Sync(), "truncate": f.Truncate(0), "close": f.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed file: %v", what, err)
		}
	}
}

func TestAnOpenFileOutlivesItsName(t *testing.T) {
	m := vfs.NewMem()
	f := open(t, m, "/a")
	write(t, f, "still here", 0)
	must(t, m.Remove("/a"))
	b := make([]byte, 10)
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, []byte("still here")) {
		t.Fatalf("%q, %v", b, err)
	}
	if got := m.OpenFiles(); !slices.Equal(got, []string{"/a"}) {
		t.Fatalf("open: %v", got)
	}
	must(t, f.Close())
	if got := m.OpenFiles(); len(got) != 0 {
		t.Fatalf("open: %v", got)
	}
}
