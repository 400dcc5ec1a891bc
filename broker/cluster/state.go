package cluster

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/weirlog/weir/topic"
)

// State is the controller's state. One goroutine owns it; others read its images.
type State struct {
	image Image
}

// NewState returns the state before the first command.
func NewState() *State { return &State{image: emptyImage()} }

func emptyImage() Image {
	byID := func(a, b topic.ID) int { return bytes.Compare(a[:], b[:]) }
	return Image{
		nodes:   table[topic.NodeID, Node]{compare: cmp.Compare[topic.NodeID]},
		topics:  table[topic.Name, *Topic]{compare: cmp.Compare[topic.Name]},
		names:   table[topic.ID, topic.Name]{compare: byID},
		deleted: table[topic.ID, uint64]{compare: byID},
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

// Apply applies a command that stands at an index of the log.
func (s *State) Apply(index uint64, c Command) Result { return c.Op.apply(s) }
