package session

import (
	"slices"

	"github.com/weirlog/weir/internal/fault"
)

// obey does what the client has asked for and appends the answers. more says that there is more to do.
func (p *peer) obey(dst []byte) (_ []byte, more bool) {
	for len(dst) < flushBytes {
		select {
		case c := <-p.inbox:
			dst = p.do(dst, c)
		default:
			return dst, false
		}
	}
	return dst, true
}

// do does one thing.
func (p *peer) do(dst []byte, c *command) []byte {
	if c.err != nil {
		return refuse(dst, c, c.err)
	}
	switch c.op {
	case "ping":
		dst, at := beginFrame(dst)
		return endFrame(append(appendReply(dst, c.id, "pong"), '}'), at, frameText)
	case "subscribe":
		return p.subscribe(dst, c)
	}
	i := slices.IndexFunc(p.subs, func(s *subscription) bool { return s.name == c.sub })
	if i < 0 || p.subs[i].group != nil && p.subs[i].group.parting {
		return refuse(dst, c, fault.Newf("session.Op", fault.NotFound, nil, "there is no subscription %s", short(c.sub)))
	}
	s := p.subs[i]
	switch c.op {
	case "unsubscribe":
		if s.group != nil {
			s.unjoin(c.id)
			return dst
		}
		s.reader.Close()
		p.subs = slices.Delete(p.subs, i, i+1)
	case "pause":
		s.paused = true
	case "resume":
		s.paused, s.caught = false, false
	case "ack":
		return p.ack(dst, s, c)
	case "seek":
		if s.group != nil {
			return refuse(dst, c, invalid("where a group goes on is moved with POST /v1/groups/{group}/seek"))
		}
		if err := s.reader.Seek(p.hub.ctx, c.spec.From); err != nil {
			return refuse(dst, c, err)
		}
		s.caught = false
	case "credit":
		s.add(*c.credit)
		if c.id == nil {
			return dst // credit is given often, and is answered by records
		}
	}
	return appendOK(dst, c.id, s)
}

// subscribe opens a subscription.
func (p *peer) subscribe(dst []byte, c *command) []byte {
	if slices.ContainsFunc(p.subs, func(s *subscription) bool { return s.name == c.sub }) {
		return refuse(dst, c, invalid("there is a subscription %s already", short(c.sub)))
	}
	if len(p.subs) >= p.hub.cfg.MaxSubscriptions {
		return refuse(dst, c, fault.Newf("session.Op", fault.Limit, nil, "one connection may have %d subscriptions", p.hub.cfg.MaxSubscriptions))
	}
	if c.join != nil {
		return p.join(dst, c)
	}
	r, err := p.hub.Open(p.hub.ctx, c.spec)
	if err != nil {
		return refuse(dst, c, err)
	}
	return p.attach(dst, newSubscription(c.sub, r, c.credit), c)
}

// attach begins a subscription with a reader that stands where it should.
func (p *peer) attach(dst []byte, s *subscription, c *command) []byte {
	if p.socket.raw != nil {
		s.reader.serve = p.serve
	}
	if err := s.reader.Listen(p.bell); err != nil {
		s.reader.Close()
		return refuse(dst, c, err)
	}
	p.subs = append(p.subs, s)
	return appendOK(dst, c.id, s)
}

func refuse(dst []byte, c *command, err error) []byte {
	dst, at := beginFrame(dst)
	return endFrame(appendError(dst, c.id, c.sub, err), at, frameText)
}

// appendOK answers that something was done, with where the subscription stands.
func appendOK(dst, id []byte, s *subscription) []byte {
	dst, at := beginFrame(dst)
	dst = s.openReply(dst, id, "ok")
	dst = append(dst, `,"cursor":"`...)
	dst = s.reader.appendCursor(dst)
	return endFrame(append(dst, `"}`...), at, frameText)
}
