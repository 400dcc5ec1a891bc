package gateway

import (
	"errors"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// pollPart is a partition that a poll reads.
type pollPart struct {
	place
	assigned  topic.GroupEpoch
	from      topic.Offset // where the group stands: what is committed, or the log's start; NoOffset: not known yet
	committed topic.Offset // NoOffset: nothing
	seen      topic.Epoch  // the leader's, under which next and last are known to lie in the log
	known     bool         // bounds is
	troubled  bool
}

func (part *pollPart) ref() topic.Ref {
	return topic.Ref{ID: part.id, Partition: part.path.Partition}
}

// moved says that the part was read past where the group stands.
func (part *pollPart) moved() bool { return part.next != part.from }

// mostMoved is in how many partitions a member may be ahead of its group: so many fit into a cursor,
// whatever their offsets. The others are read when it has acknowledged some.
const mostMoved = 1500

// place puts the poll where the group stands, or behind what the member has read and not acknowledged.
func (p *poll) place() {
	p.parts, p.moved, p.full, p.trouble = p.parts[:0], 0, false, nil
	var sum uint64
	for i := range p.turn.Assignment {
		a := &p.turn.Assignment[i]
		if a.Leaving {
			continue
		}
		part := pollPart{
			place: place{
				path: topic.Path{Topic: a.Topic, Partition: a.Ref.Partition}, id: a.Ref.ID, next: a.Committed, last: a.LastEpoch,
			},
			assigned: a.Assigned, from: a.Committed, committed: a.Committed, seen: topic.NoEpoch,
		}
		if at, read := p.after.Part(a.Ref); read && at.Assigned == a.Assigned && at.Next > a.Committed {
			part.next, part.last = at.Next, at.LastEpoch
			p.moved++
		}
		sum += uint64(part.next + 1)
		p.parts = append(p.parts, part)
	}
	// Whose turn it is depends on the positions alone, so that the same poll gets the same records again. It
	// is as good as chance, so that none starves another.
	if n := uint64(len(p.parts)); n > 1 {
		p.first = int(scatter(sum) % n)
	} else {
		p.first = 0
	}
}

// scatter makes of numbers that are near to each other some that are not (the last step of MurmurHash3).
func scatter(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// fill reads what there is of each part, until the page is full.
func (p *poll) fill() error {
	p.trouble = nil
	for i := range p.parts {
		if p.full {
			return nil
		}
		part := &p.parts[(p.first+i)%len(p.parts)]
		if !part.moved() && p.moved >= mostMoved {
			continue
		}
		before := part.moved()
		err := p.drain(part)
		part.troubled = err != nil
		if !before && part.moved() {
			p.moved++
		}
		switch {
		case err == nil, fault.Is(err, fault.NoTopic), fault.Is(err, fault.NoPartition):
			// What is gone is soon assigned to nobody.
		case fault.KindOf(err).Retryable() && !fault.Is(err, fault.Overloaded):
			p.trouble = err // the others go on
		case p.page.records > 0:
			p.full = true // what was read stands; the next page meets the error
		default:
			return err
		}
	}
	return nil
}

// allTroubled says that none of the parts could be read.
func (p *poll) allTroubled() bool {
	for i := range p.parts {
		if !p.parts[i].troubled {
			return false
		}
	}
	return true
}

// drain reads one part up to its end, or to a gap.
func (p *poll) drain(part *pollPart) error {
	bounds, err := p.s.node.Bounds(part.ref())
	if err != nil {
		return err
	}
	part.bounds, part.known = bounds, true
	if part.from == topic.NoOffset {
		part.from = bounds.LogStart
	}
	if part.next == topic.NoOffset {
		part.next, part.last = bounds.LogStart, topic.NoEpoch
	}
	same := part.last == topic.NoEpoch || part.last == bounds.LeaderEpoch || part.seen == bounds.LeaderEpoch
	if part.next == bounds.HighWatermark && same {
		return nil
	}
	p.openPage()
	p.page.options.Topic, p.page.options.Partition = part.path.Topic, part.path.Partition
	for moved := false; ; {
		next, gaps := part.next, len(p.page.gaps)
		p.full, err = p.page.read(p.s.works, p.s.node, &part.place, topic.Fetch{})
		var out *topic.RangeError
		switch {
		case err != nil && !moved && fault.Is(err, fault.OffsetRange) && errors.As(err, &out):
			moved = true
			p.jump(part, out)
			continue
		case err != nil:
			return err
		}
		part.seen = part.bounds.LeaderEpoch
		if p.full || part.next == next || part.next >= part.bounds.HighWatermark || len(p.page.gaps) > gaps {
			return nil
		}
	}
}

// jump goes on where the group's policy says, for a position that is not there any more, and announces it.
func (p *poll) jump(part *pollPart, out *topic.RangeError) {
	to := out.ResumeAt
	// Behind a cut the log is read from where it was cut, whatever the policy: those records are new.
	if out.Reason != topic.Truncated {
		switch p.turn.Start.Kind {
		case topic.AtLatest:
			to = out.Bounds.HighWatermark
		case topic.AtTime:
			if at, err := p.s.offsetAt(part.path.Topic, part.path.Partition, p.turn.Start.Time); err == nil {
				to = min(max(at, out.Bounds.LogStart), out.Bounds.HighWatermark)
			}
		}
	}
	p.page.gaps = append(p.page.gaps, session.Gap{
		Topic: part.path.Topic, Partition: part.path.Partition, From: part.next, To: to, Reason: out.Reason,
	})
	part.next, part.last = to, topic.NoEpoch
}

// cursor is behind the page. It lists what was read past what is committed, and of what is being taken away
// what the member had read before: it may acknowledge that with the same cursor.
func (p *poll) cursor() topic.GroupCursor {
	c := topic.GroupCursor{Group: topic.GroupSum(p.ask.Group), Epoch: p.turn.Epoch}
	for i := range p.parts {
		if part := &p.parts[i]; part.moved() {
			c.Advance(part.ref(), part.next, part.last, part.assigned)
		}
	}
	for i := range p.turn.Assignment {
		a := &p.turn.Assignment[i]
		if !a.Leaving {
			continue
		}
		if at, read := p.after.Part(a.Ref); read && at.Assigned == a.Assigned && at.Next > a.Committed {
			c.Advance(a.Ref, at.Next, at.LastEpoch, at.Assigned)
		}
	}
	return c
}

// openPage begins the page, where it has not begun.
func (p *poll) openPage() {
	if p.page.pageBody != nil {
		return
	}
	p.page = recordPage{pageBody: p.s.newPage(), limit: p.q.limit, options: recordjson.Options{Format: p.q.values}}
	b := append(p.page.b[:0], `{"member":`...)
	b = recordjson.AppendString(b, string(p.turn.Member))
	b = append(b, `,"epoch":`...)
	b = strconv.AppendInt(b, int64(p.turn.Epoch), 10)
	b = append(b, `,"assignment":`...)
	b = appendAssignment(b, p.turn.Assignment)
	b = append(b, `,"assignment_changed":`...)
	b = strconv.AppendBool(b, p.turn.AssignmentChanged)
	p.page.b = append(b, `,"records":[`...)
	p.page.start = len(p.page.b)
}

// closePage gives the page up.
func (p *poll) closePage() {
	if p.page.pageBody != nil {
		p.page.drop()
	}
	p.page = recordPage{}
}

// answer ends the page, which leaves as the answer.
func (p *poll) answer(c *fiber.Ctx) error {
	p.openPage()
	b := endList(p.page.b)
	b = append(b, `,"cursor":"`...)
	b = p.cursor().Append(b)
	b = append(b, `","committed":`...)
	b = p.s.appendCommitted(b, p.committed, p.turn.Assignment)
	b = append(b, `,"lag":`...)
	b = strconv.AppendInt(b, p.lag(), 10)
	if len(p.not) > 0 {
		b = append(b, `,"not_committed":`...)
		b = appendNotCommitted(b, p.not)
	}
	if len(p.turn.Waiting) > 0 {
		b = append(b, `,"waiting_for":`...)
		b = appendWaiting(b, p.turn.Waiting)
	}
	if p.ask.Subscription != nil {
		b = session.AppendMissing(b, p.s.node, p.ask.Subscription.Topics)
	}
	p.page.b = append(appendGaps(b, p.page.gaps), '}', lineEnd)
	return p.page.answer(c, typeJSON)
}

// lag is how many records lie between what is committed and the ends.
func (p *poll) lag() int64 {
	var lag int64
	for i := range p.parts {
		part := &p.parts[i]
		if !part.known { // the page was full before
			part.bounds, _ = p.s.node.Bounds(part.ref())
		}
		lag += int64(max(0, part.bounds.HighWatermark-max(part.committed, part.bounds.LogStart)))
	}
	return lag
}

// appendAssignment appends what a member reads, without what it has to give up.
func appendAssignment(b []byte, assignment []topic.Assignment) []byte {
	b = append(b, '[')
	for i := 0; i < len(assignment); {
		name, begun := assignment[i].Topic, false
		for ; i < len(assignment) && assignment[i].Topic == name; i++ {
			if assignment[i].Leaving {
				continue
			}
			if !begun {
				b = append(b, `{"topic":"`...)
				b = append(b, name...) // a topic's name needs no escapes
				b = append(b, `","partitions":[`...)
				begun = true
			}
			b = append(strconv.AppendInt(b, int64(assignment[i].Ref.Partition), 10), ',')
		}
		if begun {
			b = append(endList(b), '}', ',')
		}
	}
	return endList(b)
}

// appendCommitted appends what was committed. The topics' names are in the assignment, but for those that
// were just given up.
func (s *Server) appendCommitted(b []byte, committed []topic.GroupCommit, assignment []topic.Assignment) []byte {
	b = append(b, '[')
	var id topic.ID
	var name topic.Name
	for i := range committed {
		one := &committed[i]
		if one.Ref.ID != id {
			id, name = one.Ref.ID, s.nameOf(one.Ref.ID, assignment)
		}
		if name != "" {
			b = append(appendPosition(b, name, one.Ref.Partition, one.Next), '}', ',')
		}
	}
	return endList(b)
}

// nameOf is the name of a topic; empty where it is gone.
func (s *Server) nameOf(id topic.ID, assignment []topic.Assignment) topic.Name {
	for i := range assignment {
		if assignment[i].Ref.ID == id {
			return assignment[i].Topic
		}
	}
	if d, err := s.node.TopicByID(id); err == nil {
		return d.Name
	}
	return ""
}

// appendPosition appends the members that a position begins with.
func appendPosition(b []byte, name topic.Name, p topic.Partition, next topic.Offset) []byte {
	b = append(b, '{')
	if name != "" {
		b = append(b, `"topic":"`...)
		b = append(b, name...)
		b = append(b, `",`...)
	}
	b = append(b, `"partition":`...)
	b = strconv.AppendInt(b, int64(p), 10)
	return appendOffset(b, "next_offset", next)
}

func appendNotCommitted(b []byte, not []topic.NotCommitted) []byte {
	b = append(b, '[')
	for i := range not {
		b = appendPosition(b, not[i].Topic, not[i].Ref.Partition, not[i].Next)
		b = append(b, `,"reason":"`...)
		b = append(b, not[i].Reason...)
		b = append(b, `"},`...)
	}
	return endList(b)
}

func appendWaiting(b []byte, waiting []topic.GroupWaiting) []byte {
	b = append(b, '[')
	for i := range waiting {
		b = append(b, `{"topic":"`...)
		b = append(b, waiting[i].Topic...)
		b = append(b, `","partition":`...)
		b = strconv.AppendInt(b, int64(waiting[i].Ref.Partition), 10)
		b = append(b, `,"member":`...)
		b = recordjson.AppendString(b, string(waiting[i].Holder))
		b = append(b, `},`...)
	}
	return endList(b)
}
