package broker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/broker/group"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// coordinatorOf is the coordinator of a group that has one.
func (r *running) coordinatorOf(g topic.GroupName) *coordinator {
	return r.groups.at[keyed([]byte(g), groupPartitions)].Load()
}

// TestGroupSessions: who shows no sign of life is out after its time, who waits is not.
func TestGroupSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig("data")
		cfg.Groups.MaxPollInterval = 3 * time.Second
		cfg.Groups.Session = 6 * time.Second
		r := begin(t, newMem(t), newOneNode(), cfg)
		r.fill("orders", 2, 1)
		a := r.join("g", "a")
		time.Sleep(30 * time.Second)
		a.asleep("it waits")
		b := r.join("g", "b")
		a.woken("b has joined")
		a.end()
		if err := a.poll(nil); err != nil { // gives up what b waits for
			t.Fatal(err)
		}
		b.woken("a has given up its partition")
		a.end()
		begun := time.Now()
		if err := b.poll(func(p *topic.GroupPoll) { p.Turn = b.Turn }); err != nil || len(b.numbers()) != 1 {
			t.Fatalf("b has %v: %v", b.numbers(), err)
		}
		b.woken("a is out")
		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("a was out after %v", took)
		}
		if err := b.poll(func(p *topic.GroupPoll) { p.Turn = b.Turn }); err != nil || len(b.numbers()) != 2 {
			t.Fatalf("b has %v: %v", b.numbers(), err)
		}

		// A poll that nobody ends keeps its member for a while, not for ever.
		time.Sleep(longestTurn - time.Second)
		b.asleep("it still waits")
		time.Sleep(2 * sweepEvery)
		b.woken("nobody has asked after it")
		wantKind(t, "its poll", b.poll(func(p *topic.GroupPoll) { p.Turn = b.Turn }), fault.NoMember)
		r.stop()
	})
}

// TestGroupDisconnect: a member whose connection is closed is out after its grace, unless it comes back.
func TestGroupDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, newMem(t), newOneNode(), testConfig("data"))
		r.fill("orders", 1, 1)
		connected := func(p *topic.GroupPoll) {
			p.Kind, p.Subscription = topic.ConnectedMember, &topic.Subscription{Topics: []topic.Name{"orders"}}
		}
		m := &member{r: r, group: "g", name: "m"}
		if err := m.poll(connected); err != nil {
			t.Fatal(err)
		}
		r.DisconnectMember("g", "m", m.Epoch)
		time.Sleep(4 * time.Second)
		if err := m.poll(func(p *topic.GroupPoll) { p.Kind, p.Heartbeat = topic.ConnectedMember, true }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		m.asleep("it came back")
		r.DisconnectMember("g", "m", m.Epoch)
		begun := time.Now()
		m.woken("it is out")
		if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("out after %v", took)
		}
		r.stop()
	})
}

// TestGroupExpiry: a group without members is forgotten after the retention, with its offsets.
func TestGroupExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig("data")
		cfg.GroupOffsetsRetention = time.Hour
		r := begin(t, newMem(t), newOneNode(), cfg)
		r.fill("orders", 1, 1)
		r.join("g", "m").end()
		if _, err := r.LeaveGroup(t.Context(), "g", "m", 0, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(r.cfg.GroupOffsetsRetention - time.Minute)
		if _, err := r.DescribeGroup(t.Context(), "g"); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * time.Minute)
		_, err := r.DescribeGroup(t.Context(), "g")
		wantKind(t, "after the retention", err, fault.NoGroup)
		time.Sleep(2 * r.cfg.GroupOffsetsRetention)
		if r.groups.kept.Load() != 0 || r.groups.existing.Load() != 0 {
			t.Errorf("%d groups, %d kept", r.groups.existing.Load(), r.groups.kept.Load())
		}
		r.stop()
	})
}

// TestGroupLoading: before everything committed is read, nothing is served; who calls waits, for a while.
func TestGroupLoading(t *testing.T) {
	mem := newMem(t)
	metadata := newOneNode()
	r := begin(t, mem, metadata, testConfig("data"))
	r.fill("orders", 1, 5)
	m := r.join("g", "m")
	m.end()
	if err := m.ack(3); err != nil {
		t.Fatal(err)
	}
	r.stop()
	synctest.Test(t, func(t *testing.T) {
		fsys := &slowFS{FS: mem}
		hold := make(chan struct{})
		var reads atomic.Bool
		fsys.other = func(op vfs.Op, name string) {
			if op == vfs.OpRead && isLog(name) && reads.Load() {
				<-hold
			}
		}
		metadata := metadata.clone()
		r := launch(t, fsys, metadata, testConfig("data"))
		r.await("the node serves", func() bool { reads.Store(true); return r.Ready() == nil })
		begun := time.Now()
		_, err := r.DescribeGroup(t.Context(), "g")
		if !fault.Is(err, fault.Loading) || time.Since(begun) != loadPatience {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = r.DescribeGroup(ctx, "g")
		wantKind(t, "a caller in a hurry", err, fault.Loading)
		cancel()
		close(hold)
		if got := r.committed("g")[topic.Path{Topic: "orders"}]; got != 3 {
			t.Errorf("committed %d", got)
		}
		r.stop()
	})
}

// TestGroupNewReign: in a new epoch the groups are read anew, and what was decided in the old one is not
// appended any more.
func TestGroupNewReign(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 1, 9)
	m := r.join("g", "m")
	if err := m.ack(2); err != nil {
		t.Fatal(err)
	}
	c := r.coordinatorOf("g")
	old := c.p.epoch.Load()
	result := r.cluster.apply(cluster.RaiseEpoch{Partition: c.p.ref, By: 1, Incarnation: r.cluster.Incarnation(), Above: topic.Epoch(old)})
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	m.woken("another reign has begun")
	r.await("the groups are loaded", func() bool { return m.poll(func(p *topic.GroupPoll) { p.Turn = m.Turn }) == nil })
	if m.Assignment[0].Committed != 2 || c.p.epoch.Load() == old {
		t.Errorf("in epoch %d: %+v", c.p.epoch.Load(), m.Assignment)
	}
	if err := m.ack(4); err != nil {
		t.Fatal(err)
	}
	m.end()

	end, reign := c.p.log.End(), topic.Epoch(old)
	stale := &coordinator{node: r.Node, p: c.p, epoch: reign, end: end, wake: make(chan struct{}, 1)}
	f := stale.put(nil, time.Now())
	one := topic.Record{Key: []byte("k"), Value: []byte("v")}
	f.builder.Append(&one, 0)
	if _, err := stale.append(f); !fault.Is(err, fault.Fenced) {
		t.Errorf("appended in an epoch that is over: %v", err)
	}
	stale.epoch, stale.end, stale.queue = topic.Epoch(c.p.epoch.Load()), end-1, nil
	f = stale.put(nil, time.Now())
	f.builder.Append(&one, 0)
	if _, err := stale.append(f); !fault.Is(err, fault.OffsetMismatch) {
		t.Errorf("appended behind records that were not seen: %v", err)
	}
	if c.p.log.End() != end {
		t.Errorf("the log has grown from %d to %d", end, c.p.log.End())
	}
	r.stop()
}

// TestGroupFormerReign: a coordinator whose reign is over answers nothing, not even what changes nothing, and
// one that has just begun waits until everything in the log is committed.
func TestGroupFormerReign(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 1, 9)
	m := r.join("g", "m")
	m.end()
	c := r.coordinatorOf("g")
	hurried, cancel := context.WithCancel(t.Context())
	cancel() // who is in such a hurry waits for no load, and learns at once whether there is one to wait for
	calls := map[string]func() error{
		"describe": func() error { _, err := r.DescribeGroup(hurried, "g"); return err },
		"heartbeat": func() error {
			_, err := r.PollGroup(hurried, &topic.GroupPoll{Group: "g", Member: "m", Epoch: m.Epoch, Heartbeat: true})
			return err
		},
	}
	for name, call := range calls {
		r.await("the groups are loaded", func() bool { return call() == nil })
		c.p.epoch.Add(1)
		err := call()
		c.p.epoch.Add(-1)
		if !fault.Is(err, fault.NotLeader) && !fault.Is(err, fault.Loading) {
			t.Errorf("%s in a later epoch: %v", name, err)
		}
	}
	r.await("the groups are loaded", func() bool { return calls["describe"]() == nil })

	ready := func() error { _, _, err := c.awaitSettled(hurried); return err }
	end := c.p.hw.Load()
	for state, waits := range map[string]struct{ edit, undo func() }{
		"while the high watermark is not known": {func() { c.p.settled.Store(false) }, func() { c.p.settled.Store(true) }},
		"while the last record is open":         {func() { c.p.hw.Store(end - 1) }, func() { c.p.hw.Store(end) }},
	} {
		waits.edit()
		err := ready()
		waits.undo()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", state, err)
		}
	}
	if err := ready(); err != nil {
		t.Error(err)
	}
	r.stop()
}

// TestGroupPanic: rules that panic take nobody with them: the groups are read anew.
func TestGroupPanic(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 1, 9)
	m := r.join("g", "m")
	if err := m.ack(2); err != nil {
		t.Fatal(err)
	}
	c := r.coordinatorOf("g")
	func() {
		defer func() { _ = recover() }()
		_ = c.change(t.Context(), "test", "g", changes, func(s *seat, now time.Time) ([]group.Record, error) {
			to := []group.Position{{Ref: m.Assignment[0].Ref, Offset: 7}}
			if _, err := s.group.Seek(to, c.look(), now); err != nil {
				t.Error(err)
			}
			panic("half of a decision")
		})
	}()
	if err := m.poll(func(p *topic.GroupPoll) { p.Turn = m.Turn }); err != nil || m.Assignment[0].Committed != 2 {
		t.Errorf("%+v, %v", m.Assignment, err)
	}
	m.end()
	if err := m.ack(4); err != nil {
		t.Error(err)
	}
	r.stop()
}

// TestGroupTooLarge: a change that does not fit into a batch is refused, and nothing of it is left.
func TestGroupTooLarge(t *testing.T) {
	most := groupsSettings["max.message.bytes"]
	groupsSettings["max.message.bytes"] = "2048"
	defer func() { groupsSettings["max.message.bytes"] = most }()
	r, _ := beginMem(t)
	r.fill("orders", 1, 9)
	m := r.join("g", "m")
	m.end()
	err := m.poll(func(p *topic.GroupPoll) {
		p.Heartbeat = true
		p.Ack = []topic.GroupCommit{{Ref: m.Assignment[0].Ref, Next: 4, LastEpoch: topic.NoEpoch, Metadata: strings.Repeat("x", 4000)}}
	})
	wantKind(t, "a large change", err, fault.Limit)
	if got := r.committed("g"); len(got) != 0 {
		t.Errorf("committed %v", got)
	}
	if err := m.ack(4); err != nil {
		t.Error(err)
	}
	r.stop()
}

// TestGroupMetrics: groups, members, lag and commits can be read off.
func TestGroupMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	metadata := newOneNode()
	metadata.register()
	n, err := New(testConfig("data"), Deps{FS: newMem(t), Cluster: metadata, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := runner(t, n.Run)
	r := &running{Node: n, t: t, cluster: metadata, cancel: stop, ended: ended}
	r.await("the node serves", func() bool { return r.Ready() == nil })
	r.fill("orders", 2, 5)
	m := r.join("g", "m")
	m.end()
	if err := m.ack(3); err != nil {
		t.Fatal(err)
	}
	r.join("h", "m").end()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			name := family.GetName()
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"broker_groups": 2, "broker_group_members": 2, "broker_groups_unmeasured": 0,
		"broker_group_lag_records g orders": 4, "broker_group_lag_records h orders": 10,
		"broker_group_commits_total": 2, "broker_group_commit_seconds": 1, "broker_group_rebalances_total": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	r.stop()
}
