package topic

import "slices"

// Description is what the cluster knows of a topic. It is shared: nobody writes to it.
type Description struct {
	Name        Name
	ID          ID
	Replication int
	Partitions  []PartitionDescription // by number, from 0
	Overrides   map[string]string      // the settings that were set, by Kafka's names, as they were given
	Settings    Settings               // all settings in force
	CreatedAt   Millis
}

// PartitionDescription says who holds a partition.
type PartitionDescription struct {
	Partition Partition
	Leader    NodeID // 0: none
	Epoch     Epoch
	Changes   PartitionEpoch // of leader and in-sync set, so far
	Replicas  []NodeID
	InSync    []NodeID
}

// Creation asks for a new topic.
type Creation struct {
	Name        Name
	Partitions  int // 0 takes the default
	Replication int // 0 takes the default
	Overrides   map[string]string
	Principal   string
}

// Alteration asks for a change of a topic. Settings: a nil value goes back to the default.
type Alteration struct {
	Settings   map[string]*string
	Partitions int // 0 leaves the number; it can only rise
}

// At asks for an offset: a position in every partition.
type At struct {
	Kind AtKind
	Time Millis // for AtTime
}

// AtKind says how a position is given.
type AtKind int8

// The kinds of position.
const (
	AtEarliest AtKind = iota // the log's start
	AtLatest                 // the high watermark
	AtTime                   // the first record with a timestamp at or after a time; the end when there is none
)

// OffsetAt is the answer for one partition.
type OffsetAt struct {
	Partition Partition
	Offset    Offset
	Timestamp Millis // of the record found, for AtTime; else NoTimestamp
	Bounds    Bounds
}

// On says whether a node holds a replica of the partition.
func (d *PartitionDescription) On(node NodeID) bool { return slices.Contains(d.Replicas, node) }
