package replica

import (
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Machine is the state of one partition on the node self. Make one with [New]; its owner alone uses it.
type Machine struct {
	self topic.NodeID

	leading        bool
	settled        bool // the high watermark has reached the epoch's start in this reign
	epoch          topic.Epoch
	partitionEpoch topic.PartitionEpoch
	epochStart     topic.Offset // first offset of the epoch
	end            topic.Offset
	synced         topic.Offset
	hw             topic.Offset

	inSync    []topic.NodeID // as the cluster decided
	proposed  []topic.NodeID // nil when no change is pending
	minInSync int
	followers map[topic.NodeID]follower // what they reported in this epoch

	effects []Effect // of the Step that runs
}

// follower is what a replica reported in this reign.
type follower struct {
	incarnation topic.Incarnation
	synced      topic.Offset
}

// New returns a machine that does not lead.
func New(self topic.NodeID) *Machine {
	return &Machine{self: self, epoch: topic.NoEpoch}
}

// Step takes one event and returns what to do about it, in order. The slice is valid until the next Step.
func (m *Machine) Step(event Event) []Effect {
	m.effects = m.effects[:0]
	switch e := event.(type) {
	case Lead:
		m.lead(e)
	case Appended:
		m.end = max(m.end, e.End)
	case Synced:
		m.synced = max(m.synced, min(e.End, m.end))
	case Fetched:
		m.fetched(e)
	case Proposed:
		m.proposed = slices.Clone(e.InSync)
	case Changed:
		m.changed(e)
	case Refused:
		m.proposed = nil
	case Stop:
		m.stop()
	}
	m.advance()
	return m.effects
}

func (m *Machine) lead(e Lead) {
	if e.Epoch <= m.epoch {
		return // an old image that came late
	}
	m.stop()
	m.leading, m.settled = true, false
	m.epoch, m.partitionEpoch = e.Epoch, e.PartitionEpoch
	m.epochStart, m.end, m.synced = e.End, e.End, min(e.Synced, e.End)
	m.hw = max(m.hw, e.HighWatermark)
	m.inSync, m.minInSync, m.proposed = slices.Clone(e.InSync), e.MinInSync, nil
	m.followers = nil // what they told an earlier reign may have been cut since
}

func (m *Machine) stop() {
	if m.leading {
		m.leading = false
		m.do(Effect{Do: End, Epoch: m.epoch})
	}
}

func (m *Machine) changed(e Changed) {
	if e.PartitionEpoch < m.partitionEpoch {
		return
	}
	m.minInSync = e.MinInSync // a setting of the topic: it changes without a new partition epoch
	if e.PartitionEpoch > m.partitionEpoch {
		m.partitionEpoch = e.PartitionEpoch
		m.inSync, m.proposed = slices.Clone(e.InSync), nil
	}
}

func (m *Machine) fetched(e Fetched) {
	switch {
	case !m.leading || e.Epoch > m.epoch:
		m.do(Effect{Do: Later, Epoch: m.epoch, Node: e.By})
		return
	case e.Epoch < m.epoch:
		m.do(Effect{Do: Fence, Epoch: m.epoch, Node: e.By})
		return
	}
	known := m.followers[e.By]
	switch {
	case e.Incarnation < known.incarnation:
		return // sent before a restart: its log may be shorter by now
	case e.Incarnation == known.incarnation && e.Synced < known.synced:
		return // overtaken by a later report
	}
	if m.followers == nil {
		m.followers = make(map[topic.NodeID]follower)
	}
	m.followers[e.By] = follower{incarnation: e.Incarnation, synced: min(e.Synced, e.End)}
}

// advance moves the high watermark as far as the quorum has synced.
func (m *Machine) advance() {
	if !m.leading || len(m.inSync) < m.minInSync {
		return
	}
	if hw := m.quorumSynced(); hw > m.hw {
		m.hw = hw
		m.do(Effect{Do: Commit, Offset: hw, Epoch: m.epoch})
	}
	if !m.settled && m.hw >= m.epochStart {
		m.settled = true
		m.do(Effect{Do: Settle, Offset: m.hw, Epoch: m.epoch})
	}
}

// quorumSynced is the end up to which every member of the quorum has synced. The leader always counts.
func (m *Machine) quorumSynced() topic.Offset {
	least := m.synced
	for _, set := range [...][]topic.NodeID{m.inSync, m.proposed} {
		for _, node := range set {
			if node != m.self {
				least = min(least, m.followers[node].synced) // 0 for one that has not reported in this reign
			}
		}
	}
	return least
}

func (m *Machine) do(e Effect) { m.effects = append(m.effects, e) }

// Admit says whether an append may begin now. The error is NotLeader, or NotReplicated for acks=all
// while too few replicas are in sync.
func (m *Machine) Admit(acks topic.Acks) error {
	switch {
	case !m.leading:
		return fault.Newf("replica.Admit", fault.NotLeader, nil, "this node does not lead the partition")
	case acks == topic.AcksAll && len(m.inSync) < m.minInSync:
		return fault.Newf("replica.Admit", fault.NotReplicated, nil,
			"%d replicas are in sync, min.insync.replicas asks for %d", len(m.inSync), m.minInSync)
	default:
		return nil
	}
}

// Leading says whether this node leads the partition.
func (m *Machine) Leading() bool { return m.leading }

// Epoch is the newest that this node has led in, or NoEpoch.
func (m *Machine) Epoch() topic.Epoch { return m.epoch }

// HighWatermark is the end of what is committed.
func (m *Machine) HighWatermark() topic.Offset { return m.hw }

// Settled says that "latest" may be answered: everything that an earlier leader may have
// acknowledged is below the high watermark.
func (m *Machine) Settled() bool { return m.leading && m.settled }
