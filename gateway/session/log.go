package session

import (
	"context"

	"github.com/weirlog/weir/topic"
)

// Log is what a reader needs of the node.
type Log interface {
	Topic(topic.Name) (*topic.Description, error)
	TopicByID(topic.ID) (*topic.Description, error)
	Bounds(topic.Ref) (topic.Bounds, error)
	Offsets(context.Context, topic.Name, topic.At) ([]topic.OffsetAt, error)
	Fetch(context.Context, topic.Fetch) (topic.Fetched, error)
	Listen(topic.Ref, chan<- struct{}) (stop func(), err error)
}

// Producer is what the produce frame of a WebSocket needs of the node.
type Producer interface {
	Produce(context.Context, *topic.Append) error
}
