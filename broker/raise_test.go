package broker

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// ahead makes a topic whose logs are some reigns ahead of the metadata that is returned. Partition 2 has
// no records any more, only the memory of their epochs. The others have v0 to v4.
func ahead(t *testing.T, mem *vfs.Mem) *oneNode {
	t.Helper()
	c := newOneNode()
	r := begin(t, mem, c, testConfig("data"))
	r.create("orders", 3)
	old := c.clone()
	for i := range 5 {
		for p := range topic.Partition(3) {
			r.produce("orders", to(p, fmt.Sprint("v", i)))
		}
		r.stop()
		r = begin(t, mem, c, testConfig("data"))
	}
	if _, err := r.DeleteRecords(t.Context(), topic.Path{Topic: "orders", Partition: 2}, -1); err != nil {
		t.Fatal(err)
	}
	r.stop()
	return old
}

// TestAnOlderCopyOfTheMetadata: a node whose logs are in later epochs than its metadata leads above them.
// Nothing is lost, also not by recovery after a power cut, and offsets go on.
func TestAnOlderCopyOfTheMetadata(t *testing.T) {
	mem := newMem(t)
	c := ahead(t, mem)
	r := begin(t, mem, c, testConfig("data"))
	d, err := r.Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	for p := range topic.Partition(3) {
		part, err := r.hall.partition(topic.Ref{ID: d.ID, Partition: p})
		if err != nil {
			t.Fatal(err)
		}
		if last, leads := part.lastEpoch(), topic.Epoch(part.epoch.Load()); last < 4 || leads != last+1 {
			t.Errorf("partition %d leads in epoch %d, the log has %d", p, leads, last)
		}
		if got := r.produce("orders", to(p, "v5")); got[0].Offset != 5 {
			t.Errorf("partition %d: appended at %d", p, got[0].Offset)
		}
	}
	check := func(r *running) {
		t.Helper()
		for p := range topic.Partition(2) {
			if got := r.values("orders", p, 0); !slices.Equal(got, numbered(0, 6)) {
				t.Errorf("partition %d: %v", p, got)
			}
		}
		if got := r.values("orders", 2, 5); !slices.Equal(got, []string{"v5"}) {
			t.Errorf("partition 2: %v", got)
		}
	}
	check(r)
	crashed := mem.Crash(1)
	later := c.clone()
	r.stop()

	r = begin(t, crashed, later, testConfig("data"))
	check(r)
	r.stop()
}

// TestAnOrdinaryStartRaisesNothing: the registration alone puts every partition above its log.
func TestAnOrdinaryStartRaisesNothing(t *testing.T) {
	mem, c := newMem(t), newOneNode()
	for i := range 3 {
		r := begin(t, mem, c, testConfig("data"))
		r.produce("orders", to(0, fmt.Sprint("v", i)))
		r.stop()
	}
	for _, op := range c.ops {
		if raise, ok := op.(cluster.RaiseEpoch); ok {
			t.Errorf("proposed %+v", raise)
		}
	}
}

// TestAClusterThatDoesNotRaise: a partition is not led in an epoch of its log, the node goes on without
// it, and opens it when the cluster answers.
func TestAClusterThatDoesNotRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		c := ahead(t, mem)
		var busy atomic.Bool
		busy.Store(true)
		c.refuse = func(op cluster.Op) error {
			if _, ok := op.(cluster.RaiseEpoch); ok && busy.Load() {
				return fault.Newf("test", fault.Overloaded, nil, "busy")
			}
			return nil
		}
		r := begin(t, mem, c, testConfig("data"))
		a := appendTo("orders", topic.AcksAll, "early")
		err := r.Produce(t.Context(), a)
		if err == nil {
			err = a.Results[0].Err
		}
		if !fault.Is(err, fault.NotLeader) {
			t.Errorf("a producer got %v", err)
		}
		r.create("other", 1)
		r.produce("other", to(0, "v0"))
		busy.Store(false)
		// The topic changes at the very moment that the partitions are tried again: they are opened once.
		if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"retention.ms": new("-1")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reopenEvery + time.Second)
		synctest.Wait()
		r.produce("orders", to(0, "v5"))
		if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 6)) {
			t.Errorf("read %v", got)
		}
		r.stop()
	})
}
