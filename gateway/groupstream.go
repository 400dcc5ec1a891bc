package gateway

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// groupRecords answers with what a group assigns to a member, as lines that go on as the log does.
func (s *Server) groupRecords(c *fiber.Ctx) error {
	join, err := readJoin(c)
	if err != nil {
		return err
	}
	if err := s.deps.Hub.Room(); err != nil {
		return err
	}
	member, reader, err := s.deps.Hub.Join(s.works, join)
	if err != nil {
		return err
	}
	s.begin(c, session.Stream{Reader: reader, Member: member, Mouth: session.NDJSON{}}, typeNDJSON)
	return nil
}

func readJoin(c *fiber.Ctx) (session.Join, error) {
	j := session.Join{Format: session.Format{Shape: session.Lines}}
	group, err := param(c, "group")
	if err != nil {
		return j, err
	}
	member, err := param(c, "member")
	if err != nil {
		return j, err
	}
	if j.Group, err = topic.ParseGroupName(group); err != nil {
		return j, err
	}
	if j.Member, err = topic.ParseMemberName(member); err != nil {
		return j, err
	}
	if text := c.Query("topics"); text != "" {
		for one := range strings.SplitSeq(text, ",") {
			name, err := topic.ParseName(one)
			if err != nil {
				return j, problem.FieldError("gateway.Join", "topics", "must be names of topics with commas between them: %s", fault.Sentence(err))
			}
			j.Subscription.Topics = append(j.Subscription.Topics, name)
		}
	}
	j.Subscription.Prefix = strings.Clone(c.Query("topic_prefix"))
	j.Subscription.Pattern = strings.Clone(c.Query("topic_pattern"))
	if err := session.CheckSubscription(&j.Subscription); err != nil {
		return j, err
	}
	if j.Start, err = session.ParseStart(strings.Clone(c.Query("start"))); err != nil {
		return j, problem.FieldError("gateway.Join", "start", "must be earliest, latest or ts:<milliseconds since 1970, or RFC 3339>")
	}
	switch c.Query("ack") {
	case "", "manual":
	case "auto":
		j.Auto = true
	default:
		return j, problem.FieldError("gateway.Join", "ack", "must be manual or auto")
	}
	j.Format.Values, err = readFormat(c)
	return j, err
}
