package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// TestWhatWasAcknowledgedIsThereAfterAKill copies the files while proposals run and starts from the copy.
func TestWhatWasAcknowledgedIsThereAfterAKill(t *testing.T) {
	q, err := Open(Config{Dir: t.TempDir(), Node: 1, Found: true})
	if err != nil {
		t.Fatal(err)
	}
	frozen := &freezer{store: q.guard.store}
	q.guard.store = frozen
	n := runIt(t, q)
	var mu sync.Mutex
	acknowledged := map[topic.Name]topic.ID{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := topic.Name(fmt.Sprintf("t-%d-%d", c, i))
				r, err := n.Propose(ctx, cluster.Command{Op: cluster.CreateTopic{ID: topic.NewID(), Name: name, Partitions: 1, Replication: 1}})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				acknowledged[name] = r.Topic.ID
				mu.Unlock()
			}
		})
	}
	for round := range 5 {
		deadline := time.Now().Add(10 * time.Second)
		for {
			mu.Lock()
			enough := len(acknowledged) >= 20*(round+1)
			mu.Unlock()
			if enough {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the proposals do not advance")
			}
			time.Sleep(time.Millisecond)
		}
		// A kill leaves what was written by one moment. A copy takes time, so no commit runs meanwhile.
		frozen.mu.Lock()
		mu.Lock()
		must := maps.Clone(acknowledged)
		mu.Unlock()
		dir := copyDir(t, n.cfg.Dir)
		frozen.mu.Unlock()
		copied := launch(t, Config{Dir: dir, Node: 1, ClusterID: n.ClusterID()})
		for name, id := range must {
			if got, ok := copied.Image().Topic(name); !ok || got.ID != id {
				t.Errorf("round %d: %s was acknowledged and is %+v", round, name, got)
			}
		}
		if err := copied.end(); err != nil {
			t.Error(err)
		}
	}
}

// freezer is a store whose commits can be held up.
type freezer struct {
	store
	mu sync.Mutex
}

func (f *freezer) StoreLogs(logs []*raft.Log) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.StoreLogs(logs)
}

// TestAnyDamageIsRefusedOrHarmless flips, cuts and zeroes parts of the log. The process must not crash, the node
// must not start with less than it had, and the sentence must say what to do.
func TestAnyDamageIsRefusedOrHarmless(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	for i := range 40 {
		n.create(fmt.Sprintf("topic-%d", i))
	}
	dir := copyDir(t, n.cfg.Dir) // killed: no snapshot, everything is in the log
	cluster := n.ClusterID()
	want := n.Image().TopicCount()
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	const rounds = 150
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		bad := append([]byte(nil), whole...)
		at := rng.IntN(len(bad))
		var what string
		switch rng.IntN(4) {
		case 0:
			what = fmt.Sprintf("cut at %d", at)
			bad = bad[:at]
		case 1:
			what = fmt.Sprintf("bit flipped at %d", at)
			bad[at] ^= 1 << rng.IntN(8)
		case 2:
			what = fmt.Sprintf("page zeroed at %d", at/4096*4096)
			clear(bad[at/4096*4096 : min(len(bad), at/4096*4096+4096)])
		default:
			what = fmt.Sprintf("noise at %d", at)
			for i := at; i < min(len(bad), at+512); i++ {
				bad[i] = byte(rng.Uint32())
			}
		}
		round := filepath.Join(t.TempDir(), "raft")
		if err := os.Mkdir(round, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(round, logName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := Open(Config{Dir: round, Node: 1, ClusterID: cluster})
		if err != nil {
			refused++
			if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Validation) {
				t.Errorf("seed %d, %s: %v", seed, what, err)
			}
			if _, err := Open(Config{Dir: round, Node: 1, ClusterID: cluster}); err == nil {
				t.Errorf("seed %d, %s: the second start goes through", seed, what)
			}
			continue
		}
		again := runIt(t, q)
		if err := again.AwaitReady(t.Context()); err != nil {
			t.Errorf("seed %d, %s: %v, Run: %v", seed, what, err, again.wait())
			continue
		}
		// A damaged root leaves the one before it, which lacks the last commit: bbolt cannot know.
		if got := again.Image().TopicCount(); got < want-1 {
			t.Errorf("seed %d, %s: started with %d topics of %d", seed, what, got, want)
		}
		if err := again.end(); err != nil {
			t.Errorf("seed %d, %s: %v", seed, what, err)
		}
	}
	t.Logf("%d of %d damaged logs were refused", refused, rounds)
	if refused < rounds/4 {
		t.Errorf("only %d of %d damaged logs were refused", refused, rounds)
	}
}

func TestALostLogIsNeverReplacedByAnEmptyOne(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	n.create("orders")
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	scenes := map[string]struct {
		spoil   func(dir string) error
		cluster string
		says    string
	}{
		"gone, snapshots are there": {func(dir string) error { return os.Remove(filepath.Join(dir, logName)) }, "", "there are snapshots"},
		"all gone":                  {func(dir string) error { return os.RemoveAll(dir) }, n.ClusterID(), "is not new"},
		"empty":                     {func(dir string) error { return os.Truncate(filepath.Join(dir, logName), 0) }, n.ClusterID(), "set aside as"},
		"cut":                       {func(dir string) error { return os.Truncate(filepath.Join(dir, logName), 9000) }, n.ClusterID(), "set aside as"},
		"of another cluster":        {func(string) error { return nil }, "other", "of cluster"},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, n.cfg.Dir)
			if err := scene.spoil(dir); err != nil {
				t.Fatal(err)
			}
			for start := range 3 {
				_, err := Open(Config{Dir: dir, Node: 1, ClusterID: scene.cluster, Found: name != "all gone"})
				if err == nil {
					t.Fatalf("start %d went through", start)
				}
				if start == 0 && !strings.Contains(err.Error(), scene.says) {
					t.Errorf("%q is not in: %v", scene.says, err)
				}
				t.Log(err)
			}
		})
	}
	if _, err := Open(Config{Dir: copyDir(t, n.cfg.Dir), Node: 2}); !fault.Is(err, fault.Validation) {
		t.Errorf("as another node: %v", err)
	}
}

// TestHalfMadeFilesAreSwept: a crash while the cluster is founded, or a snapshot written, leaves nothing in the way.
func TestHalfMadeFilesAreSwept(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName+newSuffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "snapshots", "1-2-3.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	launch(t, Config{Dir: dir, Node: 1, Found: true})
	for _, gone := range []string{logName + newSuffix, "snapshots/1-2-3.tmp"} {
		if _, err := os.Stat(filepath.Join(dir, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	_, err := Open(Config{Dir: n.cfg.Dir, Node: 1})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	n.create("still-works")
}

// history makes a directory with snapshots at two moments and entries behind the last.
func history(t *testing.T) (dir, clusterID string) {
	t.Helper()
	dir = t.TempDir()
	for round := range 2 {
		n := launch(t, Config{Dir: dir, Node: 1, Found: true})
		n.create(fmt.Sprintf("round-%d", round))
		clusterID = n.ClusterID()
		if err := n.end(); err != nil { // writes a snapshot
			t.Fatal(err)
		}
	}
	n := launch(t, Config{Dir: dir, Node: 1, Found: true})
	n.create("last")
	copied := copyDir(t, dir)
	return copied, clusterID
}

func snapshotsIn(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(list) != snapshotsKept {
		t.Fatalf("snapshots: %v, %v", list, err)
	}
	return list
}

func TestADamagedSnapshotIsSetAsideWhileTheLogReachesFarEnough(t *testing.T) {
	dir, clusterID := history(t)
	for _, file := range snapshotsIn(t, dir) {
		if err := os.Truncate(file, 20); err != nil {
			t.Fatal(err)
		}
	}
	n := launch(t, Config{Dir: dir, Node: 1, ClusterID: clusterID})
	for _, name := range []topic.Name{"round-0", "round-1", "last"} {
		if _, ok := n.Image().Topic(name); !ok {
			t.Errorf("%s is lost", name)
		}
	}
	aside, err := filepath.Glob(filepath.Join(dir, "snapshot-*"+damagedSuffix+"-1"))
	if err != nil || len(aside) != snapshotsKept {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

// rewrite changes a copy's log through its store.
func rewrite(t *testing.T, dir string, change func(*raftboltdb.BoltStore) error) {
	t.Helper()
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, logName), BoltOptions: boltfile.Options()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(bolt), bolt.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestALogThatDoesNotFitItsSnapshotIsRefused(t *testing.T) {
	dir, clusterID := history(t)
	reencode := func(bolt *raftboltdb.BoltStore, index uint64, change func(*raft.Log)) error {
		var entry raft.Log
		if err := bolt.GetLog(index, &entry); err != nil {
			return err
		}
		change(&entry)
		return bolt.StoreLog(&entry)
	}
	snapshotIndex := func(t *testing.T, dir string) uint64 {
		store, err := raft.NewFileSnapshotStore(dir, snapshotsKept, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		list, err := store.List()
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		return list[0].Index
	}
	future := cluster.Command{Op: cluster.RegisterNode{Node: 1}}.Encode()
	future[0] = 99
	scenes := map[string]struct {
		change func(bolt *raftboltdb.BoltStore, snapshot, last uint64) error
		says   string
	}{
		"another term at the snapshot": {func(bolt *raftboltdb.BoltStore, snapshot, _ uint64) error {
			return reencode(bolt, snapshot, func(l *raft.Log) { l.Term++ })
		}, "not of one history"},
		"a hole behind the snapshot": {func(bolt *raftboltdb.BoltStore, snapshot, _ uint64) error {
			return bolt.DeleteRange(1, snapshot+1)
		}, "begins at entry"},
		"a log from before the snapshot": {func(bolt *raftboltdb.BoltStore, snapshot, last uint64) error {
			return bolt.DeleteRange(snapshot, last)
		}, "older than the snapshot"},
		"a hole in the middle": {func(bolt *raftboltdb.BoltStore, snapshot, _ uint64) error {
			return bolt.DeleteRange(snapshot+1, snapshot+1)
		}, "set aside"},
		"a damaged command": {func(bolt *raftboltdb.BoltStore, _, last uint64) error {
			return reencode(bolt, last, func(l *raft.Log) { l.Data[5] ^= 1 })
		}, "is damaged"},
		"a command that lost its type": {func(bolt *raftboltdb.BoltStore, _, last uint64) error {
			return reencode(bolt, last, func(l *raft.Log) { l.Type = raft.LogNoop })
		}, "has content"},
		"a command of a later program": {func(bolt *raftboltdb.BoltStore, _, last uint64) error {
			return reencode(bolt, last, func(l *raft.Log) { l.Data = cluster.EncodeEntry([][]byte{future}) })
		}, "start the newer program"},
		"a term that fell": {func(bolt *raftboltdb.BoltStore, _, _ uint64) error {
			return bolt.SetUint64(keyCurrentTerm, 1)
		}, "the term is 1"},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			spoiled := copyDir(t, dir)
			rewrite(t, spoiled, func(bolt *raftboltdb.BoltStore) error {
				last, err := bolt.LastIndex()
				return errors.Join(err, scene.change(bolt, snapshotIndex(t, spoiled), last))
			})
			_, err := Open(Config{Dir: spoiled, Node: 1, ClusterID: clusterID})
			if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), scene.says) {
				t.Errorf("%q is not in: %v", scene.says, err)
			}
		})
	}
}

// faulty is a store whose writes fail or hang on demand.
type faulty struct {
	store
	fail   atomic.Bool
	failAt atomic.Int64 // the number of the call to fail, 0: none
	hang   atomic.Bool
	calls  atomic.Int64
	free   chan struct{}
}

var errDisk = errors.New("input/output error")

func (f *faulty) trouble() error {
	call := f.calls.Add(1)
	if f.hang.Load() {
		<-f.free
	}
	if f.fail.Load() || call == f.failAt.Load() {
		return errDisk
	}
	return nil
}

func (f *faulty) StoreLogs(logs []*raft.Log) error {
	if err := f.trouble(); err != nil {
		return err
	}
	return f.store.StoreLogs(logs)
}

func (f *faulty) SetUint64(key []byte, value uint64) error {
	if err := f.trouble(); err != nil {
		return err
	}
	return f.store.SetUint64(key, value)
}

func withFaulty(t *testing.T, limit time.Duration) (*Quorum, *faulty) {
	t.Helper()
	q, err := Open(Config{Dir: t.TempDir(), Node: 1, Found: true, DiskLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{store: q.guard.store, free: make(chan struct{})}
	q.guard.store = f
	return q, f
}

func TestAnErrorOfTheDiskIsFinal(t *testing.T) {
	q, disk := withFaulty(t, 0)
	n := runIt(t, q)
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	disk.fail.Store(true)
	before := disk.calls.Load()
	if _, err := n.Propose(t.Context(), cluster.Command{Op: cluster.RegisterNode{Node: 2}}); !fault.Is(err, fault.Timeout) {
		t.Errorf("the proposal ended with %v", err)
	}
	if err := n.wait(); !errors.Is(err, errDisk) {
		t.Errorf("Run returned %v", err)
	}
	if calls := disk.calls.Load() - before; calls != 1 {
		t.Errorf("%d operations reached the disk after its error", calls-1)
	}
	if _, err := n.Propose(t.Context(), cluster.Command{Op: cluster.RegisterNode{Node: 2}}); !fault.Is(err, fault.Stopping) {
		t.Errorf("a later proposal ended with %v", err)
	}
}

// TestAnErrorAtTheStartIsFinal fails each write up to the first command: raft panics over some of them.
func TestAnErrorAtTheStartIsFinal(t *testing.T) {
	for call := int64(1); ; call++ {
		q, disk := withFaulty(t, 0)
		disk.failAt.Store(call)
		n := runIt(t, q)
		err := n.AwaitReady(t.Context())
		if err == nil { // ready before that call
			if call < 4 {
				t.Errorf("only %d writes before it was ready", call-1)
			}
			return
		}
		if !fault.Is(err, fault.Stopping) {
			t.Errorf("call %d: AwaitReady: %v", call, err)
		}
		if err := n.wait(); !errors.Is(err, errDisk) {
			t.Errorf("call %d: Run returned %v", call, err)
		}
	}
}

func TestADiskThatHangsEndsTheNode(t *testing.T) {
	q, disk := withFaulty(t, 300*time.Millisecond)
	n := runIt(t, q)
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	disk.hang.Store(true)
	begun := time.Now()
	_, err := n.Propose(t.Context(), cluster.Command{Op: cluster.RegisterNode{Node: 2}})
	if !fault.Is(err, fault.Timeout) {
		t.Errorf("the proposal ended with %v", err)
	}
	err = n.wait()
	if err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("Run returned %v", err)
	}
	t.Logf("Run returned after %v", time.Since(begun))
	close(disk.free) // for goleak: what hung may end now
}

func TestAnUnknownCommandStopsTheNode(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	strange := cluster.Command{Op: cluster.RegisterNode{Node: 2}}.Encode()
	strange[1] = 200
	before := n.Image()
	_, err := n.Propose(t.Context(), cluster.Command{Op: cluster.RegisterNode{Node: 3}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest("strange", strange)
	if err := n.send(t.Context(), r); !fault.Is(err, fault.Timeout) {
		t.Errorf("it was answered with %v", err)
	}
	if err := n.wait(); !errors.Is(err, cluster.ErrNewer) {
		t.Errorf("Run returned %v", err)
	}
	if got := n.Image().Version(); got != before.Version()+1 {
		t.Errorf("version %d after version %d", got, before.Version())
	}
	if _, err := Open(Config{Dir: n.cfg.Dir, Node: 1}); !errors.Is(err, cluster.ErrNewer) {
		t.Errorf("the next start: %v", err)
	}
}

// TestManyTopicsStartFast goes over the snapshot threshold and compares a start that replays with one from a snapshot.
func TestManyTopicsStartFast(t *testing.T) {
	const topics = 5_000
	dir := t.TempDir()
	n := launch(t, Config{Dir: dir, Node: 1, Found: true})
	var wg sync.WaitGroup
	for c := range 10 {
		wg.Go(func() {
			for i := range topics / 10 {
				op := cluster.CreateTopic{ID: topic.NewID(), Name: topic.Name(fmt.Sprintf("t-%d-%d", c, i)), Partitions: 1, Replication: 1, Creator: fmt.Sprint("User:", c)}
				if _, err := n.Propose(t.Context(), cluster.Command{Op: op}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	killed := copyDir(t, dir)
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	start := func(dir string) time.Duration {
		begun := time.Now()
		n := launch(t, Config{Dir: dir, Node: 1, Found: true})
		took := time.Since(begun)
		if got := n.Image().TopicCount(); got != topics {
			t.Errorf("%d topics came back", got)
		}
		return took
	}
	replayed, restored := start(killed), start(dir)
	t.Logf("ready with %d topics after %v from the log, %v from a snapshot", topics, replayed, restored)
	if limit := 2 * time.Second; replayed > limit || restored > limit {
		t.Errorf("ready after %v and %v", replayed, restored)
	}
}
