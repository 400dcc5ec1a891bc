package cluster

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"strings"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// State is the controller's state. One goroutine owns it; others read its images.
type State struct {
	image  Image
	recent recent
}

// NewState returns the state before the first command.
func NewState() *State { return &State{image: emptyImage(), recent: newRecent()} }

func emptyImage() Image {
	byID := func(a, b topic.ID) int { return bytes.Compare(a[:], b[:]) }
	return Image{
		nodes:     table[topic.NodeID, Node]{compare: cmp.Compare[topic.NodeID]},
		topics:    table[topic.Name, *Topic]{compare: cmp.Compare[topic.Name]},
		names:     table[topic.ID, topic.Name]{compare: byID},
		deleted:   table[topic.ID, uint64]{compare: byID},
		deletions: table[uint64, topic.ID]{compare: cmp.Compare[uint64]},
		entries: table[entryKey, *Entry]{compare: func(a, b entryKey) int {
			return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
		}},
		creators: table[string, int]{compare: strings.Compare},
	}
}

// Image returns the state as it is now.
func (s *State) Image() *Image {
	image := s.image
	return &image
}

// Apply applies a command that stands at an index of the log. Commands of one entry share its index,
// and an index never falls. A refused command changes nothing but the version and the memory of
// commands.
func (s *State) Apply(index uint64, c Command) Result {
	s.image.index = index
	if known, ok := s.recent.find(c.ID); ok {
		return s.answer(known)
	}
	s.image.version++
	result := c.Op.apply(s)
	result.Version = s.image.version
	s.recent.add(remember(c.ID, result))
	return result
}

// answer repeats what became of a command that was applied before.
func (s *State) answer(known remembered) Result {
	result := Result{Version: known.version, Incarnation: known.incarnation, Repeated: true}
	if known.code != "" {
		result.Err = fault.Newf(known.op, kindOf(known.code), whereOf(known.where), "%s", known.sentence)
		return result
	}
	if known.topic.IsZero() {
		return result
	}
	t, ok := s.image.TopicByID(known.topic)
	if !ok && !known.deletes {
		result.Err = fault.Newf("cluster.Apply", fault.NoTopic, known.topic, "the command was applied, and its topic was deleted since")
		return result
	}
	result.Topic = t
	return result
}

// Hash is the same on every node that applied the same commands.
func (s *State) Hash() [sha256.Size]byte { return sha256.Sum256(s.Snapshot().Encode()) }

func refuse(op string, kind fault.Kind, where any, format string, args ...any) Result {
	return Result{Err: fault.Newf("cluster."+op, kind, where, format, args...)}
}

func (op FoundCluster) apply(s *State) Result {
	const most = 100
	switch {
	case op.ClusterID == "" || len(op.ClusterID) > most:
		return refuse("FoundCluster", fault.Validation, nil, "a cluster id has 1 to %d bytes", most)
	case s.image.clusterID != "" && s.image.clusterID != op.ClusterID:
		return refuse("FoundCluster", fault.Fenced, nil, "the cluster is %s, it cannot become %s", s.image.clusterID, op.ClusterID)
	}
	s.image.clusterID = op.ClusterID
	return Result{}
}
