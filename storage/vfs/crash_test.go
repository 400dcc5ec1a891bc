package vfs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
)

const pageBytes = 4096

// outcomes runs many crashes and counts what came out of them.
func outcomes(m *vfs.Mem, look func(after *vfs.Mem) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(500) {
		seen[look(m.Crash(seed))]++
	}
	return seen
}

// expect fails unless exactly these outcomes were seen.
func expect(t *testing.T, seen map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("%q never came out of a crash; seen: %v", w, seen)
		}
		delete(seen, w)
	}
	if len(seen) > 0 {
		t.Errorf("came out of a crash and must not: %v", seen)
	}
}

// saved makes a file whose name and content are on disk.
func saved(t *testing.T, m *vfs.Mem, name, content string) vfs.File {
	t.Helper()
	f := open(t, m, name)
	write(t, f, content, 0)
	must(t, f.Sync())
	must(t, m.SyncDir(filepath.Dir(name)))
	return f
}

func listing(t *testing.T, m *vfs.Mem, dir string) string {
	t.Helper()
	var words []string
	for _, name := range names(t, m, dir) {
		if !strings.HasSuffix(name, "/") {
			name += "=" + content(t, m, filepath.Join(dir, name))
		}
		words = append(words, name)
	}
	return strings.Join(words, " ")
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d/e", 0o755))
	must(t, m.SyncDir("/"))
	must(t, m.SyncDir("/d"))
	saved(t, m, "/d/e/f", "content")
	expect(t, outcomes(m, func(after *vfs.Mem) string { return listing(t, after, "/d/e") }), "f=content")
}

func TestCrashMayLoseANameThatWasNotSynced(t *testing.T) {
	m := vfs.NewMem()
	f := open(t, m, "/f")
	write(t, f, "content", 0)
	must(t, f.Sync())
	expect(t, outcomes(m, func(after *vfs.Mem) string { return listing(t, after, "/") }), "", "f=content")
}

func TestCrashMayLoseADirectoryWithAllThatIsSyncedInIt(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d", 0o755))
	saved(t, m, "/d/f", "content")
	expect(t, outcomes(m, func(after *vfs.Mem) string { return listing(t, after, "/") }), "", "d/")
}

func TestCrashMayBringARemovedFileBack(t *testing.T) {
	m := vfs.NewMem()
	saved(t, m, "/a", "1")
	saved(t, m, "/b", "2")
	must(t, m.Remove("/a"))
	must(t, m.Remove("/b"))
	see := func(after *vfs.Mem) string { return listing(t, after, "/") }
	expect(t, outcomes(m, see), "", "a=1", "b=2", "a=1 b=2")
	must(t, m.SyncDir("/"))
	expect(t, outcomes(m, see), "")
}

func TestCrashLeavesTheOldFileOrTheRenamedOne(t *testing.T) {
	m := vfs.NewMem()
	saved(t, m, "/f", "old")
	saved(t, m, "/f.tmp", "new")
	must(t, m.Rename("/f.tmp", "/f"))
	see := func(after *vfs.Mem) string { return listing(t, after, "/") }
	expect(t, outcomes(m, see), "f=old f.tmp=new", "f=new")
	must(t, m.SyncDir("/"))
	expect(t, outcomes(m, see), "f=new")
}

// The usual mistake: without a sync before the rename the new name may hold nothing.
func TestCrashShowsARenameThatOvertookTheContent(t *testing.T) {
	m := vfs.NewMem()
	saved(t, m, "/f", "old")
	f := open(t, m, "/f.tmp")
	write(t, f, "new", 0)
	must(t, m.Rename("/f.tmp", "/f"))
	must(t, m.SyncDir("/"))
	seen := outcomes(m, func(after *vfs.Mem) string { return listing(t, after, "/") })
	if seen["f="] == 0 || seen["f=new"] == 0 || seen["f=old"] != 0 {
		t.Fatalf("seen: %v", seen)
	}
}

func TestCrashWritesPagesInAnyOrder(t *testing.T) {
	m := vfs.NewMem()
	f := saved(t, m, "/f", strings.Repeat("a", 2*pageBytes))
	write(t, f, strings.Repeat("b", 2*pageBytes), 0)
	seen := outcomes(m, func(after *vfs.Mem) string {
		got := content(t, after, "/f")
		if len(got) != 2*pageBytes {
			t.Fatalf("the size became %d", len(got))
		}
		word := ""
		for _, page := range []string{got[:pageBytes], got[pageBytes:]} {
			switch strings.Count(page, "b") {
			case 0:
				word += "a"
			case pageBytes:
				word += "b"
			default:
				word += "x"
			}
		}
		return word
	})
	expect(t, seen, "aa", "bb", "ab", "ba", "ax", "xa", "bx", "xb", "xx")
}

func TestCrashMayKeepAnyOfSeveralWrites(t *testing.T) {
	m := vfs.NewMem()
	f := saved(t, m, "/f", "0")
	write(t, f, "1", 0)
	write(t, f, "2", 0)
	expect(t, outcomes(m, func(after *vfs.Mem) string { return content(t, after, "/f") }), "0", "1", "2")
}

func TestCrashMayKeepASizeWithoutItsPages(t *testing.T) {
	m := vfs.NewMem()
	f := saved(t, m, "/f", "")
	write(t, f, strings.Repeat("a", 2*pageBytes), 0)
	var zeros, short bool
	for seed := range uint64(500) {
		got := content(t, m.Crash(seed), "/f")
		if len(got) > 2*pageBytes {
			t.Fatalf("the file grew to %d", len(got))
		}
		if strings.Count(got, "a")+strings.Count(got, "\x00") != len(got) {
			t.Fatalf("seed %d made something up", seed)
		}
		zeros = zeros || strings.HasPrefix(got, "\x00")
		short = short || len(got)%pageBytes != 0
	}
	if !zeros || !short {
		t.Fatalf("seen a hole: %v, an odd size: %v", zeros, short)
	}
}

func TestCrashMayUndoATruncate(t *testing.T) {
	m := vfs.NewMem()
	f := saved(t, m, "/f", "abcdef")
	must(t, f.Truncate(3))
	seen := outcomes(m, func(after *vfs.Mem) string { return content(t, after, "/f") })
	for got := range maps.Keys(seen) {
		if !strings.HasPrefix("abcdef", got) && strings.TrimRight(got, "\x00") != "abc" || len(got) < 3 {
			t.Errorf("came out of a crash: %q", got)
		}
	}
	if seen["abc"] == 0 || seen["abcdef"] == 0 {
		t.Errorf("seen: %v", seen)
	}
	must(t, f.Sync())
	expect(t, outcomes(m, func(after *vfs.Mem) string { return content(t, after, "/f") }), "abc")
}

func TestWhatWasCutOffDoesNotComeBackAfterASync(t *testing.T) {
	m := vfs.NewMem()
	f := saved(t, m, "/f", strings.Repeat("a", 3*pageBytes))
	must(t, f.Truncate(10))
	write(t, f, "z", 3*pageBytes-1)
	must(t, f.Sync())
	want := strings.Repeat("a", 10) + strings.Repeat("\x00", 3*pageBytes-11) + "z"
	expect(t, outcomes(m, func(after *vfs.Mem) string { return content(t, after, "/f") }), want)
}

func TestTheSameSeedIsTheSameCrash(t *testing.T) {
	m := vfs.NewMem()
	for i := range 5 {
		f := open(t, m, fmt.Sprintf("/%d", i))
		write(t, f, strings.Repeat("a", 3*pageBytes), 0)
	}
	for seed := range uint64(50) {
		if a, b := listing(t, m.Crash(seed), "/"), listing(t, m.Crash(seed), "/"); a != b {
			t.Fatalf("seed %d gave two results", seed)
		}
	}
}

func TestKillKeepsWhatIsNotSyncedAndALaterCrashMayLoseIt(t *testing.T) {
	m := vfs.NewMem()
	f := open(t, m, "/f")
	write(t, f, "content", 0)
	lock, err := m.Lock("/lock")
	must(t, err)
	after := m.Kill()
	if got := listing(t, after, "/"); got != "f=content lock=" {
		t.Fatalf("after kill: %q", got)
	}
	if _, err := after.Lock("/lock"); err != nil {
		t.Fatalf("a killed process holds no lock: %v", err)
	}
	write(t, f, "changed", 0)
	must(t, lock.Close())
	if got := content(t, after, "/f"); got != "content" {
		t.Fatalf("the old process still writes: %q", got)
	}
	seen := outcomes(after, func(after *vfs.Mem) string { return listing(t, after, "/") })
	if seen[""] == 0 {
		t.Fatalf("seen: %v", seen)
	}
}

// After any history whatever was synced last is either there or was overwritten since.
func TestRandomHistoriesKeepTheirPromise(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := vfs.NewMem()
		f := saved(t, m, "/f", "")
		history := []string{""} // states since the last sync, that one included
		for range r.IntN(40) {
			switch r.IntN(4) {
			case 0:
				must(t, f.Sync())
				history = history[len(history)-1:]
			case 1:
				must(t, f.Truncate(int64(r.IntN(4*pageBytes))))
			default:
				write(t, f, strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(2*pageBytes)), int64(r.IntN(3*pageBytes)))
			}
			history = append(history, content(t, m, "/f"))
		}
		for crash := range uint64(5) {
			got := content(t, m.Crash(crash), "/f")
			for i := range got {
				if !possible(history, got, i) {
					t.Fatalf("seed %d, crash %d: byte %d was never that", seed, crash, i)
				}
			}
			least, most := len(history[0]), len(history[0])
			for _, state := range history {
				least, most = min(least, len(state)), max(most, len(state))
			}
			if len(got) < least || len(got) > most {
				t.Fatalf("seed %d, crash %d: size %d is not in %d..%d", seed, crash, len(got), least, most)
			}
		}
	}
}

func possible(history []string, got string, i int) bool {
	for _, state := range history {
		if i < len(state) && state[i] == got[i] || i >= len(state) && got[i] == 0 {
			return true
		}
	}
	return false
}

func TestAFullDiskIsAShortWrite(t *testing.T) {
	m := vfs.NewMem()
	m.SetSpace(2 * pageBytes)
	f := open(t, m, "/f")
	n, err := f.WriteAt(make([]byte, 3*pageBytes), 0)
	if n != 2*pageBytes || err == nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if space, err := m.Space("/"); err != nil || space.Free != 0 {
		t.Fatalf("%+v, %v", space, err)
	}
	if n, err := f.WriteAt(make([]byte, pageBytes), 100); n != pageBytes || err != nil {
		t.Fatalf("over what it has: wrote %d, %v", n, err)
	}
	must(t, f.Truncate(10))
	if space, err := m.Space("/"); err != nil || space.Free != pageBytes {
		t.Fatalf("%+v, %v", space, err)
	}
	must(t, f.Close())
	must(t, m.Remove("/f"))
	if space, err := m.Space("/"); err != nil || space.Free != 2*pageBytes {
		t.Fatalf("%+v, %v", space, err)
	}
	if _, err := os.Stat("/f"); err == nil {
		t.Fatal("the file system in memory wrote to the real one")
	}
}
