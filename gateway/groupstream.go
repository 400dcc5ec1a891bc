package gateway

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/topic"
)

// groupRecords answers with what a group assigns to a member, as lines that go on as the log does.
func (s *Server) groupRecords(c *fiber.Ctx) error {
	join, err := s.readJoin(c)
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

func (s *Server) readJoin(c *fiber.Ctx) (session.Join, error) {
	j := session.Join{Format: session.Format{Shape: session.Lines}}
	group, err := param(c, "group")
	if err != nil {
		return j, err
	}
	member, err := param(c, "member")
	if err != nil {
		return j, err
	}
	if j.Group, j.Member, err = (groups{s}).member(group, member); err != nil {
		return j, err
	}
	var wrong mistakes
	j.Subscription = wrong.joined(c)
	if start := c.Query("start"); start != "" {
		j.Start = wrong.at("start", start)
	}
	switch c.Query("ack") {
	case "", "manual":
	case "auto":
		j.Auto = true
	default:
		wrong.add(problem.Field{Name: "ack", Message: "must be manual or auto"})
	}
	if j.Format.Values, err = readFormat(c); err != nil {
		wrong.add(problem.Field{Name: "value_format", Message: "must be auto, json, string or base64"})
	}
	return j, wrong.err("gateway.Join")
}

// joined reads what a member reads, as the body of a poll has it.
func (m *mistakes) joined(c *fiber.Ctx) topic.Subscription {
	var in api.GroupPoll
	if text := c.Query("topics"); text != "" {
		names := strings.Split(strings.Clone(text), ",")
		in.Topics = &names
	}
	for name, to := range map[string]**string{"topic_prefix": &in.TopicPrefix, "topic_pattern": &in.TopicPattern} {
		if text := strings.Clone(c.Query(name)); text != "" {
			*to = &text
		}
	}
	sub := m.subscription(&in)
	if sub == nil {
		if len(*m) == 0 {
			m.add(problem.Field{Name: "topics", Message: "is required, or topic_prefix or topic_pattern"})
		}
		return topic.Subscription{}
	}
	return *sub
}
