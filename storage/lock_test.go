package storage

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

const dataDir = "/srv/weir"

func openDir(t *testing.T, fsys vfs.FS, cfg DirConfig) *Dir {
	t.Helper()
	d, err := OpenDir(fsys, dataDir, cfg)
	must(t, err)
	return d
}

// refused asks for a refusal whose sentence has all of these words.
func refused(t *testing.T, fsys vfs.FS, cfg DirConfig, words ...string) {
	t.Helper()
	d, err := OpenDir(fsys, dataDir, cfg)
	if !fault.Is(err, fault.Validation) {
		t.Fatalf("got %+v, %v", d, err)
	}
	for _, word := range append(words, dataDir) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestADataDirectoryKeepsItsName(t *testing.T) {
	m := vfs.NewMem()
	first := openDir(t, m, DirConfig{NodeID: 3, BootID: "b1"})
	if !first.Fresh || first.Rebuilt || first.SameBoot || first.ClusterID == "" || first.ID.IsZero() || first.NodeID != 3 {
		t.Fatalf("%+v", first)
	}
	must(t, first.Close())
	for _, c := range []struct {
		boot string
		same bool
	}{{"b1", true}, {"b2", false}, {"b2", true}, {"", false}, {"", false}, {"b2", false}} {
		d := openDir(t, m, DirConfig{NodeID: 3, BootID: c.boot})
		if d.Fresh || d.Rebuilt || d.SameBoot != c.same || d.ClusterID != first.ClusterID || d.ID != first.ID {
			t.Fatalf("boot %q: %+v", c.boot, d)
		}
		must(t, d.Close())
	}
	d := openDir(t, m, DirConfig{ClusterID: first.ClusterID, NodeID: 3})
	must(t, d.Close())
	if left := m.OpenFiles(); len(left) > 0 {
		t.Fatalf("left open: %v", left)
	}
}

func TestADataDirectoryIsRefusedToOthers(t *testing.T) {
	m := vfs.NewMem()
	d := openDir(t, m, DirConfig{ClusterID: "ours", NodeID: 3})
	refused(t, m, DirConfig{NodeID: 3}, "uses this data directory", "process")
	must(t, d.Close())
	refused(t, m, DirConfig{NodeID: 4}, "node 3", "node 4")
	refused(t, m, DirConfig{ClusterID: "theirs", NodeID: 3}, "ours", "theirs")
	refused(t, m, DirConfig{NodeID: 0}, "at least 1")

	id, err := readIdentity(m, dataDir)
	must(t, err)
	id.Format = DirFormat + 1
	must(t, writeIdentity(m, dataDir, id))
	refused(t, m, DirConfig{NodeID: 3}, "newer")
	id.Format = -1
	must(t, writeIdentity(m, dataDir, id))
	refused(t, m, DirConfig{NodeID: 3}, "format -1")
	// A refused start lets go of the directory.
	id.Format = DirFormat
	must(t, writeIdentity(m, dataDir, id))
	must(t, openDir(t, m, DirConfig{NodeID: 3}).Close())
}

func TestADirectoryOfSomebodyElseIsNotFilled(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll(filepath.Join(dataDir, "photos"), 0o755))
	refused(t, m, DirConfig{NodeID: 1}, "photos", identityName)
}

func TestTheNameIsRebuiltFromItsSecondCopy(t *testing.T) {
	for name, spoil := range map[string]func(m *vfs.Mem) error{
		"gone":    func(m *vfs.Mem) error { return m.Remove(filepath.Join(dataDir, identityName)) },
		"damaged": func(m *vfs.Mem) error { return replaceFile(m, filepath.Join(dataDir, identityName), []byte("{\x00")) },
		"empty":   func(m *vfs.Mem) error { return replaceFile(m, filepath.Join(dataDir, identityName), []byte("{}")) },
	} {
		m := vfs.NewMem()
		first := openDir(t, m, DirConfig{NodeID: 3})
		must(t, m.MkdirAll(filepath.Join(dataDir, "topics"), 0o755))
		must(t, first.Close())
		must(t, spoil(m))
		d := openDir(t, m, DirConfig{NodeID: 3})
		if !d.Rebuilt || d.Fresh || d.ID != first.ID || d.ClusterID != first.ClusterID {
			t.Errorf("%s: %+v", name, d)
		}
		must(t, d.Close())
		if d = openDir(t, m, DirConfig{NodeID: 3}); d.Rebuilt {
			t.Errorf("%s: rebuilt twice", name)
		}
		must(t, d.Close())
		must(t, m.Remove(filepath.Join(dataDir, bootName)))
		must(t, openDir(t, m, DirConfig{NodeID: 3}).Close())
		must(t, m.Remove(filepath.Join(dataDir, bootName)))
		must(t, spoil(m))
		refused(t, m, DirConfig{NodeID: 3}, identityName)
	}
}

// A first start that ends anywhere leaves a directory that the next start takes, and once a start came
// through, its name stays.
func TestAFirstStartMayEndAnywhere(t *testing.T) {
	for nth := 1; ; nth++ {
		m := vfs.NewMem()
		f := vfs.NewFailing(m, vfs.Fault{Ops: vfs.ChangeOps | vfs.OpOpen | vfs.OpClose | vfs.OpLock | vfs.OpStat, Nth: nth, Err: syscall.EIO})
		d, err := OpenDir(f, dataDir, DirConfig{NodeID: 1, BootID: "b"})
		if f.Fired() > 0 && err == nil {
			t.Fatalf("operation %d failed and nobody heard of it", nth)
		}
		if left := m.OpenFiles(); len(left) > 0 && err != nil && !strings.Contains(err.Error(), "close") {
			t.Fatalf("operation %d failed and left open: %v", nth, left)
		}
		for seed := range uint64(40) {
			again, err := OpenDir(m.Crash(seed), dataDir, DirConfig{NodeID: 1})
			if err != nil {
				t.Fatalf("operation %d failed, crash %d, then: %v", nth, seed, err)
			}
			if d != nil && (again.ID != d.ID || again.Fresh) {
				t.Fatalf("crash %d: the directory has another name now", seed)
			}
		}
		if f.Fired() == 0 {
			must(t, err)
			return
		}
	}
}

func TestOnARealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, err := OpenDir(vfs.OS{}, dir, DirConfig{NodeID: 1, BootID: BootID()})
	must(t, err)
	if _, err := OpenDir(vfs.OS{}, dir, DirConfig{NodeID: 1}); err == nil || !strings.Contains(err.Error(), "uses this data directory") {
		t.Fatalf("the second one: %v", err)
	}
	must(t, d.Close())
	b, err := os.ReadFile(filepath.Join(dir, identityName))
	must(t, err)
	if !strings.Contains(string(b), d.ClusterID) {
		t.Fatalf("%s", b)
	}
	again, err := OpenDir(vfs.OS{}, dir, DirConfig{NodeID: 1, BootID: BootID()})
	must(t, err)
	if again.ID != d.ID || again.SameBoot != (BootID() != "") {
		t.Fatalf("%+v", again)
	}
	must(t, again.Close())
}

func TestABrokenDirectoryIDIsRefused(t *testing.T) {
	m := vfs.NewMem()
	must(t, openDir(t, m, DirConfig{NodeID: 1}).Close())
	id, err := readIdentity(m, dataDir)
	must(t, err)
	id.Directory = "nonsense"
	must(t, writeIdentity(m, dataDir, id))
	refused(t, m, DirConfig{NodeID: 1}, "nonsense")
	if id.Node != topic.NodeID(1) {
		t.Fatalf("%+v", id)
	}
}
