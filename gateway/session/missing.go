package session

import (
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Topics says which topics there are.
type Topics interface {
	Topic(topic.Name) (*topic.Description, error)
}

// Missing says that a topic does not exist. To a group that is no error, it waits for the topic; but the name may
// be mistyped.
func Missing(in Topics, name topic.Name) bool {
	_, err := in.Topic(name)
	return fault.Is(err, fault.NoTopic)
}

// AppendMissing appends a member with those of the names that no topic has, and nothing where all exist.
func AppendMissing(dst []byte, in Topics, names []topic.Name) []byte {
	sep := `,"missing_topics":[`
	for _, name := range names {
		if Missing(in, name) {
			dst = append(dst, sep...)
			dst = problem.AppendString(dst, string(name))
			sep = ","
		}
	}
	if sep == "," {
		dst = append(dst, ']')
	}
	return dst
}

// appendMissing appends which of the topics that the member names do not exist.
func (m *Membership) appendMissing(dst []byte) []byte {
	return AppendMissing(dst, m.hub.log, m.join.Subscription.Topics)
}
