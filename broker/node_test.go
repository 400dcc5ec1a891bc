package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/broker/cluster/quorum"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestProduceFetch(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 2)
	for i := range 50 {
		got := r.produce("orders", to(0, fmt.Sprint("v", 2*i)), to(0, fmt.Sprint("v", 2*i+1)))
		if int(got[0].Offset) != 2*i || got[1].Offset != got[0].Offset+1 {
			t.Fatalf("call %d: offsets %d, %d", i, got[0].Offset, got[1].Offset)
		}
	}
	if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 100)) {
		t.Errorf("read %v", got)
	}
	if got := r.values("orders", 1, 0); got != nil {
		t.Errorf("partition 1 has %v", got)
	}
	if r.ID() != 1 || r.ClusterID() != "test" {
		t.Errorf("node %d of %q", r.ID(), r.ClusterID())
	}
	r.stop()
}

func TestConfig(t *testing.T) {
	if err := testConfig("data").Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	err := Config{}.Validate()
	if !fault.Is(err, fault.Validation) {
		t.Fatal(err)
	}
	for _, setting := range []string{
		"node.id", "cluster.id", "data", "topics.partitions", "topics.max_partitions", "node.max_partitions",
		"topics.max_per_principal", "idempotency.window", "idempotency.max_keys", "produce.in_flight_bytes", "produce.queue",
		"storage.open_files", "clean.interval", "start.parallel", "storage.stall", "stop.timeout",
	} {
		if !strings.Contains(err.Error(), setting) {
			t.Errorf("%s is not among the mistakes", setting)
		}
	}
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("a node was made with the zero config")
	}
	if _, err := New(testConfig("data"), Deps{}); err == nil {
		t.Error("a node was made of nothing")
	}
}

// TestOverQuorum runs a node as cmd does: on a real disk, with the metadata in a raft of one.
func TestOverQuorum(t *testing.T) {
	dir := t.TempDir()
	start := func() (*Node, func()) {
		q, err := quorum.Open(quorum.Config{Dir: filepath.Join(dir, "raft"), Node: 1, ClusterID: "test", Found: true})
		if err != nil {
			t.Fatal(err)
		}
		below, stopBelow := runner(t, q.Run)
		n, err := New(testConfig(dir), Deps{FS: vfs.OS{}, Cluster: q})
		if err != nil {
			t.Fatal(err)
		}
		ended, stop := runner(t, n.Run)
		r := &running{Node: n, t: t, ended: ended}
		r.await("the node serves", func() bool { return n.Ready() == nil })
		return n, func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			stopBelow()
			if err := <-below; err != nil {
				t.Error(err)
			}
		}
	}
	n, stop := start()
	r := &running{Node: n, t: t}
	d := r.create("orders", 3)
	for i := range 20 {
		r.produce("orders", to(topic.Partition(i%3), fmt.Sprint("v", i/3)))
	}
	r.produce("fresh", to(0, "v0"))
	stop()
	n, stop = start()
	r = &running{Node: n, t: t}
	for p := range topic.Partition(3) {
		if got, want := r.values("orders", p, 0), numbered(0, 7-int(p)/2); !slices.Equal(got, want) {
			t.Errorf("partition %d: %v", p, got)
		}
	}
	if got, err := n.TopicByID(d.ID); err != nil || got.Partitions[0].Epoch <= d.Partitions[0].Epoch {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 { // the second changes nothing
		if _, err := n.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: map[string]*string{"retention.ms": new("5000")}}); err != nil {
			t.Error(err)
		}
	}
	if err := n.DeleteTopic(t.Context(), "fresh"); err != nil {
		t.Error(err)
	}
	stop()
}

// TestThousandPartitions: they start fast and take little memory, used once and then idle.
func TestThousandPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 1,000 directories")
	}
	const partitions = 1000
	dir := t.TempDir()
	c := newOneNode()
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := heap()
	r := begin(t, vfs.OS{}, c, testConfig(dir))
	begun := time.Now()
	r.create("orders", partitions)
	t.Logf("created in %v", time.Since(begun))
	var records []topic.Record
	for p := range topic.Partition(partitions) {
		records = append(records, to(p, strings.Repeat("x", 200)))
	}
	begun = time.Now()
	r.produce("orders", records...)
	t.Logf("one record to each in %v", time.Since(begun))
	// Stacks that grew while all of them were busy shrink by half with each collection. The race detector
	// makes frames larger, and with them what a stack keeps.
	within := func(most int64) bool {
		if raceEnabled {
			most *= 3
		}
		var used int64
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if used = heap() - before; used <= most || time.Now().After(deadline) {
				break
			}
		}
		t.Logf("%d bytes a partition, %d files open", used/partitions, r.files.Open())
		return used <= most
	}
	if !within(60 << 20) {
		t.Errorf("%d partitions take too much", partitions)
	}
	r.stop()

	before = heap()
	begun = time.Now()
	r = begin(t, vfs.OS{}, c, testConfig(dir))
	t.Logf("started in %v", time.Since(begun))
	if !within(30<<20) || r.files.Open() > 100 {
		t.Errorf("%d clean partitions take too much memory, or more than 100 files", partitions)
	}
	r.produce("orders", records...)
	r.stop()
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newOneNode()
	c.register()
	mem := newMem(t)
	mem.SetSpace(1 << 30)
	n, err := New(testConfig("data"), Deps{FS: mem, Cluster: c, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := runner(t, n.Run)
	r := &running{Node: n, t: t, ended: ended}
	r.await("it serves", func() bool { return n.Ready() == nil })
	r.create("orders", 3)
	for range 5 {
		r.produce("orders", to(0, "v"))
	}
	space, err := mem.Space("data")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"broker_partitions": 3, "broker_topics": 1, "broker_append_batches_total": 5, "broker_in_flight_bytes": 0,
		"broker_disk_free_bytes": float64(space.Free), "broker_disk_total_bytes": 1 << 30,
	} {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range families {
			if f.GetName() == name {
				m := f.GetMetric()[0]
				got := m.GetGauge().GetValue() + m.GetCounter().GetValue()
				if found = true; got != want {
					t.Errorf("%s is %v", name, got)
				}
			}
		}
		if !found {
			t.Errorf("there is no %s", name)
		}
	}
	if _, err := New(testConfig("data"), Deps{FS: newMem(t), Cluster: c, Registerer: registry}); err == nil {
		t.Error("two nodes share a registry")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStartFails: what keeps a node from starting is what Run returns.
func TestStartFails(t *testing.T) {
	mem := newMem(t)
	broken := errors.New("broken")
	failing := vfs.NewFailing(mem, vfs.Fault{Ops: vfs.OpReadDir, Match: topicsDir, Err: broken})
	r := launch(t, failing, newOneNode(), testConfig("data"))
	if err := <-r.ended; !errors.Is(err, broken) {
		t.Errorf("Run returned %v", err)
	}
	if r.Ready() == nil {
		t.Error("it says it is ready")
	}

	// A node that is stopped before it has started has not failed.
	c := newOneNode()
	c.held = make(chan struct{})
	r = launch(t, mem, c, testConfig("data"))
	r.stop()
}

// TestExactBytes: what comes out is what went in.
func TestExactBytes(t *testing.T) {
	r, mem := beginMem(t)
	r.create("orders", 1)
	values := [][]byte{nil, {}, {0}, []byte("12.50"), []byte("9223372036854775808"), []byte("🦫"), {0xff, 0xfe}, bytes.Repeat([]byte("x"), 1<<20)}
	var records []topic.Record
	for _, v := range values {
		records = append(records, topic.Record{Timestamp: topic.NoTimestamp, Key: v, Value: v})
	}
	records[len(records)-1].Key = nil // the value alone is as large as a record may be
	r.produce("orders", records...)
	check := func() {
		t.Helper()
		read := r.records("orders", 0, 0)
		for i, v := range values {
			if !bytes.Equal(read[i].Value, v) || !bytes.Equal(read[i].Key, records[i].Key) {
				t.Errorf("value %d is not what it was", i)
			}
		}
	}
	check()
	r.stop()
	r = begin(t, mem, r.cluster, testConfig("data"))
	check()
	r.stop()
}

// benchmark of the whole path, for orientation.
func BenchmarkProduce(b *testing.B) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r := begin(b, vfs.OS{}, newOneNode(), testConfig(dir))
	r.create("orders", 1)
	value := bytes.Repeat([]byte("x"), 200)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a := &topic.Append{Topic: "orders", Acks: topic.AcksAll, Records: []topic.Record{{Timestamp: topic.NoTimestamp, Value: value}}}
			if err := r.Produce(b.Context(), a); err != nil || a.Results[0].Err != nil {
				b.Error(err, a.Results)
			}
		}
	})
	b.StopTimer()
	stats := r.logStats("orders")
	b.ReportMetric(float64(b.N)/float64(max(stats.SyncsTotal, 1)), "records/sync")
	b.ReportMetric(float64(b.N)/float64(max(stats.AppendsTotal, 1)), "records/write")
	r.stop()
}

func (r *running) logStats(name topic.Name) storage.Stats {
	r.t.Helper()
	t, err := r.hall.byName(name)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := t.at(0)
	if err != nil {
		r.t.Fatal(err)
	}
	return p.log.Stats()
}
