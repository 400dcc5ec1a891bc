package cluster

import (
	"fmt"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	snapshotMagic  = "weirmeta"
	snapshotFormat = 1
)

// Snapshot is a state as it was at one moment. It is immutable, and making one costs little.
type Snapshot struct {
	image  *Image
	recent []remembered
}

// Snapshot returns a view of the state that stays as it is.
func (s *State) Snapshot() *Snapshot { return &Snapshot{image: s.Image(), recent: s.recent.list()} }

// Encode returns the snapshot's bytes: the same for every state that applied the same commands.
func (s *Snapshot) Encode() []byte {
	m := s.image
	w := writer{b: make([]byte, 0, 256+160*m.topics.count+32*m.partitions+64*len(s.recent))}
	w.raw([]byte(snapshotMagic))
	w.byte(snapshotFormat)
	w.uint(m.index)
	w.uint(m.version)
	w.string(m.clusterID)
	w.count(m.nodes.count)
	for _, n := range m.nodes.all() {
		w.node(n.ID)
		w.int(int64(n.Incarnation))
		w.int(int64(n.RegisteredAt))
	}
	w.count(m.topics.count)
	for _, t := range m.topics.all() {
		t.encode(&w)
	}
	w.count(m.deletions.count)
	for version, id := range m.deletions.all() {
		w.uint(version)
		w.id(id)
	}
	w.count(m.entries.count)
	for _, e := range m.entries.all() {
		w.string(e.Kind)
		w.string(e.Name)
		w.uint(e.Version)
		w.bytes(e.Value)
	}
	w.count(len(s.recent))
	for _, kept := range s.recent {
		kept.encode(&w)
	}
	w.checksum()
	return w.b
}

func (t *Topic) encode(w *writer) {
	w.string(string(t.Name))
	w.id(t.ID)
	w.int(int64(t.Replication))
	w.overrides(t.Overrides)
	w.int(int64(t.CreatedAt))
	w.string(t.Creator)
	w.uint(t.Version)
	w.count(len(t.Growth))
	for _, g := range t.Growth {
		w.int(int64(g.Partitions))
		w.int(int64(g.Since))
	}
	w.count(len(t.Partitions))
	for _, p := range t.Partitions {
		w.node(p.Leader)
		w.int(int64(p.Epoch))
		w.int(int64(p.Changes))
		w.nodes(p.Replicas)
		w.nodes(p.InSync)
	}
}

func (r remembered) encode(w *writer) {
	w.id(r.id)
	w.uint(r.version)
	w.string(r.op)
	w.string(r.code)
	w.string(r.where)
	w.string(r.sentence)
	w.id(r.topic)
	if r.deletes {
		w.byte(1)
	} else {
		w.byte(0)
	}
	w.int(int64(r.incarnation))
}

// DecodeSnapshot reads what [Snapshot.Encode] wrote. An error is a fault of kind Corrupt.
func DecodeSnapshot(b []byte) (*State, error) {
	s, err := decodeSnapshot(b)
	if err != nil {
		return nil, fault.Newf("cluster.DecodeSnapshot", fault.Corrupt, nil, "a snapshot of the metadata cannot be read: %w", err)
	}
	return s, nil
}

func decodeSnapshot(b []byte) (*State, error) {
	body, err := checked(b)
	if err != nil {
		return nil, err
	}
	r := &reader{b: body}
	if magic := r.raw(len(snapshotMagic)); r.err == nil && string(magic) != snapshotMagic {
		return nil, fmt.Errorf("it begins with %q instead of %q", magic, snapshotMagic)
	}
	if format := r.byte(); r.err == nil && format != snapshotFormat {
		return nil, newer("it", int(format), snapshotFormat)
	}
	s := NewState()
	m := &s.image
	m.index = r.uint()
	m.version = r.uint()
	m.clusterID = r.string()
	decodeNodes(r, m)
	if err := decodeTopics(r, m); err != nil {
		return nil, err
	}
	decodeDeleted(r, m)
	decodeEntries(r, m)
	decodeRecent(r, s)
	return s, r.end()
}

func decodeNodes(r *reader, m *Image) {
	rows := builder(m.nodes)
	for range r.count() {
		n := Node{ID: r.node(), Incarnation: topic.Incarnation(r.int()), RegisteredAt: r.millis()}
		rows.add(r, n.ID, n)
	}
	m.nodes = rows.table
}

func decodeTopics(r *reader, m *Image) error {
	rows := builder(m.topics)
	held := map[topic.NodeID]int{}
	for range r.count() {
		t, err := decodeTopic(r)
		if err != nil {
			return err
		}
		if _, twice := m.names.get(t.ID); twice {
			return fmt.Errorf("topic id %s is there twice", t.ID)
		}
		rows.add(r, t.Name, t)
		m.names = m.names.with(t.ID, t.Name)
		m.partitions += len(t.Partitions)
		m.count(t, 1)
		for _, p := range t.Partitions {
			for _, n := range p.Replicas {
				held[n]++
			}
		}
	}
	m.topics = rows.table
	m.nodes = m.nodes.mapped(func(n Node) (Node, bool) { n.Partitions = held[n.ID]; return n, true })
	return nil
}

func decodeTopic(r *reader) (*Topic, error) {
	d := &topic.Description{Name: topic.Name(r.string()), ID: r.id(), Replication: r.whole(), Overrides: r.overrides(), CreatedAt: r.millis()}
	t := &Topic{Description: d, Creator: r.string(), Version: r.uint()}
	for range r.count() {
		t.Growth = append(t.Growth, Growth{Partitions: r.whole(), Since: r.millis()})
	}
	n := r.count()
	d.Partitions = make([]topic.PartitionDescription, n)
	for i := range d.Partitions {
		d.Partitions[i] = topic.PartitionDescription{
			Partition: topic.Partition(i),
			Leader:    r.node(),
			Epoch:     topic.Epoch(r.int32()),
			Changes:   topic.PartitionEpoch(r.int32()),
			Replicas:  r.nodes(),
			InSync:    r.nodes(),
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(t.Growth) == 0 || n == 0 {
		return nil, fmt.Errorf("topic %q has no partitions", d.Name)
	}
	var err error
	if d.Settings, err = topic.ParseSettings(d.Overrides); err != nil {
		return nil, fmt.Errorf("the settings of topic %q: %w", d.Name, err)
	}
	return t, nil
}

func decodeDeleted(r *reader, m *Image) {
	rows := builder(m.deletions)
	for range r.count() {
		version, id := r.uint(), topic.ID(r.id())
		rows.add(r, version, id)
		m.deleted = m.deleted.with(id, version)
	}
	m.deletions = rows.table
	if r.err == nil && m.deleted.count != m.deletions.count {
		r.fail(errOrder)
	}
}

func decodeEntries(r *reader, m *Image) {
	rows := builder(m.entries)
	for range r.count() {
		e := &Entry{Kind: r.string(), Name: r.string(), Version: r.uint(), Value: r.bytes()}
		rows.add(r, entryKey{e.Kind, e.Name}, e)
		m.entryBytes += e.size()
	}
	m.entries = rows.table
}

func decodeRecent(r *reader, s *State) {
	n := r.count()
	if n > MaxCommandsRemembered {
		r.fail(errForm)
		return
	}
	for range n {
		kept := remembered{
			id: r.id(), version: r.uint(), op: r.string(), code: r.string(), where: r.string(), sentence: r.string(), topic: r.id(),
		}
		deletes := r.byte()
		kept.deletes, kept.incarnation = deletes == 1, topic.Incarnation(r.int())
		if _, twice := s.recent.find(kept.id); twice || deletes > 1 || kept.id == (CommandID{}) {
			r.fail(errForm)
		}
		if r.err != nil {
			return
		}
		s.recent.add(kept)
	}
}
