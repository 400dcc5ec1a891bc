package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// readBody reads what the poll asks for. A poll that goes on may have no body.
func (p *poll) readBody(c *fiber.Ctx) error {
	var in api.GroupPoll
	ctx := c.Context()
	if ctx.Request.Header.ContentLength() != 0 {
		if err := p.s.readJSON(c, &in); err != nil {
			return err
		}
	}
	if key := ctx.Request.Header.PeekCanonical(headerIdempotencyKey); key != nil {
		if !saneKey(key) {
			return problem.FieldError("gateway.Poll", "Idempotency-Key", "must be 1 to %d visible ASCII characters", mostIdempotencyKey)
		}
		if p.ask.Member == topic.MadeMember {
			p.ask.MadeFrom = string(key)
		}
	}
	return p.read(&in)
}

// read checks the body, and reports every mistake at once.
func (p *poll) read(in *api.GroupPoll) error {
	var wrong mistakes
	p.ask.Epoch = wrong.epoch(in.Epoch)
	p.ask.Subscription = wrong.subscription(in)
	if in.Start != nil {
		p.ask.Start = wrong.at("start", *in.Start)
	}
	p.autoAck = in.AutoAck != nil && *in.AutoAck
	p.q.limit.Records = wrong.within("max_records", in.MaxRecords, defaultPageRecords, 1, mostPageRecords)
	p.q.limit.Bytes = wrong.within("max_bytes", in.MaxBytes, defaultPageBytes, 1, mostPageBytes)
	p.q.minBytes = wrong.within("min_bytes", in.MinBytes, 1, 0, mostPageBytes)
	wait := wrong.within("wait_ms", in.WaitMs, int(defaultWait.Milliseconds()), 0, int(mostWait.Milliseconds()))
	p.q.wait = time.Duration(wait) * time.Millisecond
	if in.ValueFormat != nil {
		var err error
		if p.q.values, err = recordjson.ParseFormat(*in.ValueFormat); err != nil {
			wrong.add(problem.Field{Name: "value_format", Message: "must be auto, json, string or base64"})
		}
	}
	joins := in.Epoch == nil && in.Ack == nil && in.After == nil
	if joins && p.ask.Subscription == nil && len(wrong) == 0 {
		wrong.add(problem.Field{Name: "topics", Message: "is required to join, or topic_prefix or topic_pattern; a member that has joined sends the epoch of the last answer"})
	}
	if !joins && p.ask.Member == topic.MadeMember {
		wrong.add(problem.Field{Name: "member", Message: `"-" asks for a new name; a member that has joined polls under the name that the first poll answered with`})
	}
	if err := wrong.err("gateway.Poll"); err != nil {
		return err
	}
	return p.readCursors(in)
}

// readCursors reads ack and after. Each is as good as an epoch.
func (p *poll) readCursors(in *api.GroupPoll) error {
	ack, err := readGroupCursor("ack", in.Ack, p.ask.Group)
	if err != nil {
		return err
	}
	if p.after, err = readGroupCursor("after", in.After, p.ask.Group); err != nil {
		return err
	}
	if in.Epoch == nil {
		p.ask.Epoch = max(ack.Epoch, p.after.Epoch)
	}
	if err := fitEpoch(&p.ask, "ack", ack.Epoch); err != nil {
		return err
	}
	if err := fitEpoch(&p.ask, "after", p.after.Epoch); err != nil {
		return err
	}
	if in.Ack != nil {
		p.ask.Ack = ack.Commits()
	}
	return nil
}

// readGroupCursor reads the cursor of a group, which may be missing.
func readGroupCursor(field string, text *string, group topic.GroupName) (topic.GroupCursor, error) {
	if text == nil {
		return topic.GroupCursor{}, nil
	}
	c, err := topic.ParseGroupCursor(*text)
	if err == nil {
		err = c.CheckGroup(group)
	}
	if err == nil && c.Epoch == topic.NoGroupEpoch {
		err = fault.Newf("gateway.Cursor", fault.InvalidCursor, nil, "the cursor is none that a poll has answered with")
	}
	if err != nil {
		return topic.GroupCursor{}, fault.New("gateway.Cursor", fault.KindOf(err), nil, fmt.Errorf("%s: %s", field, fault.Sentence(err)))
	}
	return c, nil
}

// fitEpoch takes the epoch of a cursor for that of the call, which must not be below it.
func fitEpoch(ask *topic.GroupPoll, field string, e topic.GroupEpoch) error {
	if ask.Epoch == topic.NoGroupEpoch {
		ask.Epoch = e
	}
	if ask.Epoch < e {
		return problem.FieldError("gateway.Groups", "epoch", "is %d, but the cursor in %s is of epoch %d: send the epoch of the last answer", ask.Epoch, field, e)
	}
	return nil
}

// subscription reads what a member reads; nil where that is not said.
func (m *mistakes) subscription(in *api.GroupPoll) *topic.Subscription {
	given := 0
	var out topic.Subscription
	if in.Topics != nil {
		given++
		out.Topics = m.topicNames("topics", *in.Topics)
	}
	if in.TopicPrefix != nil {
		given++
		if out.Prefix = *in.TopicPrefix; !canBegin(out.Prefix) {
			m.add(problem.Field{Name: "topic_prefix", Message: "must be what the name of a topic can begin with: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"})
		}
	}
	if in.TopicPattern != nil {
		given++
		out.Pattern = *in.TopicPattern
		if why := patterns.check(out.Pattern); why != "" {
			m.add(problem.Field{Name: "topic_pattern", Message: why})
		}
	}
	if given > 1 {
		m.add(problem.Field{Name: "topics", Message: "is one of three, with topic_prefix and topic_pattern: give one of them"})
	}
	if given == 0 {
		return nil
	}
	return &out
}

// canBegin says whether some topic's name can begin so.
func canBegin(prefix string) bool {
	if prefix == "." || prefix == ".." {
		return true // such are no names, but names begin with them
	}
	_, err := topic.ParseName(prefix)
	return err == nil
}

// ascending sorts names, and keeps each once.
func ascending(names []topic.Name) []topic.Name {
	if !slices.IsSorted(names) {
		slices.Sort(names)
	}
	return slices.Compact(names)
}

// patterns are those that were found to be good: members send theirs with every poll.
var patterns goodPatterns

type goodPatterns struct {
	mu   sync.Mutex
	good map[string]struct{}
}

// mostGoodPatterns is how many are kept.
const mostGoodPatterns = 256

// check says what is wrong with a pattern; empty where nothing is.
func (g *goodPatterns) check(pattern string) string {
	g.mu.Lock()
	_, good := g.good[pattern]
	g.mu.Unlock()
	if good {
		return ""
	}
	if _, err := topic.ParsePattern(pattern); err != nil {
		return fault.Sentence(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.good) >= mostGoodPatterns || g.good == nil {
		g.good = map[string]struct{}{}
	}
	g.good[strings.Clone(pattern)] = struct{}{}
	return ""
}
