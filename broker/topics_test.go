package broker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestTopics(t *testing.T) {
	cfg := testConfig("data")
	cfg.MaxTopicPartitions, cfg.MaxPartitions, cfg.MaxTopics, cfg.DefaultPartitions = 8, 20, 4, 3
	r := begin(t, newMem(t), newOneNode(), cfg)
	create := func(c topic.Creation) error {
		_, err := r.CreateTopic(t.Context(), c)
		return err
	}
	d, err := r.CreateTopic(t.Context(), topic.Creation{Name: "b", Overrides: map[string]string{"retention.ms": "1000"}, Principal: "User:a"})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Partitions) != 3 || d.Replication != 1 || d.Settings.RetentionAge != time.Second || d.Partitions[0].Leader != 1 {
		t.Errorf("%+v", d)
	}
	if got, err := r.Topic("b"); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.TopicByID(d.ID); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
	for what, c := range map[string]struct {
		creation topic.Creation
		kind     fault.Kind
	}{
		"a name that is taken":     {topic.Creation{Name: "b"}, fault.TopicExists},
		"no name":                  {topic.Creation{}, fault.Validation},
		"a bad name":               {topic.Creation{Name: "a b"}, fault.Validation},
		"a name of weir's own":     {topic.Creation{Name: "__groups"}, fault.Forbidden},
		"a setting of none":        {topic.Creation{Name: "c", Overrides: map[string]string{"x": "1"}}, fault.Validation},
		"too many partitions":      {topic.Creation{Name: "c", Partitions: 9}, fault.Limit},
		"a negative number":        {topic.Creation{Name: "c", Partitions: -1}, fault.Validation},
		"more replicas than there": {topic.Creation{Name: "c", Replication: 2}, fault.Validation},
	} {
		if err := create(c.creation); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []topic.Name{"d", "a", "c"} {
		if err := create(topic.Creation{Name: name, Partitions: 5, Principal: "User:a"}); err != nil {
			t.Error(err)
		}
	}
	if err := create(topic.Creation{Name: "e", Partitions: 1, Principal: "User:a"}); !fault.Is(err, fault.Limit) {
		t.Errorf("too many topics of one principal: %v", err)
	}
	if err := create(topic.Creation{Name: "e", Partitions: 3, Principal: "User:b"}); !fault.Is(err, fault.Limit) {
		t.Errorf("too many partitions of the node: %v", err)
	}
	if _, err := r.AlterTopic(t.Context(), "b", topic.Alteration{Partitions: 6}); !fault.Is(err, fault.Limit) {
		t.Errorf("growing over the limit of the node: %v", err)
	}
	var names []string
	for _, d := range r.Topics("a", 2) {
		names = append(names, string(d.Name))
	}
	if !slices.Equal(names, []string{"b", "c"}) || len(r.Topics("", 10)) != 4 {
		t.Errorf("listed %v", names)
	}
	if _, err := r.AlterTopic(t.Context(), "b", topic.Alteration{Partitions: 2}); !fault.Is(err, fault.Validation) {
		t.Errorf("fewer partitions: %v", err)
	}
	for _, err := range []error{
		r.DeleteTopic(t.Context(), "__groups"), r.Produce(t.Context(), appendTo("__groups", topic.AcksAll, "v")),
	} {
		if !fault.Is(err, fault.Forbidden) {
			t.Errorf("weir's own: %v", err)
		}
	}
	r.stop()
}

// TestSettingsTakeHold: what is altered holds for the next call.
func TestSettingsTakeHold(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1)
	alter := func(name, value string) {
		t.Helper()
		d, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{name: &value}})
		if err != nil || d.Overrides[name] != value {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	r.produce("orders", to(0, strings.Repeat("x", 3000)))
	alter("max.message.bytes", "4000")
	if s := r.try(appendTo("orders", topic.AcksAll, strings.Repeat("x", 3000)))[0]; !fault.Is(s.Err, fault.RecordTooLarge) {
		t.Errorf("%+v", s)
	}
	alter("cleanup.policy", "compact")
	if s := r.try(appendTo("orders", topic.AcksAll, "x"))[0]; !fault.Is(s.Err, fault.Validation) {
		t.Errorf("a record without a key in a compacted topic: %+v", s)
	}
	if d, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"cleanup.policy": nil}}); err != nil || d.Settings.Compact {
		t.Errorf("%+v, %v", d, err)
	}
	r.produce("orders", to(0, "x"))
	d, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Partitions: 3})
	if err != nil || len(d.Partitions) != 3 {
		t.Fatal(err)
	}
	r.produce("orders", to(2, "x"))
	r.stop()
}

// TestFlushInterval: without a sync for each acknowledgement, syncs come each flush.ms, and sooner when the
// topic changes its mind.
func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		fsys := &slowFS{FS: newMem(t), sync: func(name string) {
			if isLog(name) {
				syncs.Add(1)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		r.create("orders", 1, "flush.messages", "0", "flush.ms", "10000")
		syncs.Store(0)
		for range 50 {
			r.produce("orders", to(0, "v"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := syncs.Load(); n != 0 {
			t.Errorf("%d syncs in 5 of 10 seconds", n)
		}
		if got := r.values("orders", 0, 0); len(got) != 50 {
			t.Errorf("%d records are readable", len(got))
		}
		time.Sleep(6 * time.Second)
		if n := syncs.Load(); n != 1 {
			t.Errorf("%d syncs in 11 of 10 seconds", n)
		}
		r.produce("orders", to(0, "v"))
		if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"flush.messages": new("1")}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := syncs.Load(); n != 2 {
			t.Errorf("%d syncs after the change", n)
		}
		r.stop()
	})
}

// TestDelete: who waits is told, the name is free at once, the new topic shares nothing with the old one,
// and the old one's directory goes.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		var hang atomic.Bool
		fsys := &slowFS{FS: mem, sync: func(name string) {
			for hang.Load() && isLog(name) {
				time.Sleep(10 * time.Millisecond)
			}
		}}
		r := begin(t, fsys, newOneNode(), testConfig("data"))
		old := r.create("orders", 2)
		r.produce("orders", to(0, "old"), to(1, "old"))
		hang.Store(true)
		w := r.wait("orders")
		bell := make(chan struct{}, 1)
		if _, err := r.Listen(topic.Ref{ID: old.ID, Partition: 1}, bell); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		go func() {
			time.Sleep(500 * time.Millisecond)
			hang.Store(false)
		}()
		if err := r.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := <-w.produced; err != nil && !fault.Is(err, fault.NoTopic) {
			t.Errorf("the producer got %v", err)
		}
		if err := <-w.fetched; !fault.Is(err, fault.NoTopic) {
			t.Errorf("the reader got %v", err)
		}
		if !rung(bell) {
			t.Error("the listener was not rung")
		}
		if _, err := r.Topic("orders"); !fault.Is(err, fault.NoTopic) {
			t.Error(err)
		}
		d := r.create("orders", 1)
		if d.ID == old.ID {
			t.Error("the old id came back")
		}
		if got := r.values("orders", 0, 0); got != nil {
			t.Errorf("the new topic has %v", got)
		}
		r.produce("orders", to(0, "new"))
		if _, err := r.Bounds(topic.Ref{ID: old.ID}); !fault.Is(err, fault.NoTopic) {
			t.Errorf("the old id: %v", err)
		}
		if _, err := r.Fetch(t.Context(), topic.Fetch{Topic: "orders", ID: old.ID}); !fault.Is(err, fault.NoTopic) {
			t.Errorf("the old id: %v", err)
		}
		if err := r.DeleteTopic(t.Context(), "none"); !fault.Is(err, fault.NoTopic) {
			t.Error(err)
		}
		synctest.Wait()
		if names := topicDirs(t, mem); !slices.Equal(names, []string{filepath.Base(r.topicDir(d.ID))}) {
			t.Errorf("directories %v", names)
		}
		r.stop()
	})
}

// TestDeleteOnAFullDisk: deleting is what makes room, so it does not ask for any.
func TestDeleteOnAFullDisk(t *testing.T) {
	for _, f := range []vfs.Fault{
		{Ops: vfs.OpRename, Match: strings.Repeat("?", 32), Err: syscall.ENOSPC},
		{Ops: vfs.OpRename, Match: strings.Repeat("?", 32), Err: syscall.EDQUOT},
		{Ops: vfs.OpSyncDir, Match: topicsDir, Err: syscall.ENOSPC},
	} {
		mem := newMem(t)
		failing := vfs.NewFailing(mem)
		r := begin(t, failing, newOneNode(), testConfig("data"))
		r.create("orders", 2)
		kept := r.create("kept", 1)
		r.produce("orders", to(0, "v"), to(1, "v"))
		failing.Plan(f)
		if err := r.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
		r.await("the directory is gone", func() bool {
			return slices.Equal(topicDirs(t, mem), []string{filepath.Base(r.topicDir(kept.ID))})
		})
		if failing.Fired() != 1 {
			t.Errorf("%v did not fail", f.Ops)
		}
		r.produce("kept", to(0, "v"))
		r.stop()
	}
}

func topicDirs(t *testing.T, fsys vfs.FS) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(filepath.Join("data", topicsDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestDirectoriesAtStart: a deletion that was cut short goes on, and what the cluster does not know is kept
// aside.
func TestDirectoriesAtStart(t *testing.T) {
	r, mem := beginMem(t)
	deleted, kept := r.create("deleted", 1), r.create("kept", 1)
	r.produce("kept", to(0, "v0"))
	r.stop()
	r.cluster.apply(cluster.DeleteTopic{ID: deleted.ID}) // the process was not there to carry it out
	unknown := r.topicDir(topic.NewID())
	half := r.topicDir(topic.NewID()) + buried
	for _, dir := range []string{unknown, half, filepath.Join("data", topicsDir, "notes")} {
		if err := mem.MkdirAll(filepath.Join(dir, "0"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r = begin(t, mem, r.cluster, testConfig("data"))
	want := []string{filepath.Base(r.topicDir(kept.ID)), filepath.Base(unknown) + setAside, "notes"}
	slices.Sort(want)
	r.await("the deleted ones are gone", func() bool { return slices.Equal(topicDirs(t, mem), want) })
	if got := r.values("kept", 0, 0); !slices.Equal(got, numbered(0, 1)) {
		t.Errorf("read %v", got)
	}
	r.stop()
}

// TestAutoCreate: callers that race to an unknown topic all succeed, with one topic.
func TestAutoCreate(t *testing.T) {
	r, _ := beginMem(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			a := appendTo("fresh", topic.AcksAll, fmt.Sprint(i))
			if err := r.Produce(context.Background(), a); err != nil || a.Results[0].Err != nil {
				t.Errorf("%v, %+v", err, a.Results)
			}
		})
	}
	wg.Wait()
	if n := len(r.values("fresh", 0, 0)); n != 16 {
		t.Errorf("%d records", n)
	}
	if err := r.Produce(t.Context(), appendTo("bad name", topic.AcksAll, "v")); !fault.Is(err, fault.Validation) {
		t.Errorf("a bad name: %v", err)
	}
	r.stop()
}

// TestNoTopicForNothing: what is refused does not make a topic, and says the same as where there is one.
func TestNoTopicForNothing(t *testing.T) {
	r, _ := beginMem(t)
	large := strings.Repeat("x", topic.DefaultSettings().MaxRecordBytes()+1)
	last := topic.Offset(3)
	for name, refused := range map[topic.Name]struct {
		append topic.Append
		kind   fault.Kind
	}{
		"partition": {topic.Append{Records: []topic.Record{to(1, "v"), to(-2, "v")}}, fault.NoPartition},
		"large":     {topic.Append{Records: []topic.Record{to(0, large)}}, fault.RecordTooLarge},
		"time":      {topic.Append{Records: []topic.Record{{Timestamp: -5}}}, fault.Validation},
		"last":      {topic.Append{Records: []topic.Record{to(0, "v")}, IfLast: &last}, fault.OffsetMismatch},
		"nothing":   {topic.Append{}, 0},
	} {
		a := refused.append
		a.Topic, a.Acks, a.Principal = name, topic.AcksAll, topic.Anonymous
		if err := r.Produce(t.Context(), &a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(a.Results) != len(a.Records) {
			t.Fatalf("%s: %d results of %d records", name, len(a.Results), len(a.Records))
		}
		for i, s := range a.Results {
			if !fault.Is(s.Err, refused.kind) || s.Offset != topic.NoOffset {
				t.Errorf("%s: record %d: %+v", name, i, s)
			}
		}
		if _, err := r.Topic(name); !fault.Is(err, fault.NoTopic) {
			t.Errorf("%s: the topic was made: %v", name, err)
		}
	}
	none := topic.NoOffset
	a := appendTo("empty", topic.AcksAll, "v", large)
	a.IfLast = &none
	if err := r.Produce(t.Context(), a); err != nil || a.Results[0].Err != nil || !fault.Is(a.Results[1].Err, fault.RecordTooLarge) {
		t.Errorf("one sound record of two: %v, %+v", err, a.Results)
	}
	if got := r.values("empty", 0, 0); !slices.Equal(got, []string{"v"}) {
		t.Errorf("stored %v", got)
	}
	r.stop()
}

// TestRetentionAndCompaction go round without anybody's asking.
func TestRetentionAndCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, mem := beginMem(t)
		r.create("old", 1, "retention.ms", "60000", "segment.ms", "10000")
		r.create("keys", 1, "cleanup.policy", "compact", "segment.ms", "10000", "min.cleanable.dirty.ratio", "0")
		for i := range 20 {
			r.produce("old", to(0, "v"))
			r.produce("keys", topic.Record{Timestamp: topic.NoTimestamp, Key: []byte("k"), Value: fmt.Append(nil, i)})
			time.Sleep(10 * time.Second)
		}
		time.Sleep(2 * time.Minute)
		if b := r.boundsOf("old"); b.LogStart != b.HighWatermark || b.HighWatermark != 20 {
			t.Errorf("retention left %+v", b)
		}
		r.produce("old", to(0, "v"))
		if got := r.values("keys", 0, 0); !slices.Equal(got, []string{"19"}) {
			t.Errorf("memory serves what compaction removed: %v", got)
		}
		r.stop()
		r = begin(t, mem, r.cluster, testConfig("data")) // now all comes from the disk
		if got := r.values("keys", 0, 0); !slices.Equal(got, []string{"19"}) {
			t.Errorf("compaction left %v", got)
		}
		r.stop()
	})
}
