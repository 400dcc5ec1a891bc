package gateway

import (
	"context"

	"github.com/weirlog/weir/topic"
)

// Topics is what the handlers of topics need of the node.
type Topics interface {
	Topic(name topic.Name) (*topic.Description, error)
	Topics(after topic.Name, limit int) []*topic.Description
	CreateTopic(ctx context.Context, c topic.Creation) (*topic.Description, error)
	AlterTopic(ctx context.Context, name topic.Name, a topic.Alteration) (*topic.Description, error)
	DeleteTopic(ctx context.Context, name topic.Name) error
	Offsets(ctx context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error)
	Bounds(ref topic.Ref) (topic.Bounds, error)
	DeleteRecords(ctx context.Context, path topic.Path, before topic.Offset) (topic.Offset, error)
}

func (s *Server) mountTopics(r routes) {}
