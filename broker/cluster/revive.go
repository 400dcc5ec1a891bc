package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirlog/weir/topic"
)

// Survivor is a topic's directory that was found without regard to the metadata.
type Survivor struct {
	ID   topic.ID
	Name topic.Name // "" when nothing in the directory says it

	Partitions int // at least as many as have a directory
	Written    topic.Millis

	Described bool // the directory says all that follows, otherwise it is not known
	CreatedAt topic.Millis
	Creator   string
	Overrides map[string]string
	Growth    []Growth
}

// Check says whether the topic can be one.
func (s *Survivor) Check() error {
	if _, err := topic.ParseName(string(s.Name)); err != nil {
		return err
	}
	if s.Partitions > MaxPartitionsPerTopic {
		return fmt.Errorf("it has %d partitions, at most %d are allowed", s.Partitions, MaxPartitionsPerTopic)
	}
	if !s.Described {
		return nil
	}
	if len(s.Growth) == 0 || len(s.Creator) > MaxEntryNameBytes {
		return fmt.Errorf("what it says of the topic is incomplete or too long")
	}
	was := Growth{}
	for _, g := range s.Growth {
		if g.Partitions <= was.Partitions || g.Since < was.Since || g.Partitions > MaxPartitionsPerTopic {
			return fmt.Errorf("it says that the topic grew from %d partitions to %d", was.Partitions, g.Partitions)
		}
		was = g
	}
	_, err := parseOverrides("Revive", s.Name, s.Overrides)
	return err
}

// Source says where the settings of a revived topic come from.
type Source string

// The sources, best first.
const (
	FromDirectory Source = "its directory"
	FromMetadata  Source = "the old metadata"
	FromNowhere   Source = "nowhere" // they are lost
)

// Revived is a topic of metadata that was made anew.
type Revived struct {
	ID         topic.ID
	Name       topic.Name
	Partitions int
	Overrides  map[string]string
	Settings   Source
	Empty      bool // there is no directory of it
}

// LeftOut is a topic that the new metadata does not have.
type LeftOut struct {
	ID     topic.ID
	Name   topic.Name // "" when it is not known
	Why    string
	Doomed bool // it was deleted, so its directory goes; others are kept and set aside
}

// Revive makes metadata anew from what is left of the old, nil for nothing, and the topics' directories
// that were found. Nobody may use the old state any more. In the new one:
//
//   - A topic whose directory says what it is has the settings that are written there.
//   - Another has those of the old metadata. When that does not know it either, its settings are lost,
//     and it gets some under which nothing is ever deleted.
//   - A topic of the old metadata without a directory comes back empty, unless another has its name.
//   - Of several directories with one name, that which was written to last gets it. The others are left
//     out, and so are those without a name and those of topics that were deleted.
//
// Epochs are raised when the partitions are opened, by those who can read the logs.
func Revive(old *State, clusterID string, node topic.NodeID, at topic.Millis, found []Survivor) (*State, []Revived, []LeftOut) {
	s := old
	if s == nil {
		s = NewState()
	}
	m := &s.image
	m.clusterID = clusterID
	m.index++
	m.version++
	if _, ok := m.nodes.get(node); !ok {
		m.nodes = m.nodes.with(node, Node{ID: node, RegisteredAt: at})
	}
	chosen, left := m.choose(found)
	for _, f := range chosen {
		m.revive(f, node, at)
	}
	var revived []Revived
	for t := range m.AllTopics() {
		r := Revived{ID: t.ID, Name: t.Name, Partitions: len(t.Partitions), Overrides: t.Overrides, Settings: FromMetadata}
		switch f, ok := chosen[t.ID]; {
		case !ok:
			r.Empty = true
		case f.Described:
			r.Settings = FromDirectory
		case f.unknown:
			r.Settings = FromNowhere
		}
		revived = append(revived, r)
	}
	return s, revived, left
}

// candidate is a directory that may become a topic.
type candidate struct {
	Survivor
	unknown bool // to the old metadata
}

// choose decides which directories become topics, and takes topics out of the image whose names these
// need. Their ids are not remembered as deleted: a directory that turns up later is set aside, not removed.
func (m *Image) choose(found []Survivor) (chosen map[topic.ID]*candidate, left []LeftOut) {
	chosen = map[topic.ID]*candidate{}
	owners := map[topic.Name]*candidate{}
	var all []*candidate
	for _, f := range found {
		known, ok := m.TopicByID(f.ID)
		switch {
		case m.Deleted(f.ID):
			left = append(left, LeftOut{ID: f.ID, Name: f.Name, Why: "the topic was deleted", Doomed: true})
			continue
		case ok && f.Name != known.Name:
			// The id is the directory's name, and the old metadata says whose it is.
			f = Survivor{ID: f.ID, Name: known.Name, Partitions: f.Partitions, Written: f.Written}
		case f.Name == "":
			left = append(left, LeftOut{ID: f.ID, Why: "nothing says which topic it is"})
			continue
		}
		all = append(all, &candidate{Survivor: f, unknown: !ok})
	}
	slices.SortFunc(all, func(a, b *candidate) int { // the one to prefer first
		return cmp.Or(cmp.Compare(b.Written, a.Written), compareBool(a.unknown, b.unknown), slices.Compare(a.ID[:], b.ID[:]))
	})
	for _, c := range all {
		if first, taken := owners[c.Name]; taken {
			left = append(left, LeftOut{ID: c.ID, Name: c.Name, Why: fmt.Sprintf("topic %s has the same name and was written to later", first.ID)})
			if t, ok := m.TopicByID(c.ID); ok {
				m.forget(t)
			}
			continue
		}
		owners[c.Name], chosen[c.ID] = c, c
		if t, ok := m.Topic(c.Name); ok && t.ID != c.ID {
			if !slices.ContainsFunc(all, func(o *candidate) bool { return o.ID == t.ID }) {
				left = append(left, LeftOut{ID: t.ID, Name: t.Name, Why: fmt.Sprintf("it has no directory, and topic %s, which has one, has the same name", c.ID)})
			}
			m.forget(t)
		}
	}
	return chosen, left
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// revive puts a topic into the image, or brings the one that is there up to what its directory says.
func (m *Image) revive(c *candidate, node topic.NodeID, at topic.Millis) {
	t := &Topic{Description: &topic.Description{Name: c.Name, ID: c.ID, Replication: 1}, Creator: topic.Anonymous, Version: m.version}
	if known, ok := m.TopicByID(c.ID); ok {
		t = known.changed(m.version)
		m.forget(known)
	} else {
		t.CreatedAt = at
		t.Overrides = map[string]string{"retention.ms": "-1"} // the other defaults delete nothing
	}
	if c.Described {
		t.CreatedAt, t.Creator, t.Overrides, t.Growth = c.CreatedAt, c.Creator, cloneOverrides(c.Overrides), slices.Clone(c.Growth)
	}
	count := max(c.Partitions, len(t.Partitions), 1)
	if n := len(t.Growth); n > 0 {
		count = max(count, t.Growth[n-1].Partitions)
	}
	if n := len(t.Growth); n == 0 || t.Growth[n-1].Partitions < count {
		t.Growth = append(slices.Clip(t.Growth), Growth{Partitions: count, Since: at})
		if n > 0 {
			t.Growth[n].Since = max(at, t.Growth[n-1].Since)
		}
	}
	more := make([][]topic.NodeID, count-len(t.Partitions))
	for i := range more {
		more[i] = []topic.NodeID{node}
	}
	t.Partitions = newPartitions(t.Partitions, more)
	t.Settings, _ = topic.ParseSettings(t.Overrides) // they were read or checked before
	for _, p := range t.Partitions {
		for _, id := range p.Replicas {
			held, _ := m.nodes.get(id)
			held.Partitions++
			m.nodes = m.nodes.with(id, held)
		}
	}
	m.insert(t)
}
