package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// contentOf lists every file below a directory with its content.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, content := range a {
		if other, ok := b[name]; !ok || other != content {
			return false
		}
	}
	return true
}

// place puts a copy of metadata where other things may stand beside it.
func place(t *testing.T, dir string) string {
	t.Helper()
	placed := filepath.Join(t.TempDir(), "raft")
	if err := os.CopyFS(placed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return placed
}

// survivor is a directory that says only its name.
func survivor(id byte, name string) cluster.Survivor {
	return cluster.Survivor{ID: topic.ID{id}, Name: topic.Name(name), Partitions: 2}
}

// startsWith starts a node three times on what was made, and finds the topics each time.
func startsWith(t *testing.T, dir, clusterID string, names ...topic.Name) {
	t.Helper()
	for start := range 3 {
		n := launch(t, Config{Dir: dir, Node: 1, ClusterID: clusterID})
		for _, name := range names {
			if _, ok := n.Image().Topic(name); !ok {
				t.Errorf("start %d: topic %s is lost", start, name)
			}
		}
		n.create(fmt.Sprintf("more-%d", start))
		if err := n.end(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSoundMetadataIsNotMadeAnewUnlessForced(t *testing.T) {
	history, clusterID := history(t)
	dir := place(t, history)
	before := contentOf(t, dir)
	_, err := Rebuild(Rebuilding{Dir: dir, Node: 1, ClusterID: clusterID, Topics: []cluster.Survivor{survivor(1, "found")}})
	if !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), "--force") {
		t.Fatalf("got %v", err)
	}
	if !same(before, contentOf(t, dir)) {
		t.Error("a refusal changed something")
	}
	built, err := Rebuild(Rebuilding{Dir: dir, Node: 1, ClusterID: clusterID, Topics: []cluster.Survivor{survivor(1, "found")}, Force: true})
	if err != nil || built.Why != nil || built.Source != "the whole log" || built.Aside != dir+".aside-1" {
		t.Fatalf("%+v, %v", built, err)
	}
	if !same(before, contentOf(t, built.Aside)) {
		t.Error("what was set aside is not what was there")
	}
	startsWith(t, dir, clusterID, "round-0", "round-1", "last", "found") // "last" is in the log alone
}

func TestDamagedMetadataIsMadeAnew(t *testing.T) {
	history, clusterID := history(t)
	found := []cluster.Survivor{survivor(1, "found")}
	remove := func(dir string) error { return os.Remove(filepath.Join(dir, logName)) }
	for name, scene := range map[string]struct {
		spoil   func(dir string) error
		source  string
		keeps   []topic.Name
		noAside bool
	}{
		"a cut log": {func(dir string) error { return os.Truncate(filepath.Join(dir, logName), 5000) }, "snapshot", []topic.Name{"round-0", "round-1"}, false},
		"no log":    {remove, "snapshot", []topic.Name{"round-0", "round-1"}, false},
		"a log of junk": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, logName), []byte(strings.Repeat("junk", 9000)), 0o600)
		}, "snapshot", []topic.Name{"round-1"}, false},
		"a damaged command": {func(dir string) error {
			bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, logName), BoltOptions: boltfile.Options()})
			if err != nil {
				return err
			}
			last, err := bolt.LastIndex()
			var entry raft.Log
			err = errors.Join(err, bolt.GetLog(last, &entry))
			entry.Data[5] ^= 1
			return errors.Join(err, bolt.StoreLog(&entry), bolt.Close())
		}, "snapshot", []topic.Name{"round-0", "round-1"}, false},
		"no log, one snapshot cut": {func(dir string) error {
			return errors.Join(remove(dir), os.Truncate(snapshotsIn(t, dir)[1], 30))
		}, "snapshot", []topic.Name{"round-0"}, false},
		"no log, no snapshots": {func(dir string) error {
			return errors.Join(remove(dir), os.RemoveAll(filepath.Join(dir, snapshotsDir)))
		}, "", nil, false},
		"nothing": {os.RemoveAll, "", nil, true},
		"a try that ended between its renames": {
			func(dir string) error { return os.Rename(dir, dir+".aside-1") }, "the whole log",
			[]topic.Name{"round-0", "round-1", "last"},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, history)
			if err := scene.spoil(dir); err != nil {
				t.Fatal(err)
			}
			built, err := Rebuild(Rebuilding{Dir: dir, Node: 1, ClusterID: clusterID, Topics: found})
			if err != nil {
				t.Fatal(err)
			}
			if !fault.Is(built.Why, fault.Corrupt) || !strings.HasPrefix(built.Source, scene.source) || (built.Source == "") != (scene.source == "") {
				t.Errorf("from %q, because of %v", built.Source, built.Why)
			}
			if (built.Aside == "") != scene.noAside {
				t.Errorf("set aside as %q", built.Aside)
			}
			startsWith(t, dir, clusterID, append(scene.keeps, "found")...)
		})
	}
}

// TestARefusedStartNamesTheWayOut: and the way leads out, also after the start has set the log aside.
func TestARefusedStartNamesTheWayOut(t *testing.T) {
	history, clusterID := history(t)
	dir := place(t, history)
	if err := os.Truncate(filepath.Join(dir, logName), 5000); err != nil {
		t.Fatal(err)
	}
	for range 2 { // set aside; missing
		_, err := Open(Config{Dir: dir, Node: 1, ClusterID: clusterID})
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "`weir metadata rebuild "+filepath.Dir(dir)+"`") {
			t.Fatalf("the start said %v", err)
		}
	}
	if _, err := Rebuild(Rebuilding{Dir: dir, Node: 1, ClusterID: clusterID}); err != nil {
		t.Fatal(err)
	}
	startsWith(t, dir, clusterID, "round-0", "round-1")
}

func TestARebuildThatIsRefusedChangesNothing(t *testing.T) {
	history, clusterID := history(t)
	found := []cluster.Survivor{survivor(1, "found")}
	future := cluster.Command{Op: cluster.RegisterNode{Node: 1}}.Encode()
	future[0] = 99
	for name, scene := range map[string]struct {
		spoil func(dir string) error
		with  Rebuilding
		says  string
	}{
		"another cluster": {nil, Rebuilding{Node: 1, ClusterID: "theirs", Topics: found}, "--force"},
		"another node":    {nil, Rebuilding{Node: 2, ClusterID: clusterID, Topics: found}, "--force"},
		"nothing to make it of": {func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, snapshotsDir)), os.Truncate(filepath.Join(dir, logName), 0))
		}, Rebuilding{Node: 1, ClusterID: clusterID}, "neither"},
		"a later program's": {func(dir string) error {
			bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, logName), BoltOptions: boltfile.Options()})
			if err != nil {
				return err
			}
			last, err := bolt.LastIndex()
			var entry raft.Log
			err = errors.Join(err, bolt.GetLog(last, &entry))
			entry.Data = cluster.EncodeEntry([][]byte{future})
			return errors.Join(err, bolt.StoreLog(&entry), bolt.Close())
		}, Rebuilding{Node: 1, ClusterID: clusterID, Topics: found, Force: true}, "newer program"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, history)
			if scene.spoil != nil {
				if err := scene.spoil(dir); err != nil {
					t.Fatal(err)
				}
			}
			before := contentOf(t, filepath.Dir(dir))
			scene.with.Dir = dir
			built, err := Rebuild(scene.with)
			if err == nil || !strings.Contains(err.Error(), scene.says) {
				t.Fatalf("got %+v, %v", built, err)
			}
			if !same(before, contentOf(t, filepath.Dir(dir))) {
				t.Error("something changed")
			}
		})
	}
}
