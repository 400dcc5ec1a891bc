package cluster

import (
	"fmt"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/wire"
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
	w.b.Raw([]byte(snapshotMagic))
	w.b.Byte(snapshotFormat)
	w.b.Uint(m.index)
	w.b.Uint(m.version)
	w.b.Text(m.clusterID)
	w.b.Count(m.nodes.count)
	for _, n := range m.nodes.all() {
		w.node(n.ID)
		w.b.Int(int64(n.Incarnation))
		w.b.Int(int64(n.RegisteredAt))
	}
	w.b.Count(m.topics.count)
	for _, t := range m.topics.all() {
		t.encode(&w)
	}
	w.b.Count(m.deletions.count)
	for version, id := range m.deletions.all() {
		w.b.Uint(version)
		w.b.ID(id)
	}
	w.b.Count(m.entries.count)
	for _, e := range m.entries.all() {
		w.b.Text(e.Kind)
		w.b.Text(e.Name)
		w.b.Uint(e.Version)
		w.b.Bytes(e.Value)
	}
	w.b.Count(len(s.recent))
	for _, kept := range s.recent {
		kept.encode(&w)
	}
	w.checksum()
	return w.b
}

func (t *Topic) encode(w *writer) {
	w.b.Text(string(t.Name))
	w.b.ID(t.ID)
	w.b.Int(int64(t.Replication))
	w.b.Texts(t.Overrides)
	w.b.Int(int64(t.CreatedAt))
	w.b.Text(t.Creator)
	w.b.Uint(t.Version)
	w.b.Count(len(t.Growth))
	for _, g := range t.Growth {
		w.b.Int(int64(g.Partitions))
		w.b.Int(int64(g.Since))
	}
	w.b.Count(len(t.Partitions))
	for _, p := range t.Partitions {
		w.node(p.Leader)
		w.b.Int(int64(p.Epoch))
		w.b.Int(int64(p.Changes))
		w.nodes(p.Replicas)
		w.nodes(p.InSync)
	}
}

func (r remembered) encode(w *writer) {
	w.b.ID(r.id)
	w.b.Uint(r.version)
	w.b.Text(r.op)
	w.b.Text(r.code)
	w.b.Text(r.where)
	w.b.Text(r.sentence)
	w.b.ID(r.topic)
	if r.deletes {
		w.b.Byte(1)
	} else {
		w.b.Byte(0)
	}
	w.b.Int(int64(r.incarnation))
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
	r := &reader{wire.NewReader(body)}
	if magic := r.Raw(len(snapshotMagic)); r.Err() == nil && string(magic) != snapshotMagic {
		return nil, fmt.Errorf("it begins with %q instead of %q", magic, snapshotMagic)
	}
	if format := r.Byte(); r.Err() == nil && format != snapshotFormat {
		return nil, newer("it", int(format), snapshotFormat)
	}
	s := NewState()
	m := &s.image
	m.index = r.Uint()
	m.version = r.Uint()
	m.clusterID = r.Text()
	decodeNodes(r, m)
	if err := decodeTopics(r, m); err != nil {
		return nil, err
	}
	decodeDeleted(r, m)
	decodeEntries(r, m)
	decodeRecent(r, s)
	return s, r.End()
}

func decodeNodes(r *reader, m *Image) {
	rows := builder(m.nodes)
	for range r.Count(1) {
		n := Node{ID: r.node(), Incarnation: topic.Incarnation(r.Int()), RegisteredAt: r.millis()}
		rows.add(r, n.ID, n)
	}
	m.nodes = rows.table
}

func decodeTopics(r *reader, m *Image) error {
	rows := builder(m.topics)
	held := map[topic.NodeID]int{}
	for range r.Count(1) {
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
	d := &topic.Description{Name: topic.Name(r.Text()), ID: r.ID(), Replication: r.Whole(), Overrides: r.Texts(), CreatedAt: r.millis()}
	t := &Topic{Description: d, Creator: r.Text(), Version: r.Uint()}
	for range r.Count(1) {
		t.Growth = append(t.Growth, Growth{Partitions: r.Whole(), Since: r.millis()})
	}
	n := r.Count(1)
	d.Partitions = make([]topic.PartitionDescription, n)
	for i := range d.Partitions {
		d.Partitions[i] = topic.PartitionDescription{
			Partition: topic.Partition(i),
			Leader:    r.node(),
			Epoch:     topic.Epoch(r.Int32()),
			Changes:   topic.PartitionEpoch(r.Int32()),
			Replicas:  r.nodes(),
			InSync:    r.nodes(),
		}
	}
	if r.Err() != nil {
		return nil, r.Err()
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
	for range r.Count(1) {
		version, id := r.Uint(), topic.ID(r.ID())
		rows.add(r, version, id)
		m.deleted = m.deleted.with(id, version)
	}
	m.deletions = rows.table
	if r.Err() == nil && m.deleted.count != m.deletions.count {
		r.Fail(wire.ErrOrder)
	}
}

func decodeEntries(r *reader, m *Image) {
	rows := builder(m.entries)
	for range r.Count(1) {
		e := &Entry{Kind: r.Text(), Name: r.Text(), Version: r.Uint(), Value: r.Bytes()}
		rows.add(r, entryKey{e.Kind, e.Name}, e)
		m.entryBytes += e.size()
	}
	m.entries = rows.table
}

func decodeRecent(r *reader, s *State) {
	n := r.Count(1)
	if n > MaxCommandsRemembered {
		r.Fail(wire.ErrForm)
		return
	}
	for range n {
		kept := remembered{
			id: r.ID(), version: r.Uint(), op: r.Text(), code: r.Text(), where: r.Text(), sentence: r.Text(), topic: r.ID(),
		}
		deletes := r.Byte()
		kept.deletes, kept.incarnation = deletes == 1, topic.Incarnation(r.Int())
		if _, twice := s.recent.find(kept.id); twice || deletes > 1 || kept.id == (CommandID{}) {
			r.Fail(wire.ErrForm)
		}
		if r.Err() != nil {
			return
		}
		s.recent.add(kept)
	}
}
