package broker

import (
	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/topic"
)

// groupWorld is what the rules of groups may look at of the cluster: the topics of one image, and the high
// watermarks that this node knows.
type groupWorld struct {
	hall  *hall
	image *cluster.Image
}

// Topic finds a topic by name.
func (w *groupWorld) Topic(name topic.Name) (id topic.ID, partitions int, ok bool) {
	t, ok := w.image.Topic(name)
	if !ok {
		return topic.ID{}, 0, false
	}
	return t.ID, len(t.Partitions), true
}

// TopicByID finds a topic by id.
func (w *groupWorld) TopicByID(id topic.ID) (name topic.Name, partitions int, ok bool) {
	t, ok := w.image.TopicByID(id)
	if !ok {
		return "", 0, false
	}
	return t.Name, len(t.Partitions), true
}

// Topics walks all topics by name, but for weir's own.
func (w *groupWorld) Topics(yield func(name topic.Name, id topic.ID, partitions int) bool) {
	for t := range w.image.AllTopics() {
		if !t.Name.Internal() && !yield(t.Name, t.ID, len(t.Partitions)) {
			return
		}
	}
}

// End is the high watermark of a partition, where it is known here.
func (w *groupWorld) End(ref topic.Ref) (topic.Offset, bool) {
	p, err := w.hall.partition(ref)
	if err != nil || !p.settled.Load() {
		return topic.NoOffset, false
	}
	return p.bounds().HighWatermark, true
}
