package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// TestGroupReserve: when the disk has no room for producers any more, readers can still commit.
func TestGroupReserve(t *testing.T) {
	mem := newMem(t)
	mem.SetSpace(8 << 20)
	cfg := testConfig("data")
	cfg.ReserveBytes = 2 << 20
	r := begin(t, mem, newOneNode(), cfg)
	r.fill("orders", 1, 1)
	m := r.join("g", "m")
	m.end()
	value := strings.Repeat("x", 100_000)
	var refused error
	stored := topic.Offset(1)
	for ; refused == nil && stored < 1000; stored++ {
		a := appendTo("orders", topic.AcksAll, value)
		if err := r.Produce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		refused = a.Results[0].Err
	}
	wantKind(t, "the producer", refused, fault.StorageFull)
	for i := range 200 { // more than what the producers have left
		if err := m.poll(func(p *topic.GroupPoll) {
			p.Heartbeat = true
			p.Ack = []topic.GroupCommit{{Ref: m.Assignment[0].Ref, Next: stored - 1, LastEpoch: topic.NoEpoch, Metadata: strings.Repeat(fmt.Sprintf("%04d", i), 1000)}}
		}); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
	r.stop()
}

// TestGroupFailingAppend: an append that is refused is told to everyone in it, and the groups are what
// they were before.
func TestGroupFailingAppend(t *testing.T) {
	mem := newMem(t)
	r := begin(t, mem, newOneNode(), testConfig("data"))
	r.fill("orders", 1, 5)
	m := r.join("g", "m", "orders")
	if err := m.ack(2); err != nil {
		t.Fatal(err)
	}
	mem.SetSpace(1)
	var refused error
	for i := 0; refused == nil && i < 10_000; i++ { // there is some room in the segment
		refused = m.poll(func(p *topic.GroupPoll) {
			p.Heartbeat = true
			p.Ack = []topic.GroupCommit{{Ref: m.Assignment[0].Ref, Next: 2, LastEpoch: topic.NoEpoch, Metadata: strings.Repeat(fmt.Sprintf("%04d", i), 1000)}}
		})
	}
	wantKind(t, "a commit on a full disk", refused, fault.StorageFull)
	m.woken("the groups were thrown away")
	described := func() bool { _, err := r.DescribeGroup(t.Context(), "g"); return err == nil }
	r.await("the groups are loaded again", described)
	wantKind(t, "another commit on a full disk", m.ack(3), fault.StorageFull)
	if !described() {
		t.Error("a commit for which there is no room has thrown the groups away once more")
	}
	mem.SetSpace(1 << 30)
	if got := r.committed("g")[topic.Path{Topic: "orders"}]; got != 2 {
		t.Errorf("committed %d", got)
	}
	turn := m.Turn
	if err := m.poll(func(p *topic.GroupPoll) { p.Turn = turn }); err != nil || m.AssignmentChanged {
		t.Errorf("the poll does not go on: %+v, %v", m.GroupTurn, err)
	}
	r.await("there is room again", func() bool { return m.ack(4) == nil })
	m.end()
	r.stop()
}

// TestGroupFailingDisk: with the disk gone, what was committed is known to nobody; who waits is told.
func TestGroupFailingDisk(t *testing.T) {
	mem := newMem(t)
	failing := vfs.NewFailing(mem)
	r := begin(t, failing, newOneNode(), testConfig("data"))
	r.fill("orders", 1, 5)
	m := r.join("g", "m", "orders")
	if err := m.ack(2); err != nil {
		t.Fatal(err)
	}
	failing.Plan(vfs.Fault{Ops: vfs.OpSync, Match: "*.log", Err: syscall.EIO})
	wantKind(t, "a commit", m.ack(3), fault.Timeout)
	m.woken("the disk is gone")
	if err := <-r.ended; err == nil {
		t.Error("the node goes on")
	}
	again := begin(t, mem.Crash(1), r.cluster, testConfig("data"))
	if got := again.committed("g")[topic.Path{Topic: "orders"}]; got < 2 {
		t.Errorf("committed %d", got)
	}
	again.stop()
}

// TestGroupCrash: a power cut takes no commit that was acknowledged.
func TestGroupCrash(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		r, mem := beginMem(t)
		r.fill("orders", 2, 1)
		const groups = 8
		members := make([]*member, groups)
		for g := range members {
			members[g] = r.join(topic.GroupName(fmt.Sprint("g", g)), "m", "orders")
			members[g].end()
		}
		r.produce("orders", slices.Repeat([]topic.Record{to(0, "v"), to(1, "v")}, 200)...)
		var acknowledged [groups]topic.Offset
		crash := make(chan struct{})
		var crashed *vfs.Mem
		var metadata *oneNode
		var wg sync.WaitGroup
		var mu sync.Mutex
		for g, m := range members {
			wg.Go(func() {
				for next := topic.Offset(1); next < 200; next++ {
					if err := m.ack(next); err != nil {
						t.Error(err)
					}
					mu.Lock()
					if crashed == nil {
						acknowledged[g] = next
					}
					mu.Unlock()
					if g == 0 && next == topic.Offset(20+seed) {
						close(crash)
					}
				}
			})
		}
		<-crash
		mu.Lock()
		crashed, metadata = mem.Crash(seed), r.cluster.clone()
		mu.Unlock()
		wg.Wait()
		r.stop()
		again := begin(t, crashed, metadata, testConfig("data"))
		for g := range groups {
			got := again.committed(topic.GroupName(fmt.Sprint("g", g)))
			for p := range topic.Partition(2) {
				if at := got[topic.Path{Topic: "orders", Partition: p}]; at < acknowledged[g] {
					t.Errorf("seed %d, group %d: acknowledged %d, there is %d", seed, g, acknowledged[g], at)
				}
			}
		}
		again.stop()
	}
}
