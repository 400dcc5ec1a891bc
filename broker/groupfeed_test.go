package broker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/broker/group/view"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// beginViewed starts a node with a view of __groups beside it.
func beginViewed(t testing.TB, fsys vfs.FS, c *oneNode, v GroupView) *running {
	t.Helper()
	c.register()
	n, err := New(testConfig("data"), Deps{
		FS: fsys, Cluster: c, Groups: v,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: n, t: t, cluster: c, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- n.Run(ctx) }()
	r.await("the node serves", func() bool { return r.Ready() == nil })
	return r
}

func openView(t testing.TB, path string) *view.View {
	t.Helper()
	v, err := view.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// forgetful is a view that a test looks into.
type forgetful struct {
	GroupView
	loaded atomic.Int64 // pairs handed out
	fail   error
}

func (f *forgetful) Load(p topic.Partition, each func(k, v []byte) error) (view.Position, error) {
	if f.fail != nil {
		return view.Position{}, f.fail
	}
	return f.GroupView.Load(p, func(k, v []byte) error {
		f.loaded.Add(1)
		return each(k, v)
	})
}

// groupsOf makes groups with a commit each, and one that is deleted again.
func (r *running) groupsOf(count int, next topic.Offset) (names []topic.GroupName) {
	r.t.Helper()
	for i := range count {
		g := topic.GroupName(fmt.Sprint("g", i))
		m := r.join(g, "m", "orders")
		m.end()
		if err := m.ack(next); err != nil {
			r.t.Fatal(err)
		}
		names = append(names, g)
	}
	if _, err := r.SeekGroup(context.Background(), &topic.GroupSeek{Group: "away", Topics: []topic.Name{"orders"}}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.DeleteGroup(context.Background(), "away"); err != nil {
		r.t.Fatal(err)
	}
	return names
}

func (r *running) wantCommitted(names []topic.GroupName, next topic.Offset) {
	r.t.Helper()
	for _, g := range names {
		if got := r.committed(g)[topic.Path{Topic: "orders"}]; got != next {
			r.t.Errorf("%s has committed %d, want %d", g, got, next)
		}
	}
	_, err := r.DescribeGroup(context.Background(), "away")
	if !fault.Is(err, fault.NoGroup) {
		r.t.Errorf("a deleted group: %v", err)
	}
}

// TestGroupView: a start loads what the view has and reads the rest from the log; whatever is wrong with
// the view costs time and nothing else.
func TestGroupView(t *testing.T) {
	mem := newMem(t)
	path := filepath.Join(t.TempDir(), "view.db")
	metadata := newOneNode()
	v := openView(t, path)
	r := beginViewed(t, mem, metadata, v)
	r.fill("orders", 1, 9)
	names := r.groupsOf(20, 3)
	if err := r.groups.feedAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.groupsOf(10, 5) // the view knows nothing of that
	r.stop()

	restart := func(why string, v GroupView, viewed bool) {
		t.Helper()
		f := &forgetful{GroupView: v}
		r = beginViewed(t, mem, metadata, f)
		r.wantCommitted(names[10:], 3)
		r.wantCommitted(names[:10], 5)
		if got := f.loaded.Load() > 0; got != viewed {
			t.Errorf("%s: the view was used: %v", why, got)
		}
		if err := r.groups.feedAll(t.Context()); err != nil {
			t.Errorf("%s: %v", why, err)
		}
		r.stop()
	}
	restart("half of it is in the view", v, true)
	restart("all of it is in the view", v, true)

	id := topicID(t, r, groupsTopic)
	for p := range topic.Partition(groupPartitions) {
		at, err := v.Position(p)
		if at == (view.Position{}) && err == nil { // no group is in this partition
			continue
		}
		if err != nil || at.ID != id {
			t.Fatalf("partition %d is at %+v, %v", p, at, err)
		}
		at.ID = topic.NewID()
		if err := v.Apply(p, at, []view.Change{{Key: []byte("not a key of a group"), Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	restart("it is of another topic", v, false)
	restart("it was made anew", v, true)
	for what, edit := range map[string]func(*view.Position){
		"it is ahead of the log":      func(at *view.Position) { at.End += 10 },
		"the log was cut":             func(at *view.Position) { at.Epoch++ },
		"its tombstones may be gone":  func(at *view.Position) { at.At -= topic.Millis(25 * time.Hour.Milliseconds()) },
		"it comes from another clock": func(at *view.Position) { at.At += topic.Millis(25 * time.Hour.Milliseconds()) },
	} {
		for p := range topic.Partition(groupPartitions) {
			at, err := v.Position(p)
			if err != nil {
				t.Fatal(err)
			}
			if at == (view.Position{}) { // nothing is in this partition
				continue
			}
			edit(&at)
			if err := v.Apply(p, at, nil); err != nil {
				t.Fatal(err)
			}
		}
		restart(what, v, false)
		restart(what+", and then made anew", v, true)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	v = openView(t, filepath.Join(t.TempDir(), "view.db"))
	restart("it is empty", v, false)

	for p := range topic.Partition(groupPartitions) {
		at, err := v.Position(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Apply(p, at, []view.Change{{Key: []byte("not a key of a group"), Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	f := &forgetful{GroupView: v, fail: fault.Newf("test", fault.Corrupt, nil, "damaged")}
	r = beginViewed(t, mem, metadata, f)
	r.wantCommitted(names[10:], 3)
	if err := r.groups.feedAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop()
	restart("it was damaged, and then made anew", v, true)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	r = beginViewed(t, mem, metadata, v) // which is closed: every call of it fails
	r.wantCommitted(names[10:], 3)
	if err := r.groups.feedAll(t.Context()); !fault.Is(err, fault.Closed) {
		t.Errorf("fed into a closed view: %v", err)
	}
	r.stop()
}

// TestGroupViewResetWhileFed: a load finds the view damaged while the feeder has half of an update. What the
// feeder adds is not taken for all there is.
func TestGroupViewResetWhileFed(t *testing.T) {
	mem := newMem(t)
	v := openView(t, filepath.Join(t.TempDir(), "view.db"))
	metadata := newOneNode()
	r := beginViewed(t, mem, metadata, nil) // feeds nothing by itself
	r.fill("orders", 1, 9)
	names := r.groupsOf(1, 3)
	c := r.coordinatorOf(names[0])
	desk := newCoordinators(r.Node, v)
	if err := desk.feedAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := r.join(names[0], "another", "orders")
	m.end()
	f := feeding{room: feedBytes}
	if err := desk.gather(t.Context(), c.p, &f); err != nil || len(f.updates) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}

	damaged := &forgetful{GroupView: v, fail: fault.Newf("test", fault.Corrupt, nil, "damaged")}
	desk.view = damaged
	loading := desk.newCoordinator(c.p)
	if _, err := loading.replayView(c.p.log.End(), func(_, _ []byte) error { return nil }); !fault.Is(err, fault.Corrupt) {
		t.Fatal(err)
	}
	if err := v.ApplyAll(f.updates); err != nil { // as the feeder does next
		t.Fatal(err)
	}
	desk.view = v
	if err := desk.feedAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r = beginViewed(t, mem, metadata, v)
	r.wantCommitted(names, 3)
	r.stop()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

func topicID(t testing.TB, r *running, name topic.Name) topic.ID {
	t.Helper()
	d, err := r.Topic(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.ID
}

// TestGroupViewAfterCompaction: a view that lived through a compaction says what the log says.
func TestGroupViewAfterCompaction(t *testing.T) {
	mem := newMem(t)
	v := openView(t, filepath.Join(t.TempDir(), "view.db"))
	metadata := newOneNode()
	small := groupsSettings["segment.bytes"]
	groupsSettings["segment.bytes"] = "4096"
	defer func() { groupsSettings["segment.bytes"] = small }()
	r := beginViewed(t, mem, metadata, v)
	r.fill("orders", 1, 200)
	m := r.join("g", "m", "orders")
	m.end()
	for next := range topic.Offset(150) {
		if err := m.ack(next); err != nil {
			t.Fatal(err)
		}
		if next == 70 {
			if err := r.groups.feedAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := r.groups.at[keyed([]byte("g"), groupPartitions)].Load().p
	if err := p.compact(time.Now()); err != nil || p.rewrites.Load() == 0 {
		t.Fatalf("%d rewrites, %v", p.rewrites.Load(), err)
	}
	r.stop()
	r = beginViewed(t, mem, metadata, v)
	r.wantCommitted([]topic.GroupName{"g"}, 149)
	r.stop()
	r = beginViewed(t, mem, metadata, nil)
	r.wantCommitted([]topic.GroupName{"g"}, 149)
	r.stop()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGroupViewOldLog: a log whose records are older than tombstones are kept goes into an empty view too,
// piece by piece.
func TestGroupViewOldLog(t *testing.T) {
	mem := newMem(t)
	v := openView(t, filepath.Join(t.TempDir(), "view.db"))
	metadata := newOneNode()
	r := beginViewed(t, mem, metadata, nil)
	r.fill("orders", 1, 9)
	m := r.join("g", "m", "orders")
	m.end()
	c := r.coordinatorOf("g")
	long := time.Now().Add(-2 * groupsRetention(t))
	c.mu.Lock()
	for i := range 2 * walkBytes / topic.MaxCommitMetadata {
		ack := []topic.GroupCommit{{Ref: m.Assignment[0].Ref, Next: 3, Metadata: strings.Repeat(fmt.Sprintf("%04d", i), topic.MaxCommitMetadata/4)}}
		c.apply(c.seats["g"], long, func() []group.Record {
			_, records, err := c.seats["g"].group.Poll(&topic.GroupPoll{Member: "m", Epoch: m.Epoch, Heartbeat: true, Ack: ack}, nil, c.look(), long)
			if err != nil {
				t.Error(err)
			}
			return records
		})
	}
	c.mu.Unlock()
	if err := m.ack(5); err != nil {
		t.Fatal(err)
	}

	desk := newCoordinators(r.Node, v)
	var at view.Position
	for pieces := 1; at.End < c.p.bounds().HighWatermark; pieces++ {
		f := feeding{room: 1}
		if err := desk.gather(t.Context(), c.p, &f); err != nil || len(f.updates) != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		if f.updates[0].To.End <= at.End || pieces > 10 {
			t.Fatalf("piece %d goes from %d to %d", pieces, at.End, f.updates[0].To.End)
		}
		if err := v.ApplyAll(f.updates); err != nil {
			t.Fatal(err)
		}
		at = f.updates[0].To
	}
	r.stop()
	r = beginViewed(t, mem, metadata, v)
	r.wantCommitted([]topic.GroupName{"g"}, 5)
	r.stop()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// groupsRetention is how long tombstones stay in __groups.
func groupsRetention(t testing.TB) time.Duration {
	t.Helper()
	settings, err := topic.ParseSettings(groupsSettings)
	if err != nil {
		t.Fatal(err)
	}
	return settings.DeleteRetention
}

// TestGroupViewPieces: a long log goes into the view piece by piece.
func TestGroupViewPieces(t *testing.T) {
	mem := newMem(t)
	v := openView(t, filepath.Join(t.TempDir(), "view.db"))
	r := beginViewed(t, mem, newOneNode(), nil)
	r.fill("orders", 1, 1)
	m := r.join("g", "m", "orders")
	m.end()
	if err := m.ack(0); err != nil {
		t.Fatal(err)
	}
	feeder := newCoordinators(r.Node, v) // the node's own feeder would come in between
	p := r.groups.at[keyed([]byte("g"), groupPartitions)].Load().p
	f := feeding{room: 1}
	if err := feeder.gather(t.Context(), p, &f); err != nil || len(f.updates) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if u := f.updates[0]; u.To.End != p.bounds().HighWatermark || f.room > 0 || !slices.ContainsFunc(u.Changes, func(c view.Change) bool { return c.Value != nil }) {
		t.Errorf("%+v, %d left", u, f.room)
	}
	r.stop()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}
