package cluster

import (
	"iter"

	"github.com/weirlog/weir/topic"
)

// Image is the whole state as it was at one moment. It is immutable and safe for concurrent use.
type Image struct {
	index      uint64
	version    uint64
	clusterID  string
	nodes      table[topic.NodeID, Node]
	topics     table[topic.Name, *Topic]
	names      table[topic.ID, topic.Name] // of the topics that live
	deleted    table[topic.ID, uint64]     // id of a deleted topic -> version at its end
	deletions  table[uint64, topic.ID]     // the same the other way round, to forget the oldest
	entries    table[entryKey, *Entry]
	creators   table[string, int] // principal -> topics that count for it; derived
	partitions int                // of all topics; derived
	entryBytes int                // of all values of entries; derived
}

// Node is a member of the cluster.
type Node struct {
	ID           topic.NodeID
	Incarnation  topic.Incarnation
	RegisteredAt topic.Millis
	Partitions   int // replicas that are assigned to it
}

// Topic is what the controller knows of one topic. It is shared: nobody writes to it. A changed topic
// is another Topic.
type Topic struct {
	*topic.Description
	Creator string
	Growth  []Growth // at least one; the last is the number of partitions now
	Version uint64   // of the state when this topic was last changed
}

// Growth says that a topic has had a number of partitions from a time on. An idempotency key that was
// first seen before a growth keeps mapping to the partitions that existed then.
type Growth struct {
	Partitions int
	Since      topic.Millis
}

// Entry is a value that the controller keeps and does not read.
type Entry struct {
	Kind    string
	Name    string
	Version uint64 // rises with each change, also over a deletion
	Value   []byte
}

type entryKey struct{ kind, name string }

// Index of the last command in the image, in the log that commits them. 0: none.
func (m *Image) Index() uint64 { return m.index }

// Version counts the commands that ever took part in the state. A later image has a higher one.
func (m *Image) Version() uint64 { return m.version }

// ClusterID is the name of the cluster, "" before it was founded.
func (m *Image) ClusterID() string { return m.clusterID }

// Topic finds a topic by name.
func (m *Image) Topic(name topic.Name) (*Topic, bool) { return m.topics.get(name) }

// TopicByID finds a topic by id.
func (m *Image) TopicByID(id topic.ID) (*Topic, bool) {
	name, ok := m.names.get(id)
	if !ok {
		return nil, false
	}
	return m.topics.get(name)
}

// Deleted says that a topic of this id lived and was deleted, as far as the state remembers: it
// keeps the last MaxDeletedTopicsRemembered ids.
func (m *Image) Deleted(id topic.ID) bool {
	_, ok := m.deleted.get(id)
	return ok
}

// Topics returns up to limit topics by name, from the first one after a name on. "" begins at the
// first; a limit of 0 or less returns all.
func (m *Image) Topics(after topic.Name, limit int) []*Topic {
	var found []*Topic
	for name, t := range m.topics.from(after) {
		if name == after {
			continue
		}
		found = append(found, t)
		if len(found) == limit {
			break
		}
	}
	return found
}

// AllTopics walks the topics by name.
func (m *Image) AllTopics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range m.topics.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// TopicCount is the number of topics, internal ones too.
func (m *Image) TopicCount() int { return m.topics.count }

// EntryCount is the number of entries of all kinds.
func (m *Image) EntryCount() int { return m.entries.count }

// PartitionCount is the number of partitions of all topics.
func (m *Image) PartitionCount() int { return m.partitions }

// TopicsOf counts the topics of a principal, internal topics left out.
func (m *Image) TopicsOf(principal string) int {
	n, _ := m.creators.get(principal)
	return n
}

// Node finds a node.
func (m *Image) Node(id topic.NodeID) (Node, bool) { return m.nodes.get(id) }

// Nodes returns every node by id.
func (m *Image) Nodes() []Node {
	nodes := make([]Node, 0, m.nodes.count)
	for _, n := range m.nodes.all() {
		nodes = append(nodes, n)
	}
	return nodes
}

// Entry finds an entry.
func (m *Image) Entry(kind, name string) (*Entry, bool) { return m.entries.get(entryKey{kind, name}) }

// Entries returns the entries of one kind by name.
func (m *Image) Entries(kind string) []*Entry {
	var found []*Entry
	for key, e := range m.entries.from(entryKey{kind: kind}) {
		if key.kind != kind {
			break
		}
		found = append(found, e)
	}
	return found
}

// Difference between two images, as far as topics go.
type Difference struct {
	Changed []*Topic // created or altered, as they are now, by name
	Gone    []*Topic // deleted, as they last were; a name that was made again is in both lists
}

// Since returns what changed from an older image to m. Its cost follows the number of changes, not
// the number of topics. From nil everything is new.
func (m *Image) Since(older *Image) Difference {
	var d Difference
	if older == nil {
		d.Changed = m.Topics("", 0)
		return d
	}
	for was, is := range differences(older.topics, m.topics) {
		if is != nil {
			d.Changed = append(d.Changed, is)
		}
		if was != nil && (is == nil || is.ID != was.ID) {
			d.Gone = append(d.Gone, was)
		}
	}
	return d
}
