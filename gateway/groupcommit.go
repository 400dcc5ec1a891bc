package gateway

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// CommitOffsets answers POST /v1/groups/{group}/members/{member}/commit.
func (g groups) CommitOffsets(c *fiber.Ctx, group api.GroupPath, member api.MemberPath) error {
	in, m, err := g.stays(group, member)
	if err != nil {
		return err
	}
	var body api.GroupCommit
	if err := g.s.readJSON(c, &body); err != nil {
		return err
	}
	ask := topic.GroupPoll{Group: in, Member: m, Principal: principal(c), Node: g.s.deps.NodeID, Heartbeat: true}
	gone, err := g.readCommit(&body, &ask)
	if err != nil {
		return err
	}
	ctx, end := g.call(c)
	defer end()
	turn, err := g.s.deps.Groups.PollGroup(ctx, &ask)
	if err != nil {
		return err
	}
	not := append(turn.NotCommitted, gone...)
	done := counted(ask.Ack, turn.NotCommitted)
	if len(done) == 0 && stale(not) {
		g.answerStale(c, &turn, not)
		return nil
	}
	b := append(make([]byte, 0, 128+64*len(done)), `{"member":`...)
	b = recordjson.AppendString(b, string(m))
	b = append(b, `,"epoch":`...)
	b = strconv.AppendInt(b, int64(ask.Epoch), 10) // as in the answer to a heartbeat
	b = append(b, `,"committed":`...)
	b = g.s.appendCommitted(b, done, turn.Assignment)
	b = append(b, `,"not_committed":`...)
	b = append(appendNotCommitted(b, not), '}', lineEnd)
	return answerText(c, typeJSON, b)
}

// stale says that something did not count that is not committed already. A commit that came twice, or late, is done.
func stale(not []topic.NotCommitted) bool {
	return slices.ContainsFunc(not, func(n topic.NotCommitted) bool { return n.Reason != topic.BehindFirst })
}

// answerStale says that nothing of a commit counted, why, and what is the member's now.
func (g groups) answerStale(c *fiber.Ctx, turn *topic.GroupTurn, not []topic.NotCommitted) {
	ctx := c.Context()
	p := problem.Of(fault.Newf("gateway.Commit", fault.StaleMember, nil,
		"no offset was committed; not_committed says why, and assignment what is this member's in epoch %d", turn.Epoch))
	b := p.Append(nil, problem.Place{Instance: string(ctx.Path()), RequestID: requestID(ctx)})
	b = append(b[:len(b)-1], `,"epoch":`...)
	b = strconv.AppendInt(b, int64(turn.Epoch), 10)
	b = append(b, `,"assignment":`...)
	b = appendAssignment(b, turn.Assignment)
	b = append(b, `,"not_committed":`...)
	b = append(appendNotCommitted(b, not), '}', lineEnd)
	ctx.Response.SetStatusCode(http.StatusConflict)
	ctx.Response.Header.SetContentType(problem.MediaType)
	ctx.Response.SetBodyRaw(b)
}

// readCommit reads what to commit, and reports every mistake at once. What names a topic that is not there
// is returned as what does not count: it may have been deleted since it was read.
func (g groups) readCommit(body *api.GroupCommit, ask *topic.GroupPoll) (gone []topic.NotCommitted, err error) {
	var wrong mistakes
	ask.Epoch = wrong.epoch(body.Epoch)
	switch {
	case body.Ack != nil && body.Offsets != nil:
		wrong.add(problem.Field{Name: "offsets", Message: "cannot be given together with ack"})
	case body.Ack == nil && body.Offsets == nil:
		wrong.add(problem.Field{Name: "offsets", Message: "is required, or ack"})
	case body.Offsets != nil && body.Epoch == nil:
		wrong.add(problem.Field{Name: "epoch", Message: "is required: that of the answer with the records"})
	}
	if body.Offsets != nil {
		ask.Ack, gone = g.readOffsets(*body.Offsets, &wrong)
	}
	if err := wrong.err("gateway.Commit"); err != nil {
		return nil, err
	}
	ack, err := readGroupCursor("ack", body.Ack, ask.Group)
	if err != nil || body.Ack == nil {
		return gone, err
	}
	ask.Ack = ack.Commits()
	return nil, fitEpoch(ask, "ack", ack.Epoch)
}

// readOffsets reads positions, each of which may stand there once.
func (g groups) readOffsets(offsets []api.GroupOffset, wrong *mistakes) (acks []topic.GroupCommit, gone []topic.NotCommitted) {
	if len(offsets) == 0 || len(offsets) > mostGroupOffsets {
		wrong.add(problem.Field{Name: "offsets", Message: "must have 1 to " + strconv.Itoa(mostGroupOffsets) + " entries"})
		return nil, nil
	}
	seen := make(map[topic.Path]struct{}, len(offsets))
	for i := range offsets {
		one := &offsets[i]
		at := "offsets[" + strconv.Itoa(i) + "]."
		path, next, ok := wrong.position(at, one.Topic, one.Partition, one.NextOffset, "next_offset")
		ack := topic.GroupCommit{Ref: topic.Ref{Partition: path.Partition}, Next: next, LastEpoch: topic.NoEpoch}
		if one.Metadata != nil {
			if ack.Metadata = *one.Metadata; len(ack.Metadata) > topic.MaxCommitMetadata {
				wrong.add(problem.Field{Name: at + "metadata", Message: "may have " + strconv.Itoa(topic.MaxCommitMetadata) + " bytes"})
			}
		}
		if !ok {
			continue
		}
		if _, twice := seen[path]; twice {
			wrong.add(problem.Field{Name: at + "partition", Message: "has a position in this list already"})
			continue
		}
		seen[path] = struct{}{}
		d, err := g.s.node.Topic(path.Topic)
		if err != nil {
			gone = append(gone, topic.NotCommitted{Topic: path.Topic, Ref: ack.Ref, Next: next, Reason: topic.TopicGone})
			continue
		}
		ack.Ref.ID = d.ID
		acks = append(acks, ack)
	}
	return acks, gone
}

// readSeek checks where to go, and reports every mistake at once.
func readSeek(in *api.GroupSeek) (topic.GroupSeek, error) {
	var out topic.GroupSeek
	var wrong mistakes
	switch {
	case in.Offsets != nil && (in.Topics != nil || in.To != nil):
		wrong.add(problem.Field{Name: "offsets", Message: "cannot be given together with topics and to"})
	case in.Offsets != nil:
		out.Offsets = readSeekOffsets(*in.Offsets, &wrong)
	case in.Topics == nil && in.To == nil:
		wrong.add(problem.Field{Name: "topics", Message: "is required together with to, or offsets"})
	default:
		if in.Topics == nil {
			wrong.add(problem.Field{Name: "topics", Message: "is required"})
		} else {
			out.Topics = wrong.topicNames("topics", *in.Topics)
		}
		if in.To == nil {
			wrong.add(problem.Field{Name: "to", Message: "is required: earliest, latest, or ts:<time>"})
		} else {
			out.At = wrong.at("to", *in.To)
		}
	}
	return out, wrong.err("gateway.Seek")
}

func readSeekOffsets(offsets []api.SeekOffset, wrong *mistakes) []topic.PathOffset {
	if len(offsets) == 0 || len(offsets) > mostGroupOffsets {
		wrong.add(problem.Field{Name: "offsets", Message: "must have 1 to " + strconv.Itoa(mostGroupOffsets) + " entries"})
		return nil
	}
	out := make([]topic.PathOffset, 0, len(offsets))
	seen := make(map[topic.Path]struct{}, len(offsets))
	for i := range offsets {
		at := "offsets[" + strconv.Itoa(i) + "]."
		path, next, ok := wrong.position(at, offsets[i].Topic, offsets[i].Partition, offsets[i].Offset, "offset")
		if !ok {
			continue
		}
		if _, twice := seen[path]; twice {
			wrong.add(problem.Field{Name: at + "partition", Message: "has a position in this list already"})
			continue
		}
		seen[path] = struct{}{}
		out = append(out, topic.PathOffset{Path: path, Offset: next})
	}
	return out
}

// position reads a topic, a partition and an offset; field is the offset's name.
func (m *mistakes) position(at, name string, partition *int32, offset *int64, field string) (path topic.Path, next topic.Offset, ok bool) {
	before := len(*m)
	var err error
	if path.Topic, err = topic.ParseName(name); name == "" {
		m.add(problem.Field{Name: at + "topic", Message: "is required"})
	} else if err != nil {
		m.name(at+"topic", name, err)
	}
	switch {
	case partition == nil:
		m.add(problem.Field{Name: at + "partition", Message: "is required"})
	case *partition < 0:
		m.add(problem.Field{Name: at + "partition", Message: "must be at least 0"})
	default:
		path.Partition = topic.Partition(*partition)
	}
	switch {
	case offset == nil:
		m.add(problem.Field{Name: at + field, Message: "is required"})
	case *offset < 0:
		m.add(problem.Field{Name: at + field, Message: "must be at least 0"})
	default:
		next = topic.Offset(*offset)
	}
	return path, next, len(*m) == before
}
