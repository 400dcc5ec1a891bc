package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Groups is what the handlers of consumer groups need of the node. Nothing of what is handed in is changed,
// and nothing of it is kept but strings.
type Groups interface {
	// PollGroup joins, renews the session, commits, and says what is assigned. It fetches nothing.
	PollGroup(ctx context.Context, p *topic.GroupPoll) (topic.GroupTurn, error)
	// EndTurn says that a poll has ended; alive, that its caller is still there.
	EndTurn(g topic.GroupName, m topic.MemberName, turn uint64, alive bool)
	// LeaveGroup commits and leaves. NoGroupEpoch is the epoch of whoever has the name.
	LeaveGroup(ctx context.Context, g topic.GroupName, m topic.MemberName, e topic.GroupEpoch, acks []topic.GroupCommit) ([]topic.NotCommitted, error)
	// SeekGroup moves positions, and returns those that hold now.
	SeekGroup(ctx context.Context, s *topic.GroupSeek) ([]topic.GroupPartition, error)
	// AlterGroup changes settings; nil goes back to the default.
	AlterGroup(ctx context.Context, g topic.GroupName, overrides map[string]*string) (*topic.GroupDescription, error)
	DescribeGroup(ctx context.Context, g topic.GroupName) (*topic.GroupDescription, error)
	// ListGroups returns up to limit groups behind a name, by name.
	ListGroups(ctx context.Context, after topic.GroupName, limit int) ([]topic.GroupSummary, error)
	DeleteGroup(ctx context.Context, g topic.GroupName) error
}

// groups implements the generated handlers of consumer groups.
type groups struct{ s *Server }

// group reads the name of a group.
func (g groups) group(name string) (topic.GroupName, error) {
	group, err := topic.ParseGroupName(name)
	return group, nameError("group", err)
}

// member reads the names of a group and of a member.
func (g groups) member(group, member string) (topic.GroupName, topic.MemberName, error) {
	in, err := g.group(group)
	if err != nil {
		return "", "", err
	}
	m, err := topic.ParseMemberName(member)
	return in, m, nameError("member", err)
}

// stays reads the names of a group and of a member that has one.
func (g groups) stays(group, member string) (topic.GroupName, topic.MemberName, error) {
	in, m, err := g.member(group, member)
	if err == nil && m == topic.MadeMember {
		err = problem.FieldError("gateway.Groups", "member", `"-" asks for a name in a poll; here the name is the one that the poll answered with`)
	}
	return in, m, err
}

// nameError says which name an error is about.
func nameError(field string, err error) error {
	if err == nil {
		return nil
	}
	return problem.FieldError("gateway.Groups", field, "%s", fault.Sentence(err))
}

// call is the context of one call of the coordinator.
func (g groups) call(c *fiber.Ctx) (ctx context.Context, end func()) {
	limit := deadlineOf(c.Context())
	return limit.begin(g.s.works, groupTimeout), limit.end
}

// ListGroups answers GET /v1/groups.
func (g groups) ListGroups(c *fiber.Ctx, params api.ListGroupsParams) error {
	size, err := pageSize(params.PageSize)
	if err != nil {
		return err
	}
	after, err := pageAfter(params.PageToken, topic.ParseGroupName)
	if err != nil {
		return err
	}
	ctx, end := g.call(c)
	defer end()
	found, err := g.s.deps.Groups.ListGroups(ctx, after, size+1) // one more, to know whether there is a next page
	if err != nil {
		return err
	}
	list := api.GroupList{Groups: make([]api.GroupSummary, 0, min(size, len(found)))}
	for i, one := range found {
		if i == size {
			token := pageToken(list.Groups[size-1].Group)
			list.NextPageToken = &token
			break
		}
		list.Groups = append(list.Groups, api.GroupSummary{
			Group: string(one.Name), State: string(one.State), Members: one.Members, Epoch: int64(one.Epoch),
		})
	}
	return answerJSON(c, http.StatusOK, list)
}

// DescribeGroup answers GET /v1/groups/{group}.
func (g groups) DescribeGroup(c *fiber.Ctx, path api.GroupPath) error {
	name, err := g.group(path)
	if err != nil {
		return err
	}
	ctx, end := g.call(c)
	defer end()
	d, err := g.s.deps.Groups.DescribeGroup(ctx, name)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, g.described(d))
}

// AlterGroup answers PATCH /v1/groups/{group}.
func (g groups) AlterGroup(c *fiber.Ctx, path api.GroupPath) error {
	name, err := g.group(path)
	if err != nil {
		return err
	}
	var in api.GroupAlteration
	if err := g.s.readJSON(c, &in); err != nil {
		return err
	}
	overrides := map[string]*string{}
	if in.Settings != nil {
		set := map[string]string{}
		for setting, value := range *in.Settings {
			overrides[setting] = nil
			if value != nil {
				text := strings.Clone(string(*value))
				overrides[setting], set[setting] = &text, text
			}
		}
		// Whether a setting that goes back to its default is one is the node's to say.
		if _, err := topic.ParseGroupSettings(set, topic.DefaultGroupSettings()); err != nil {
			return err
		}
	}
	ctx, end := g.call(c)
	defer end()
	d, err := g.s.deps.Groups.AlterGroup(ctx, name, overrides)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, g.described(d))
}

// DeleteGroup answers DELETE /v1/groups/{group}.
func (g groups) DeleteGroup(c *fiber.Ctx, path api.GroupPath) error {
	name, err := g.group(path)
	if err != nil {
		return err
	}
	ctx, end := g.call(c)
	defer end()
	err = g.s.deps.Groups.DeleteGroup(ctx, name)
	if fault.Is(err, fault.GroupNotEmpty) {
		err = fault.Newf("gateway.DeleteGroup", fault.GroupNotEmpty, nil, "%s; a member leaves with DELETE /v1/groups/{group}/members/{member}, or when its session ends",
			fault.Sentence(err))
	}
	if err != nil {
		return err
	}
	c.Response().SetStatusCode(http.StatusNoContent)
	return nil
}

// SeekGroup answers POST /v1/groups/{group}/seek.
func (g groups) SeekGroup(c *fiber.Ctx, path api.GroupPath) error {
	name, err := g.group(path)
	if err != nil {
		return err
	}
	var in api.GroupSeek
	if err := g.s.readJSON(c, &in); err != nil {
		return err
	}
	seek, err := readSeek(&in)
	if err != nil {
		return err
	}
	seek.Group, seek.Principal = name, principal(c)
	ctx, end := g.call(c)
	defer end()
	now, err := g.s.deps.Groups.SeekGroup(ctx, &seek)
	if err != nil {
		return err
	}
	out := api.GroupSought{Offsets: make([]api.SoughtOffset, len(now))}
	for i, p := range now {
		out.Offsets[i] = api.SoughtOffset{Topic: string(p.Path.Topic), Partition: int32(p.Path.Partition), Offset: int64(p.Committed)}
	}
	return answerJSON(c, http.StatusOK, out)
}

// LeaveGroup answers DELETE /v1/groups/{group}/members/{member}.
func (g groups) LeaveGroup(c *fiber.Ctx, group api.GroupPath, member api.MemberPath, params api.LeaveGroupParams) error {
	in, m, err := g.stays(group, member)
	if err != nil {
		return err
	}
	var wrong mistakes
	epoch := wrong.epoch(params.Epoch)
	if err := wrong.err("gateway.LeaveGroup"); err != nil {
		return err
	}
	ack, err := readGroupCursor("ack", params.Ack, in)
	if err != nil {
		return err
	}
	if epoch == topic.NoGroupEpoch {
		epoch = ack.Epoch
	}
	ctx, end := g.call(c)
	defer end()
	not, err := g.s.deps.Groups.LeaveGroup(ctx, in, m, epoch, ack.Commits())
	if err != nil {
		return err
	}
	if len(not) == 0 {
		c.Response().SetStatusCode(http.StatusNoContent)
		return nil
	}
	return answerJSON(c, http.StatusOK, api.GroupLeft{Member: string(m), NotCommitted: notCommitted(not)})
}

// Heartbeat answers POST /v1/groups/{group}/members/{member}/heartbeat.
func (g groups) Heartbeat(c *fiber.Ctx, group api.GroupPath, member api.MemberPath) error {
	in, m, err := g.stays(group, member)
	if err != nil {
		return err
	}
	var body api.GroupHeartbeat
	if err := g.s.readJSON(c, &body); err != nil {
		return err
	}
	var wrong mistakes
	epoch := wrong.epoch(body.Epoch)
	if body.Epoch == nil {
		wrong.add(problem.Field{Name: "epoch", Message: "is required: that of the last answer"})
	}
	if err := wrong.err("gateway.Heartbeat"); err != nil {
		return err
	}
	ctx, end := g.call(c)
	defer end()
	turn, err := g.s.deps.Groups.PollGroup(ctx, &topic.GroupPoll{
		Group: in, Member: m, Principal: principal(c), Node: g.s.deps.NodeID, Epoch: epoch, Heartbeat: true,
	})
	if err != nil {
		return err
	}
	// The epoch is the caller's, not the newest: one who polls with an epoch has seen what it took away, and
	// this answer does not show it.
	return answerJSON(c, http.StatusOK, api.GroupAlive{Member: string(m), Epoch: int64(epoch), AssignmentChanged: turn.AssignmentChanged})
}

// epoch reads an epoch that may be missing.
func (m *mistakes) epoch(n *int64) topic.GroupEpoch {
	switch {
	case n == nil:
		return topic.NoGroupEpoch
	case *n < 1:
		m.add(problem.Field{Name: "epoch", Message: "must be that of an earlier answer; leave it out where there was none"})
		return topic.NoGroupEpoch
	default:
		return topic.GroupEpoch(*n)
	}
}

// topicNames reads the names of topics, and returns each once, ascending.
func (m *mistakes) topicNames(field string, in []string) []topic.Name {
	if len(in) == 0 || len(in) > mostGroupTopics {
		m.add(problem.Field{Name: field, Message: "must have 1 to " + strconv.Itoa(mostGroupTopics) + " names"})
		return nil
	}
	names := make([]topic.Name, 0, len(in))
	for i, text := range in {
		name, err := topic.ParseName(text)
		if err != nil {
			m.name(field+"["+strconv.Itoa(i)+"]", text, err)
			continue
		}
		names = append(names, name)
	}
	return ascending(names)
}

// mostGroupTopics is how many topics a member may name, and mostGroupOffsets how many positions.
const (
	mostGroupTopics  = 1000
	mostGroupOffsets = 10_000
)

// noGroups stands in where a node serves no groups.
type noGroups struct{}

func (noGroups) err() error {
	return fault.Newf("gateway.Groups", fault.Loading, nil, "this node serves no consumer groups")
}

func (n noGroups) PollGroup(context.Context, *topic.GroupPoll) (topic.GroupTurn, error) {
	return topic.GroupTurn{}, n.err()
}

func (noGroups) EndTurn(topic.GroupName, topic.MemberName, uint64, bool) {}

func (n noGroups) LeaveGroup(context.Context, topic.GroupName, topic.MemberName, topic.GroupEpoch, []topic.GroupCommit) ([]topic.NotCommitted, error) {
	return nil, n.err()
}

func (n noGroups) SeekGroup(context.Context, *topic.GroupSeek) ([]topic.GroupPartition, error) {
	return nil, n.err()
}

func (n noGroups) AlterGroup(context.Context, topic.GroupName, map[string]*string) (*topic.GroupDescription, error) {
	return nil, n.err()
}

func (n noGroups) DescribeGroup(context.Context, topic.GroupName) (*topic.GroupDescription, error) {
	return nil, n.err()
}

func (n noGroups) ListGroups(context.Context, topic.GroupName, int) ([]topic.GroupSummary, error) {
	return nil, n.err()
}

func (n noGroups) DeleteGroup(context.Context, topic.GroupName) error { return n.err() }
