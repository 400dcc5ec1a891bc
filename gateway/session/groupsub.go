package session

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// groupSub is what a subscription has that makes its connection a member of a group.
type groupSub struct {
	member *Membership

	joining   bool   // the subscribe is not answered yet
	joinID    []byte // its id
	parting   bool   // unsubscribe was asked for
	unflushed bool   // something was appended that the socket has not taken yet
}

// vitals are the members of a connection, for everyone who sees that its client lives.
type vitals struct {
	mu      sync.Mutex
	members []*Membership
}

func (v *vitals) add(m *Membership) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.members = append(v.members, m)
}

func (v *vitals) remove(m *Membership) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.members = slices.DeleteFunc(v.members, func(other *Membership) bool { return other == m })
}

// alive says that the client has shown a sign of life.
func (v *vitals) alive() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		m.alive()
	}
}

// every is how often the client has to show that it lives, at least.
func (v *vitals) every(most time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		most = m.every(most)
	}
	return most
}

// join opens a subscription with a group. It is answered once the node has taken the member.
func (p *peer) join(dst []byte, c *command) []byte {
	m, err := p.hub.newMembership(c.join, p.id+"/"+c.sub)
	if err != nil {
		return refuse(dst, c, err)
	}
	m.ring = p.ring
	r := p.hub.OpenGroup(GroupSpec{Group: c.join.Group, Format: c.join.Format})
	if p.socket.raw != nil {
		r.serve = p.serve
	}
	r.bell = p.bell
	s := newSubscription(c.sub, r, c.credit)
	s.group = &groupSub{member: m, joining: true, joinID: c.id}
	p.subs = append(p.subs, s)
	p.vitals.add(m)
	p.hub.beside(p.session, m.run)
	return dst
}

// heed appends what the groups have said, and ends the subscriptions whose members are none any more.
func (p *peer) heed(dst []byte) []byte {
	ended, heard, asleep := false, false, false
	for _, s := range p.subs {
		if s.group != nil && s.group.member.news.Load() {
			n := s.group.member.take()
			dst = s.heed(dst, &n)
			ended, heard, asleep = ended || s.ended, true, asleep || n.asleep
		}
	}
	if asleep && !p.pinging && !p.unanswered() {
		p.pinging = true
		dst = appendFrame(dst, framePing, nil)
	}
	if ended {
		p.forget()
	}
	if every := p.every(); heard && every < p.pace {
		p.wake(every)
		p.pace = every
	}
	return dst
}

// heed appends what the group has said.
func (s *subscription) heed(dst []byte, n *groupNews) []byte {
	g := s.group
	if n.turn != nil && !g.parting {
		added, removed := g.member.retarget(s.reader, n.turn)
		switch {
		case g.joining:
			g.joining = false
			dst = s.appendJoined(dst, n.turn)
		case len(added)+len(removed) > 0:
			dst = s.appendAssignment(dst, n.turn.Epoch, added, removed)
		}
		if len(added) > 0 {
			s.caught = false
		}
	}
	dst = s.appendNotCommitted(dst, n.refused)
	for _, id := range n.done {
		dst = appendOK(dst, id, s)
	}
	if !n.over {
		return dst
	}
	s.ended = true
	for _, id := range n.failed {
		dst = s.appendFailure(dst, id, n.err)
	}
	switch {
	case n.err != nil && g.joining:
		return s.appendFailure(dst, g.joinID, n.err)
	case n.err != nil:
		return s.appendFailure(dst, n.id, n.err)
	case g.joining:
		dst = s.appendFailure(dst, g.joinID, fault.Newf("session.Join", fault.NotFound, nil, "subscription %q was unsubscribed before it had joined", s.name))
	}
	return appendOK(dst, n.id, s)
}

// unjoin has the member leave its group. The subscription is there, and silent, until it has.
func (s *subscription) unjoin(id []byte) {
	s.reader.Close()
	s.group.parting = true
	s.group.member.goodbye(leaving, id)
}

// ack acknowledges what was sent up to a cursor.
func (p *peer) ack(dst []byte, s *subscription, c *command) []byte {
	switch {
	case s.group == nil:
		return refuse(dst, c, invalid("subscription %s is none of a group, there is nothing to acknowledge", short(c.sub)))
	case s.group.joining:
		return refuse(dst, c, fault.Newf("session.Op", fault.BadRequest, nil, "subscription %s has not joined its group yet", short(c.sub)))
	}
	if err := c.cursor.CheckGroup(s.group.member.join.Group); err != nil {
		return refuse(dst, c, err)
	}
	refused, err := s.group.member.ack(s.reader, c.cursor.Commits(), c.id)
	if err != nil {
		return refuse(dst, c, err)
	}
	return s.appendNotCommitted(dst, refused)
}

// took commits what the socket has taken, for the members that acknowledge so.
func (p *peer) took() {
	for _, s := range p.subs {
		if s.group != nil && s.group.unflushed {
			s.group.unflushed = false
			s.group.member.took(s.reader)
		}
	}
}

// part ends the membership with the connection, or with the subscription's own end.
func (p *peer) part(s *subscription) {
	if s.group != nil {
		p.vitals.remove(s.group.member)
		s.group.member.goodbye(disconnect, nil)
	}
}

func (s *subscription) appendJoined(dst []byte, turn *topic.GroupTurn) []byte {
	dst, at := beginFrame(dst)
	dst = s.openReply(dst, s.group.joinID, "ok")
	dst = append(dst, `,"cursor":"`...)
	dst = s.reader.appendCursor(dst)
	dst = append(dst, `","member":`...)
	dst = problem.AppendString(dst, string(turn.Member))
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendInt(dst, int64(turn.Epoch), 10)
	dst = append(dst, `,"assignment":`...)
	dst = appendAssigned(dst, s.reader.group.reads)
	dst = s.group.member.appendMissing(dst)
	return endFrame(append(dst, '}'), at, frameText)
}

func (s *subscription) appendAssignment(dst []byte, epoch topic.GroupEpoch, added, removed []topic.Assignment) []byte {
	dst, at := beginFrame(dst)
	dst = append(s.open(dst, "assignment"), ',')
	dst = appendChange(dst, epoch, added, removed)
	dst = s.group.member.appendMissing(dst)
	return endFrame(append(dst, '}'), at, frameText)
}

func (s *subscription) appendNotCommitted(dst []byte, refused []topic.NotCommitted) []byte {
	if len(refused) == 0 {
		return dst
	}
	dst, at := beginFrame(dst)
	dst = append(s.open(dst, "not_committed"), `,"offsets":`...)
	dst = appendRefused(dst, refused)
	return endFrame(append(dst, '}'), at, frameText)
}

func (s *subscription) appendFailure(dst, id []byte, err error) []byte {
	dst, at := beginFrame(dst)
	return endFrame(appendError(dst, id, s.name, err), at, frameText)
}

// appendChange appends the members of a message about a change of an assignment.
func appendChange(dst []byte, epoch topic.GroupEpoch, added, removed []topic.Assignment) []byte {
	dst = append(dst, `"epoch":`...)
	dst = strconv.AppendInt(dst, int64(epoch), 10)
	dst = append(dst, `,"added":`...)
	dst = appendAssigned(dst, added)
	dst = append(dst, `,"removed":`...)
	return appendAssigned(dst, removed)
}

// appendAssigned appends partitions, which are by topic, as a list of topics with their partitions.
func appendAssigned(dst []byte, all []topic.Assignment) []byte {
	dst = append(dst, '[')
	for i := range all {
		if i > 0 && all[i].Ref.ID == all[i-1].Ref.ID {
			dst = append(dst, ',')
		} else {
			if i > 0 {
				dst = append(dst, `]},`...)
			}
			dst = append(dst, `{"topic":`...)
			dst = problem.AppendString(dst, string(all[i].Topic))
			dst = append(dst, `,"partitions":[`...)
		}
		dst = strconv.AppendInt(dst, int64(all[i].Ref.Partition), 10)
	}
	if len(all) > 0 {
		dst = append(dst, `]}`...)
	}
	return append(dst, ']')
}

// appendRefused appends a list of offsets that were not committed.
func appendRefused(dst []byte, refused []topic.NotCommitted) []byte {
	dst = append(dst, '[')
	for i, n := range refused {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if n.Topic != "" {
			dst = append(dst, `"topic":`...)
			dst = problem.AppendString(dst, string(n.Topic))
			dst = append(dst, ',')
		}
		dst = append(dst, `"partition":`...)
		dst = strconv.AppendInt(dst, int64(n.Ref.Partition), 10)
		dst = append(dst, `,"next_offset":`...)
		dst = strconv.AppendInt(dst, int64(n.Next), 10)
		dst = append(dst, `,"reason":"`...)
		dst = append(dst, n.Reason...)
		dst = append(dst, `"}`...)
	}
	return append(dst, ']')
}
