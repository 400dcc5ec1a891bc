package replica

import "github.com/weirlog/weir/topic"

// Event is something that happened to a partition.
type Event interface{ event() }

// Lead begins a reign: the cluster made this node the leader in a new epoch.
type Lead struct {
	Epoch          topic.Epoch          // higher than any before
	PartitionEpoch topic.PartitionEpoch // counts changes of leader and in-sync set
	InSync         []topic.NodeID
	MinInSync      int
	End            topic.Offset // the log's end, where the epoch will start
	Synced         topic.Offset // the end of what is on this node's disk
	HighWatermark  topic.Offset // the highest that this node knows of
}

// Appended says that the log now ends at End.
type Appended struct{ End topic.Offset }

// Synced says that everything below End is on this node's disk.
type Synced struct{ End topic.Offset }

// Fetched is what a follower reports with each fetch.
type Fetched struct {
	By          topic.NodeID
	Incarnation topic.Incarnation
	Epoch       topic.Epoch  // in which the follower believes this node to lead
	End         topic.Offset // the end of its log
	Synced      topic.Offset // the end of what is on its disk, which is what counts
}

// Proposed says that this node asked the cluster to change the in-sync set. Until the outcome is known
// both sets count, because either may be the one that elects the next leader.
type Proposed struct{ InSync []topic.NodeID }

// Changed is the in-sync set and its minimum as the cluster has them now. One of an older partition
// epoch is ignored; only one of a newer epoch is the outcome of a proposal.
type Changed struct {
	PartitionEpoch topic.PartitionEpoch
	InSync         []topic.NodeID
	MinInSync      int
}

// Refused says that the cluster refused what was proposed. A proposal that timed out is not refused.
type Refused struct{}

// Stop ends the reign: another node leads, or the partition is being closed.
type Stop struct{}

func (Lead) event()     {}
func (Appended) event() {}
func (Synced) event()   {}
func (Fetched) event()  {}
func (Proposed) event() {}
func (Changed) event()  {}
func (Refused) event()  {}
func (Stop) event()     {}

// Effect is something that the owner has to do.
type Effect struct {
	Do     Do
	Offset topic.Offset // for Commit: the new high watermark
	Epoch  topic.Epoch  // the reign's; for End the one that is over
	Node   topic.NodeID // for Fence and Later: the follower to answer
}

// Do says what an [Effect] is.
type Do uint8

// The effects.
const (
	Commit Do = iota + 1 // the high watermark moved to Offset
	Settle               // the high watermark reached the epoch's start: "latest" may be answered
	End                  // the reign is over: what was appended in it above the high watermark is of unknown outcome
	Fence                // the follower asked in an epoch that is over
	Later                // the follower knows an epoch that this node has not heard of: it asks again
)
