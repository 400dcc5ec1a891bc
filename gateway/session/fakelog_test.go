package session_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// fakeLog is a node in memory: topics with partitions of batches, and the things that can happen to them.
type fakeLog struct {
	t testing.TB

	mu        sync.Mutex
	topics    map[topic.Name]*topic.Description
	parts     map[topic.Ref]*fakePart
	fetches   int
	producing int           // calls of Produce so far
	trouble   error         // what Fetch and Produce answer; nil: what they should
	hold      chan struct{} // what Produce waits for; nil: nothing
}

type fakePart struct {
	start    topic.Offset
	batches  []fakeBatch
	epoch    topic.Epoch
	rewrites int64
	gaps     []topic.Gap
	bells    map[chan<- struct{}]int
}

type fakeBatch struct {
	base, next topic.Offset
	epoch      topic.Epoch
	bytes      []byte
}

func newFakeLog(t testing.TB) *fakeLog {
	return &fakeLog{t: t, topics: map[topic.Name]*topic.Description{}, parts: map[topic.Ref]*fakePart{}}
}

// create makes a topic, in place of an older one of that name.
func (l *fakeLog) create(name topic.Name, partitions int) topic.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &topic.Description{Name: name, ID: topic.NewID(), Settings: topic.DefaultSettings()}
	l.topics[name] = d
	l.grow(d, partitions)
	return d.ID
}

func (l *fakeLog) grow(d *topic.Description, partitions int) {
	for n := len(d.Partitions); n < partitions; n++ {
		d.Partitions = append(d.Partitions, topic.PartitionDescription{Partition: topic.Partition(n), Leader: 1, Epoch: 1})
		l.parts[topic.Ref{ID: d.ID, Partition: topic.Partition(n)}] = &fakePart{epoch: 1, bells: map[chan<- struct{}]int{}}
	}
}

// addPartitions replaces the topic's description by one with more partitions.
func (l *fakeLog) addPartitions(name topic.Name, partitions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := *l.topics[name]
	d.Partitions = slices.Clone(d.Partitions)
	l.grow(&d, partitions)
	l.topics[name] = &d
	l.ringAll(d.ID)
}

// remove deletes a topic.
func (l *fakeLog) remove(name topic.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.topics[name]
	delete(l.topics, name)
	l.ringAll(d.ID)
	for ref := range l.parts {
		if ref.ID == d.ID {
			delete(l.parts, ref)
		}
	}
}

func (l *fakeLog) ringAll(id topic.ID) {
	for ref, p := range l.parts {
		if ref.ID == id {
			p.ring()
		}
	}
}

func (p *fakePart) ring() {
	for bell := range p.bells {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}

func (p *fakePart) end() topic.Offset {
	if len(p.batches) == 0 {
		return p.start
	}
	return p.batches[len(p.batches)-1].next
}

func (l *fakeLog) part(name topic.Name, n topic.Partition) *fakePart {
	p := l.parts[topic.Ref{ID: l.topics[name].ID, Partition: n}]
	if p == nil {
		l.t.Fatalf("no partition %s/%d", name, n)
	}
	return p
}

// append stores records as one batch.
func (l *fakeLog) append(name topic.Name, n topic.Partition, records ...topic.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part(name, n).append(l.t, records)
}

func (p *fakePart) append(t testing.TB, records []topic.Record) topic.Offset {
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	for i := range records {
		b.Append(&records[i], max(records[i].Timestamp, 0))
	}
	bytes, err := b.Finish()
	if err != nil {
		t.Error(err)
		return topic.NoOffset
	}
	base := p.end()
	batch.Stamp(bytes, base, p.epoch)
	p.batches = append(p.batches, fakeBatch{base: base, next: base + topic.Offset(len(records)), epoch: p.epoch, bytes: bytes})
	p.ring()
	return base
}

// values stores one batch of a record for each value.
func (l *fakeLog) values(name topic.Name, n topic.Partition, values ...string) {
	records := make([]topic.Record, len(values))
	for i, v := range values {
		records[i] = topic.Record{Value: []byte(v)}
	}
	l.append(name, n, records...)
}

// retain deletes what is below an offset.
func (l *fakeLog) retain(name topic.Name, n topic.Partition, below topic.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(name, n)
	p.start = below
	p.batches = slices.DeleteFunc(p.batches, func(b fakeBatch) bool { return b.next <= below })
	p.ring()
}

// damage loses the batches in a range.
func (l *fakeLog) damage(name topic.Name, n topic.Partition, from, to topic.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(name, n)
	p.batches = slices.DeleteFunc(p.batches, func(b fakeBatch) bool { return b.base >= from && b.next <= to })
	p.gaps = append(p.gaps, topic.Gap{Partition: n, Start: from, End: to, Reason: topic.Damaged})
}

// compact loses the batches in a range, as newer records of their keys make it.
func (l *fakeLog) compact(name topic.Name, n topic.Partition, from, to topic.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(name, n)
	p.batches = slices.DeleteFunc(p.batches, func(b fakeBatch) bool { return b.base >= from && b.next <= to })
	p.rewrites++
}

// hollow takes all records out of the batches in a range, whose headers keep their place, as compaction does.
func (l *fakeLog) hollow(name topic.Name, n topic.Partition, from, to topic.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(name, n)
	for i, b := range p.batches {
		if b.base < from || b.next > to {
			continue
		}
		var err error
		none := batch.Filter{Keep: func(*batch.Record) bool { return false }}
		if p.batches[i].bytes, _, err = none.Append(nil, b.bytes); err != nil {
			l.t.Error(err)
		}
	}
	p.rewrites++
}

// cut truncates a log and begins a new reign.
func (l *fakeLog) cut(name topic.Name, n topic.Partition, to topic.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(name, n)
	p.batches = slices.DeleteFunc(p.batches, func(b fakeBatch) bool { return b.base >= to })
	p.epoch++
	p.ring()
}

func (l *fakeLog) Topic(name topic.Name) (*topic.Description, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.topics[name]; d != nil {
		return d, nil
	}
	return nil, fault.Newf("fake.Topic", fault.NoTopic, nil, "topic %q does not exist", name)
}

func (l *fakeLog) TopicByID(id topic.ID) (*topic.Description, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.topics {
		if d.ID == id {
			return d, nil
		}
	}
	return nil, fault.Newf("fake.TopicByID", fault.NoTopic, nil, "the topic does not exist any more")
}

func (l *fakeLog) find(ref topic.Ref) (*fakePart, error) {
	if p := l.parts[ref]; p != nil {
		return p, nil
	}
	return nil, fault.Newf("fake.find", fault.NoTopic, nil, "the topic does not exist any more")
}

func (p *fakePart) bounds() topic.Bounds {
	return topic.Bounds{LogStart: p.start, HighWatermark: p.end(), LeaderEpoch: p.epoch, Rewrites: p.rewrites}
}

func (l *fakeLog) Bounds(ref topic.Ref) (topic.Bounds, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.find(ref)
	if err != nil {
		return topic.Bounds{}, err
	}
	return p.bounds(), nil
}

func (l *fakeLog) Offsets(_ context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error) {
	d, err := l.Topic(name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make([]topic.OffsetAt, len(d.Partitions))
	for i := range found {
		p := l.parts[topic.Ref{ID: d.ID, Partition: topic.Partition(i)}]
		found[i] = topic.OffsetAt{Partition: topic.Partition(i), Offset: p.end()}
		for _, b := range slices.Backward(p.batches) {
			if h, err := batch.ParseHeader(b.bytes); err == nil && h.MaxTimestamp >= at.Time {
				found[i].Offset = b.base
			}
		}
	}
	return found, nil
}

func (l *fakeLog) Fetch(_ context.Context, f topic.Fetch) (topic.Fetched, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches++
	if l.trouble != nil {
		return topic.Fetched{}, l.trouble
	}
	p, err := l.find(topic.Ref{ID: f.ID, Partition: f.Partition})
	if err != nil {
		return topic.Fetched{}, err
	}
	if err := p.inRange(f); err != nil {
		return topic.Fetched{}, err
	}
	out := topic.Fetched{ID: f.ID, Next: f.Offset, LogStart: p.start, HighWatermark: p.end(), LeaderEpoch: p.epoch}
	for _, b := range p.batches {
		if b.next <= f.Offset {
			continue
		}
		if len(out.Batches) > 0 && len(out.Batches)+len(b.bytes) > f.MaxBytes {
			break
		}
		out.Batches = append(out.Batches, b.bytes...)
		out.Next = b.next
	}
	for _, g := range p.gaps {
		if g.End > f.Offset && g.Start < out.Next {
			out.Gaps = append(out.Gaps, g)
		}
	}
	return out, nil
}

func (p *fakePart) inRange(f topic.Fetch) error {
	out := &topic.RangeError{Path: topic.Path{Topic: f.Topic, Partition: f.Partition}, Offset: f.Offset, Bounds: p.bounds()}
	cut := topic.NoOffset // where the log has another epoch than the reader saw
	for _, b := range p.batches {
		if b.base < f.Offset && f.Offset <= b.next && f.LastEpoch != topic.NoEpoch && b.epoch != f.LastEpoch {
			cut = b.base
		}
	}
	switch {
	case f.Offset < p.start:
		out.Reason, out.ResumeAt = topic.Retention, p.start
	case f.Offset > p.end():
		out.Reason, out.ResumeAt = topic.Truncated, p.end()
	case cut != topic.NoOffset:
		out.Reason, out.ResumeAt = topic.Truncated, cut
	default:
		return nil
	}
	return fault.New("fake.Fetch", fault.OffsetRange, out.Path, out)
}

func (l *fakeLog) Listen(ref topic.Ref, bell chan<- struct{}) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.find(ref)
	if err != nil {
		return nil, err
	}
	p.bells[bell]++
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if p.bells[bell]--; p.bells[bell] == 0 {
				delete(p.bells, bell)
			}
		})
	}, nil
}

// listeners is how many bells hang in the whole log.
func (l *fakeLog) listeners() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, p := range l.parts {
		n += len(p.bells)
	}
	return n
}

func (l *fakeLog) Produce(ctx context.Context, a *topic.Append) error {
	l.mu.Lock()
	hold := l.hold
	l.producing++
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble != nil {
		return l.trouble
	}
	d := l.topics[a.Topic]
	if d == nil {
		return fault.Newf("fake.Produce", fault.NoTopic, nil, "topic %q does not exist", a.Topic)
	}
	for i := range a.Records {
		r := &a.Records[i]
		n := max(r.Partition, 0)
		p := l.parts[topic.Ref{ID: d.ID, Partition: n}]
		if p == nil {
			a.Results[i] = topic.Stored{Partition: n, Offset: topic.NoOffset, Err: fault.Newf("fake.Produce", fault.NoPartition, nil, "no partition %d", n)}
			continue
		}
		base := p.append(l.t, []topic.Record{*r})
		a.Results[i] = topic.Stored{Partition: n, Offset: base, Timestamp: max(r.Timestamp, 0)}
	}
	return nil
}

func (l *fakeLog) setTrouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = err
}

func (l *fakeLog) fetched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches
}
