package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// hall is where callers find topics and partitions: those of the newest image that this node has acted
// upon, so whoever finds a topic finds its partitions open.
type hall struct {
	topics sync.Map // topic.ID -> *served

	mu    sync.Mutex
	image atomic.Pointer[cluster.Image] // nil before the first; written under mu
	moved chan struct{}                 // closed when a later image is in force; guarded by mu

	closed chan struct{} // closed when no later image will come
}

// served is a topic with its partitions on this node.
type served struct {
	topic      atomic.Pointer[cluster.Topic]
	partitions atomic.Pointer[[]*partition] // by number; nil for one that is not open here
	sticky     sticky
}

func newHall() *hall { return &hall{moved: make(chan struct{}), closed: make(chan struct{})} }

// close tells those who wait for an image that none will come.
func (h *hall) close() { close(h.closed) }

// publish puts an image in force, after all that it asks for was done.
func (h *hall) publish(image *cluster.Image) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.image.Store(image)
	close(h.moved)
	h.moved = make(chan struct{})
}

// watch returns the image in force, which may be nil, and a channel that is closed when another one is.
func (h *hall) watch() (*cluster.Image, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.image.Load(), h.moved
}

// awaitVersion returns when an image of a version, or a later one, is in force.
func (h *hall) awaitVersion(ctx context.Context, version uint64) error {
	for {
		image, moved := h.watch()
		if image != nil && image.Version() >= version {
			return nil
		}
		select {
		case <-moved:
		case <-h.closed:
			return fault.Newf("broker.await", fault.Timeout, nil, "the change is made, but this node has stopped before it was carried out")
		case <-ctx.Done():
			return fault.Newf("broker.await", fault.Timeout, nil, "the change is made, but this node has not carried it out in time")
		}
	}
}

// awaitTopic returns a topic as soon as this node serves it.
func (h *hall) awaitTopic(ctx context.Context, name topic.Name) (*served, error) {
	for {
		_, moved := h.watch()
		t, err := h.byName(name)
		if !fault.Is(err, fault.NoTopic) {
			return t, err
		}
		select {
		case <-moved:
		case <-h.closed:
			return nil, stopping("broker.await")
		case <-ctx.Done():
			return nil, fault.Newf("broker.await", fault.NotLeader, name, "the topic is not open on this node yet")
		}
	}
}

// find looks a topic up in the image in force.
func (h *hall) find(name topic.Name) (*cluster.Topic, error) {
	image := h.image.Load()
	if image == nil {
		return nil, starting("broker.Topic")
	}
	if t, ok := image.Topic(name); ok {
		return t, nil
	}
	return nil, noTopic(name)
}

func noTopic(name topic.Name) error {
	return fault.Newf("broker.Topic", fault.NoTopic, name, "topic %q does not exist", name)
}

func noTopicID(id topic.ID) error {
	return fault.Newf("broker.Topic", fault.NoTopic, id, "topic %s does not exist, or does not any more", id)
}

func (h *hall) byName(name topic.Name) (*served, error) {
	t, err := h.find(name)
	if err != nil {
		return nil, err
	}
	s, err := h.byID(t.ID)
	if err != nil {
		return nil, noTopic(name) // deleted between the two looks
	}
	return s, nil
}

func (h *hall) byID(id topic.ID) (*served, error) {
	if t, ok := h.topics.Load(id); ok {
		return t.(*served), nil
	}
	if h.image.Load() == nil {
		return nil, starting("broker.Topic")
	}
	return nil, noTopicID(id)
}

// partition finds one that is open here.
func (h *hall) partition(ref topic.Ref) (*partition, error) {
	t, err := h.byID(ref.ID)
	if err != nil {
		return nil, err
	}
	return t.at(ref.Partition)
}

// at is the partition with a number, or NoPartition, or NotLeader when it is not open.
func (s *served) at(number topic.Partition) (*partition, error) {
	partitions := *s.partitions.Load()
	path := topic.Path{Topic: s.topic.Load().Name, Partition: number}
	switch {
	case number < 0 || int(number) >= len(partitions):
		return nil, fault.Newf("broker.Topic", fault.NoPartition, path, "partition %d does not exist, the topic has %d", number, len(partitions))
	case partitions[number] == nil:
		return nil, notOpen(path)
	default:
		return partitions[number], nil
	}
}

func notOpen(path topic.Path) error {
	return fault.Newf("broker.Topic", fault.NotLeader, path, "the partition is not open on this node")
}

// all walks every open partition.
func (h *hall) all(yield func(*partition) bool) {
	h.topics.Range(func(_, s any) bool {
		for _, p := range *s.(*served).partitions.Load() {
			if p != nil && !yield(p) {
				return false
			}
		}
		return true
	})
}
