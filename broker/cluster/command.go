package cluster

import (
	"github.com/weirlog/weir/topic"
)

// CommandID names one intent of a proposer. A command that is committed twice, because its proposer
// did not learn of the first time, takes effect once and is answered twice.
type CommandID [16]byte

// Command is one change of the state.
type Command struct {
	ID CommandID
	Op Op
}

// Op is what a command does: one of the structs below.
type Op interface {
	code() opCode
	encode(w *writer)
	apply(s *State) Result
}

// FoundCluster gives a new cluster its id. It can be done once.
type FoundCluster struct {
	ClusterID string
}

// RegisterNode announces that a process of a node has started. The node gets its next incarnation, and
// every partition that it leads a new epoch: no reign goes on over a restart.
type RegisterNode struct {
	Node topic.NodeID
	At   topic.Millis
}

// CreateTopic makes a topic.
type CreateTopic struct {
	ID          topic.ID // chosen at random by the proposer
	Name        topic.Name
	Partitions  int
	Replication int
	// Assignment lists the replicas of each partition, the first one leads. Nil leaves the choice to the
	// state, which spreads them over the registered nodes.
	Assignment [][]topic.NodeID
	Overrides  map[string]string // settings that differ from the defaults, by Kafka's names
	Creator    string            // the principal whose count of topics it adds to; not counted for internal topics
	At         topic.Millis
}

// AlterTopic changes settings and number of partitions of a topic, all or nothing.
type AlterTopic struct {
	ID         topic.ID
	Settings   map[string]*string // nil goes back to the default
	Partitions int                // 0 leaves the number; it can only rise
	At         topic.Millis
}

// DeleteTopic ends the life of a topic. Its id is never used again.
type DeleteTopic struct {
	ID topic.ID
}

// ChangePartition proposes a partition's next leader and in-sync set. It is refused whole unless all
// that it names of the present is so.
type ChangePartition struct {
	Partition   topic.Ref
	Epoch       topic.Epoch          // the leader epoch that the proposer saw
	Changes     topic.PartitionEpoch // the partition epoch that the proposer saw
	By          topic.NodeID         // the proposer
	Incarnation topic.Incarnation    // of the proposer
	Leader      topic.NodeID         // the next leader, a member of InSync; another one than now begins a new epoch
	InSync      []topic.NodeID
}

// RaiseEpoch begins a reign above an epoch that the leader found in its log. A log can only be ahead of
// the metadata after an older copy of the metadata was brought back, and epochs never fall along a log.
type RaiseEpoch struct {
	Partition   topic.Ref
	By          topic.NodeID      // the leader
	Incarnation topic.Incarnation // of the leader
	Above       topic.Epoch       // nothing changes when the partition is above it already
}

// PutEntry stores a value that the controller keeps and does not read: an access rule, a quota, a webhook.
type PutEntry struct {
	Kind   string // what it is, for example "acl"
	Name   string
	Expect uint64 // the version to replace: 0 for a new entry, AnyVersion for whatever is there
	Value  []byte
}

// DeleteEntry removes an entry.
type DeleteEntry struct {
	Kind   string
	Name   string
	Expect uint64 // the version to delete, or AnyVersion
}

// AnyVersion in Expect asks for no check.
const AnyVersion = ^uint64(0)

// Caps. They are part of the rules: every node must decide with the same ones.
const (
	MaxPartitionsPerTopic      = 1_000
	MaxPartitionsPerNode       = 8_000 // replicas of partitions
	MaxTopicsPerPrincipal      = 1_000
	MaxEntries                 = 100_000
	MaxEntryBytes              = 256 << 10 // of one value
	MaxEntriesBytes            = 64 << 20  // of all values
	MaxEntryNameBytes          = 1_000
	MaxCommandsRemembered      = 4_096
	MaxDeletedTopicsRemembered = 16_384
)

// Result is what became of a command.
type Result struct {
	// Err is nil when the command took effect, and otherwise a fault that says why it was refused.
	Err error
	// Version of the state right after the command; for PutEntry also that of the entry.
	Version uint64
	// Repeated says that the command had been applied before and was not applied again.
	Repeated bool
	// Topic is the one that was created, altered or deleted, or whose partition was changed; after a
	// repeat as it is now.
	Topic *Topic
	// Incarnation of the node, for RegisterNode.
	Incarnation topic.Incarnation

	deletes bool // Topic is gone with this command
}
