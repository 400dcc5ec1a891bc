package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// fakeNode is a node in memory: every record is a batch of its own.
type fakeNode struct {
	mu     sync.Mutex
	topics map[topic.Name]*fakeTopic
	keys   map[string][]topic.Stored // of idempotent calls that were one call
	ready  error

	// produce, when not nil, answers in place of the log.
	produce atomic.Pointer[func(ctx context.Context, a *topic.Append) error]
	calls   atomic.Int64 // of Produce

	trouble atomic.Pointer[troubled] // of one topic, to whoever reads it; nil: none
}

// troubled is a topic that cannot be read.
type troubled struct {
	name topic.Name
	err  error
}

type fakeTopic struct {
	d    *topic.Description
	logs []*fakeLog
}

type fakeLog struct {
	start   topic.Offset
	batches [][]byte // one record each, from offset 0 on
	records []topic.Record
	bells   map[chan<- struct{}]struct{}
}

func newFakeNode() *fakeNode {
	return &fakeNode{topics: map[topic.Name]*fakeTopic{}, keys: map[string][]topic.Stored{}}
}

// answer makes Produce do f; nil goes back to the log.
func (n *fakeNode) answer(f func(ctx context.Context, a *topic.Append) error) {
	if f == nil {
		n.produce.Store(nil)
		return
	}
	n.produce.Store(&f)
}

func noTopic(name topic.Name) error {
	return fault.Newf("fake.Topic", fault.NoTopic, name, "topic %q does not exist", name)
}

func (n *fakeNode) Ready() error { return n.ready }

func (n *fakeNode) CreateTopic(_ context.Context, c topic.Creation) (*topic.Description, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.create(c)
}

func (n *fakeNode) create(c topic.Creation) (*topic.Description, error) {
	if n.topics[c.Name] != nil {
		return nil, fault.Newf("fake.CreateTopic", fault.TopicExists, c.Name, "topic %q exists", c.Name)
	}
	settings, err := topic.ParseSettings(c.Overrides)
	if err != nil {
		return nil, err
	}
	if c.Partitions > 1000 {
		return nil, fault.Newf("fake.CreateTopic", fault.Limit, c.Name, "a topic may have 1000 partitions")
	}
	t := &fakeTopic{d: &topic.Description{
		Name: c.Name, ID: topic.NewID(), Replication: 1, Overrides: c.Overrides, Settings: settings, CreatedAt: 1_762_077_600_000,
	}}
	t.grow(max(1, c.Partitions))
	n.topics[c.Name] = t
	return t.d, nil
}

func (t *fakeTopic) grow(to int) {
	d := *t.d
	d.Partitions = slices.Clone(d.Partitions)
	for i := len(d.Partitions); i < to; i++ {
		d.Partitions = append(d.Partitions, topic.PartitionDescription{
			Partition: topic.Partition(i), Leader: 1, Epoch: 1, Replicas: []topic.NodeID{1}, InSync: []topic.NodeID{1},
		})
		t.logs = append(t.logs, &fakeLog{bells: map[chan<- struct{}]struct{}{}})
	}
	t.d = &d
}

func (n *fakeNode) AlterTopic(_ context.Context, name topic.Name, a topic.Alteration) (*topic.Description, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[name]
	if t == nil {
		return nil, noTopic(name)
	}
	if a.Partitions != 0 && a.Partitions < len(t.d.Partitions) {
		return nil, fault.Newf("fake.AlterTopic", fault.Validation, name, "partitions can only rise")
	}
	overrides := map[string]string{}
	for k, v := range t.d.Overrides {
		overrides[k] = v
	}
	for k, v := range a.Settings {
		if delete(overrides, k); v != nil {
			overrides[k] = *v
		}
	}
	settings, err := topic.ParseSettings(overrides)
	if err != nil {
		return nil, err
	}
	d := *t.d
	d.Overrides, d.Settings = overrides, settings
	t.d = &d
	t.grow(a.Partitions)
	return t.d, nil
}

func (n *fakeNode) DeleteTopic(_ context.Context, name topic.Name) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[name]
	if t == nil {
		return noTopic(name)
	}
	delete(n.topics, name)
	for _, l := range t.logs {
		l.ring()
	}
	return nil
}

func (l *fakeLog) ring() {
	for bell := range l.bells {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}

func (n *fakeNode) Topic(name topic.Name) (*topic.Description, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.topics[name]; t != nil {
		return t.d, nil
	}
	return nil, noTopic(name)
}

func (n *fakeNode) TopicByID(id topic.ID) (*topic.Description, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.topics {
		if t.d.ID == id {
			return t.d, nil
		}
	}
	return nil, fault.Newf("fake.TopicByID", fault.NoTopic, id, "the topic does not exist")
}

func (n *fakeNode) Topics(after topic.Name, limit int) []*topic.Description {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*topic.Description
	for name, t := range n.topics {
		if name > after {
			found = append(found, t.d)
		}
	}
	slices.SortFunc(found, func(a, b *topic.Description) int { return cmp.Compare(a.Name, b.Name) })
	return found[:min(limit, len(found))]
}

// log finds a partition; n.mu is held.
func (n *fakeNode) log(name topic.Name, p topic.Partition) (*fakeTopic, *fakeLog, error) {
	t := n.topics[name]
	if t == nil {
		return nil, nil, noTopic(name)
	}
	if int(p) >= len(t.logs) || p < 0 {
		return nil, nil, fault.Newf("fake.Log", fault.NoPartition, topic.Path{Topic: name, Partition: p}, "topic %q has %d partitions, from 0 on", name, len(t.logs))
	}
	return t, t.logs[p], nil
}

func (n *fakeNode) logByID(ref topic.Ref) (*fakeTopic, *fakeLog, error) {
	for name, t := range n.topics {
		if t.d.ID == ref.ID {
			return n.log(name, ref.Partition)
		}
	}
	return nil, nil, fault.Newf("fake.Log", fault.NoTopic, ref.ID, "the topic does not exist")
}

func (l *fakeLog) bounds() topic.Bounds {
	return topic.Bounds{LogStart: l.start, HighWatermark: topic.Offset(len(l.batches)), LeaderEpoch: 1}
}

func (n *fakeNode) Bounds(ref topic.Ref) (topic.Bounds, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, l, err := n.logByID(ref)
	if err != nil {
		return topic.Bounds{}, err
	}
	return l.bounds(), nil
}

func (n *fakeNode) Offsets(_ context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[name]
	if t == nil {
		return nil, noTopic(name)
	}
	var out []topic.OffsetAt
	for i, l := range t.logs {
		b := l.bounds()
		o := topic.OffsetAt{Partition: topic.Partition(i), Offset: b.HighWatermark, Timestamp: topic.NoTimestamp, Bounds: b}
		switch at.Kind {
		case topic.AtEarliest:
			o.Offset = b.LogStart
		case topic.AtTime:
			for j, r := range l.records {
				if r.Timestamp >= at.Time && topic.Offset(j) >= l.start {
					o.Offset, o.Timestamp = topic.Offset(j), r.Timestamp
					break
				}
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func (n *fakeNode) DeleteRecords(_ context.Context, path topic.Path, before topic.Offset) (topic.Offset, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, l, err := n.log(path.Topic, path.Partition)
	if err != nil {
		return topic.NoOffset, err
	}
	b := l.bounds()
	if before == topic.NoOffset {
		before = b.HighWatermark
	}
	if before > b.HighWatermark {
		return topic.NoOffset, fault.New("fake.DeleteRecords", fault.OffsetRange, path, &topic.RangeError{
			Path: path, Offset: before, Reason: topic.BeyondEnd, Bounds: b, ResumeAt: b.HighWatermark,
		})
	}
	l.start = max(l.start, before)
	return l.start, nil
}

// Produce creates the topic, checks each record as a log does, and copies it.
func (n *fakeNode) Produce(ctx context.Context, a *topic.Append) error {
	n.calls.Add(1)
	if f := n.produce.Load(); f != nil {
		return (*f)(ctx, a)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.topics[a.Topic] == nil {
		if _, err := n.create(topic.Creation{Name: a.Topic}); err != nil {
			return err
		}
	}
	if a.IdempotencyKey != "" && a.Keyed == nil {
		if old, again := n.keys[a.IdempotencyKey]; again {
			if len(old) != len(a.Records) {
				return fault.Newf("fake.Produce", fault.KeyReused, nil, "the idempotency key was used for another request")
			}
			copy(a.Results, old)
			for i := range a.Results {
				a.Results[i].Duplicate = true
			}
			return nil
		}
	}
	t := n.topics[a.Topic]
	for i := range a.Records {
		a.Results[i] = n.store(t, a, &a.Records[i])
	}
	if a.IdempotencyKey != "" && a.Keyed == nil {
		n.keys[a.IdempotencyKey] = slices.Clone(a.Results)
	}
	return nil
}

func (n *fakeNode) store(t *fakeTopic, a *topic.Append, r *topic.Record) topic.Stored {
	p := r.Partition
	if p == topic.AnyPartition {
		p = topic.Partition(len(r.Key) % len(t.logs))
	}
	refused := func(err error) topic.Stored { return topic.Stored{Partition: p, Offset: topic.NoOffset, Err: err} }
	_, l, err := n.log(a.Topic, p)
	if err != nil {
		return refused(err)
	}
	if a.IfLast != nil && *a.IfLast != topic.Offset(len(l.batches)-1) {
		return refused(fault.Newf("fake.Produce", fault.OffsetMismatch, nil, "the last offset is %d", len(l.batches)-1))
	}
	if batch.RecordBytes(r) > t.d.Settings.MaxRecordBytes() {
		return refused(fault.Newf("fake.Produce", fault.RecordTooLarge, nil, "a record may have %d bytes", t.d.Settings.MaxRecordBytes()))
	}
	copied := topic.Record{Partition: p, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		copied.Headers = append(copied.Headers, topic.Header{Name: string([]byte(h.Name)), Value: bytes.Clone(h.Value)})
	}
	if copied.Timestamp == topic.NoTimestamp {
		copied.Timestamp = 1_762_077_600_123
	}
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	b.Append(&copied, copied.Timestamp)
	encoded, err := b.Finish()
	if err != nil {
		return refused(err)
	}
	offset := topic.Offset(len(l.batches))
	batch.Stamp(encoded, offset, 1)
	l.batches = append(l.batches, encoded)
	l.records = append(l.records, copied)
	l.ring()
	return topic.Stored{Partition: p, Offset: offset, Timestamp: copied.Timestamp}
}

// stored returns what one partition holds.
func (n *fakeNode) stored(name topic.Name, p topic.Partition) []topic.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, l, err := n.log(name, p)
	if err != nil {
		return nil
	}
	return slices.Clone(l.records)
}

func (n *fakeNode) Listen(ref topic.Ref, bell chan<- struct{}) (func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, l, err := n.logByID(ref)
	if err != nil {
		return nil, err
	}
	l.bells[bell] = struct{}{}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(l.bells, bell)
	}, nil
}

func (n *fakeNode) Fetch(ctx context.Context, f topic.Fetch) (topic.Fetched, error) {
	bell := make(chan struct{}, 1)
	wait := time.NewTimer(f.Wait)
	defer wait.Stop()
	for {
		got, l, err := n.fetch(f)
		if err != nil || len(got.Batches) >= max(1, f.MinBytes) || f.Wait == 0 {
			return got, err
		}
		n.mu.Lock()
		l.bells[bell] = struct{}{}
		n.mu.Unlock()
		if got, _, err = n.fetch(f); err == nil && len(got.Batches) < max(1, f.MinBytes) {
			select {
			case <-bell:
				continue
			case <-wait.C:
			case <-ctx.Done():
			}
			got, _, err = n.fetch(f)
		}
		n.mu.Lock()
		delete(l.bells, bell)
		n.mu.Unlock()
		return got, err
	}
}

func (n *fakeNode) fetch(f topic.Fetch) (topic.Fetched, *fakeLog, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, l, err := n.log(f.Topic, f.Partition)
	if !f.ID.IsZero() {
		t, l, err = n.logByID(topic.Ref{ID: f.ID, Partition: f.Partition})
	}
	if err != nil {
		return topic.Fetched{}, nil, err
	}
	if bad := n.trouble.Load(); bad != nil && bad.name == t.d.Name {
		return topic.Fetched{}, nil, bad.err
	}
	b := l.bounds()
	path := topic.Path{Topic: t.d.Name, Partition: f.Partition}
	if f.Offset < b.LogStart || f.Offset > b.HighWatermark {
		e := &topic.RangeError{Path: path, Offset: f.Offset, Reason: topic.Retention, Bounds: b, ResumeAt: b.LogStart}
		if f.Offset > b.HighWatermark {
			e.Reason, e.ResumeAt = topic.BeyondEnd, b.HighWatermark
		}
		return topic.Fetched{}, nil, fault.New("fake.Fetch", fault.OffsetRange, path, e)
	}
	out := topic.Fetched{ID: t.d.ID, Next: f.Offset, LogStart: b.LogStart, HighWatermark: b.HighWatermark, LeaderEpoch: 1}
	for _, one := range l.batches[f.Offset:] {
		if len(out.Batches) > 0 && len(out.Batches)+len(one) > f.MaxBytes {
			break
		}
		out.Batches = append(out.Batches, one...)
		out.Next++
	}
	return out, l, nil
}

var errDisk = errors.New("open /var/lib/secret/orders.log: input/output error")
