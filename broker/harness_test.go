package broker

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oneNode is the cluster's metadata for one node, without a raft: commands apply at once. It outlives
// the nodes that are started on it, as the metadata on disk does.
type oneNode struct {
	mu          sync.Mutex
	state       *cluster.State
	index       uint64
	image       *cluster.Image
	changed     chan struct{}
	incarnation topic.Incarnation
	ops         []cluster.Op  // all that were applied
	held        chan struct{} // while not nil, AwaitReady waits for it
	refuse      func(cluster.Op) error
}

func newOneNode() *oneNode {
	c := &oneNode{state: cluster.NewState(), changed: make(chan struct{})}
	c.image = c.state.Image()
	return c
}

// clone is the same metadata for another node, as it is found after a crash.
func (c *oneNode) clone() *oneNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := newOneNode()
	for _, op := range c.ops {
		other.apply(op)
	}
	return other
}

func (c *oneNode) apply(op cluster.Op) cluster.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
	c.index++
	result := c.state.Apply(c.index, cluster.Command{ID: cluster.CommandID{byte(c.index), byte(c.index >> 8), byte(c.index >> 16), 1}, Op: op})
	c.image = c.state.Image()
	close(c.changed)
	c.changed = make(chan struct{})
	return result
}

// register is what the quorum does when a process starts.
func (c *oneNode) register() {
	r := c.apply(cluster.RegisterNode{Node: 1, At: topic.Millis(time.Now().UnixMilli())})
	c.incarnation = r.Incarnation
	c.changed = make(chan struct{}) // a channel of the test that runs now
}

func (c *oneNode) AwaitReady(ctx context.Context) error {
	if c.held == nil {
		return nil
	}
	select {
	case <-c.held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *oneNode) Ready() error                   { return nil }
func (c *oneNode) Incarnation() topic.Incarnation { return c.incarnation }

func (c *oneNode) Watch() (*cluster.Image, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.image, c.changed
}

func (c *oneNode) Propose(_ context.Context, command cluster.Command) (cluster.Result, error) {
	if c.refuse != nil {
		if err := c.refuse(command.Op); err != nil {
			return cluster.Result{}, err
		}
	}
	r := c.apply(command.Op)
	return r, r.Err
}

// slowFS lets a test hold up what a node does to its disk. Its hooks run before the operation.
type slowFS struct {
	vfs.FS
	sync  func(name string)
	write func(name string)
	other func(op vfs.Op, name string) // before a read, a removal or the sync of a directory
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (s *slowFS) Open(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, s}, nil
}

func (f *slowFile) Sync() error {
	if f.fs.sync != nil {
		f.fs.sync(f.Name())
	}
	return f.File.Sync()
}

func (f *slowFile) WriteAt(b []byte, off int64) (int, error) {
	if f.fs.write != nil {
		f.fs.write(f.Name())
	}
	return f.File.WriteAt(b, off)
}

func (f *slowFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.before(vfs.OpRead, f.Name())
	return f.File.ReadAt(b, off)
}

func (s *slowFS) Remove(name string) error {
	s.before(vfs.OpRemove, name)
	return s.FS.Remove(name)
}

func (s *slowFS) SyncDir(dir string) error {
	s.before(vfs.OpSyncDir, dir)
	return s.FS.SyncDir(dir)
}

func (s *slowFS) before(op vfs.Op, name string) {
	if s.other != nil {
		s.other(op, name)
	}
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// running is a node under test.
type running struct {
	*Node
	t       testing.TB
	cluster *oneNode
	cancel  context.CancelFunc
	ended   chan error
}

func testConfig(dir string) Config {
	cfg := DefaultConfig()
	cfg.ClusterID = "test"
	cfg.Dir = dir
	return cfg
}

// launch starts a node and does not wait for it.
func launch(t testing.TB, fsys vfs.FS, c *oneNode, cfg Config) *running {
	t.Helper()
	c.register()
	n, err := New(cfg, Deps{FS: fsys, Cluster: c, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: n, t: t, cluster: c, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- n.Run(ctx) }()
	return r
}

// begin starts a node and waits until it serves.
func begin(t testing.TB, fsys vfs.FS, c *oneNode, cfg Config) *running {
	t.Helper()
	r := launch(t, fsys, c, cfg)
	r.await("the node serves", func() bool { return r.Ready() == nil })
	return r
}

// beginMem starts a node on an empty file system in memory.
func beginMem(t testing.TB) (*running, *vfs.Mem) {
	t.Helper()
	mem := newMem(t)
	return begin(t, mem, newOneNode(), testConfig("data")), mem
}

func newMem(t testing.TB) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	return mem
}

// stop ends the node in order.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

// await looks until something is so, at most for ten seconds.
func (r *running) await(what string, so func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !so() {
		select {
		case err := <-r.ended:
			r.ended <- err
			r.t.Fatalf("waiting until %s: Run returned: %v", what, err)
		default:
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *running) create(name topic.Name, partitions int, settings ...string) *topic.Description {
	r.t.Helper()
	overrides := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		overrides[settings[i]] = settings[i+1]
	}
	d, err := r.CreateTopic(context.Background(), topic.Creation{Name: name, Partitions: partitions, Overrides: overrides, Principal: topic.Anonymous})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// to makes a record for a partition.
func to(p topic.Partition, value string) topic.Record {
	return topic.Record{Partition: p, Timestamp: topic.NoTimestamp, Value: []byte(value)}
}

// produce appends records and returns their results; every one must have been stored.
func (r *running) produce(name topic.Name, records ...topic.Record) []topic.Stored {
	r.t.Helper()
	a := &topic.Append{Topic: name, Records: records, Acks: topic.AcksAll, Principal: topic.Anonymous}
	if err := r.Produce(context.Background(), a); err != nil {
		r.t.Fatal(err)
	}
	for i, s := range a.Results {
		if s.Err != nil {
			r.t.Fatalf("record %d: %v", i, s.Err)
		}
	}
	return a.Results
}

// values reads a partition from an offset to its high watermark.
func (r *running) values(name topic.Name, p topic.Partition, from topic.Offset) []string {
	r.t.Helper()
	var values []string
	for _, record := range r.records(name, p, from) {
		values = append(values, string(record.Value))
	}
	return values
}

type record struct {
	Offset    topic.Offset
	Timestamp topic.Millis
	Key       []byte
	Value     []byte
}

func (r *running) records(name topic.Name, p topic.Partition, from topic.Offset) []record {
	r.t.Helper()
	var all []record
	var reader batch.Reader
	defer reader.Close()
	for {
		got, err := r.Fetch(context.Background(), topic.Fetch{Topic: name, Partition: p, Offset: from, LastEpoch: topic.NoEpoch, MaxBytes: 1 << 20})
		if err != nil {
			r.t.Fatal(err)
		}
		if got.Next == from {
			return all
		}
		for reader.Reset(got.Batches, from); reader.Next(); {
			one := reader.Record()
			all = append(all, record{one.Offset, one.Timestamp, append([]byte(nil), one.Key...), append([]byte(nil), one.Value...)})
		}
		if reader.Err() != nil {
			r.t.Fatal(reader.Err())
		}
		from = got.Next
	}
}

// bytes are all batches of a partition.
func (r *running) bytes(name topic.Name, p topic.Partition) (all []byte) {
	r.t.Helper()
	for from := topic.Offset(0); ; {
		got, err := r.Fetch(context.Background(), topic.Fetch{Topic: name, Partition: p, Offset: from, LastEpoch: topic.NoEpoch})
		if err != nil {
			r.t.Fatal(err)
		}
		if got.Next == from {
			return all
		}
		all, from = append(all, got.Batches...), got.Next
	}
}

func numbered(from, count int) []string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprint("v", from+i))
	}
	return all
}

// runner runs something until stop is called.
func runner(t testing.TB, run func(context.Context) error) (ended chan error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return ended, cancel
}
