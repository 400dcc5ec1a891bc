package session

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// run makes the calls until the member parts, or is none any more.
func (m *Membership) run() error {
	m.patience = time.Now().Add(joinWait)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c := m.next(time.Now())
		switch {
		case c.part != staying:
			m.part(c)
			return nil
		case c.poll != nil:
			if err := m.call(c); err != nil {
				m.end(err)
				return nil // the session tells its client
			}
			continue
		case c.wait > 0:
			timer.Reset(c.wait)
		default:
			timer.Stop()
		}
		select {
		case <-m.kick:
		case <-m.changed:
			m.changed = nil
			m.mu.Lock()
			m.stale = true
			m.mu.Unlock()
		case <-timer.C:
		}
	}
}

// groupJob is what the goroutine does next: part, or one call, or it waits.
type groupJob struct {
	part    parting
	id      []byte // that asked for it
	poll    *topic.GroupPoll
	replies [][]byte
	alive   bool          // the call is a sign of life
	wait    time.Duration // 0: until something happens
}

// next decides what to do.
func (m *Membership) next(now time.Time) groupJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parting != staying {
		return groupJob{part: m.parting, id: m.partedBy}
	}
	if now.Before(m.pause) {
		return groupJob{wait: m.pause.Sub(now)}
	}
	if m.number == 0 {
		if m.asleep && !m.beat {
			return groupJob{}
		}
		m.asleep, m.beat = false, false
		p := m.join
		if m.joined {
			if m.rejoin == topic.NoGroupEpoch {
				m.rejoin = m.confirmed()
			}
			p.Epoch = m.rejoin
		}
		return m.load(&p)
	}
	if m.stale {
		m.stale = false
		p := m.blank()
		p.Turn, p.Epoch = m.number, m.epoch
		return groupJob{poll: p}
	}
	commits := len(m.acks)+len(m.replies) > 0 && m.refused == nil
	switch {
	case m.beat, m.giveUp && (commits || len(m.acks) == 0), commits && (!m.auto || !now.Before(m.paced)):
		p := m.blank()
		p.Heartbeat, p.Epoch = true, m.confirmed()
		job := m.load(p)
		job.alive = m.beat
		m.beat, m.giveUp = false, false
		return job
	case commits:
		return groupJob{wait: m.paced.Sub(now)}
	}
	return groupJob{}
}

// blank is a call of the member with nothing in it.
func (m *Membership) blank() *topic.GroupPoll {
	return &topic.GroupPoll{
		Group: m.join.Group, Member: m.join.Member, Kind: m.join.Kind, Principal: m.join.Principal, Node: m.join.Node,
	}
}

// load adds to a call what is to be committed. mu is held.
func (m *Membership) load(p *topic.GroupPoll) groupJob {
	job := groupJob{poll: p}
	if p.Epoch == topic.NoGroupEpoch || m.refused != nil {
		return job
	}
	for _, c := range m.acks {
		p.Ack = append(p.Ack, c)
	}
	job.replies = m.replies
	m.acks, m.replies = nil, nil
	m.paced = time.Now().Add(autoAckEvery)
	return job
}

// confirmed is the newest epoch that may be named without giving up what is not to be given up yet. mu is held.
func (m *Membership) confirmed() topic.GroupEpoch {
	e := m.epoch
	for ref, h := range m.held {
		_, pending := m.acks[ref]
		if h.leaving && (!h.given || pending && m.refused != nil) {
			e = min(e, h.before)
		}
	}
	return e
}

// call makes one call. An error ends the membership.
func (m *Membership) call(c groupJob) error {
	ctx, cancel := context.WithTimeout(m.hub.ctx, groupCall)
	turn, err := m.hub.groups.PollGroup(ctx, c.poll)
	cancel()
	switch {
	case err == nil:
		m.pause, m.patience = time.Time{}, time.Time{}
		m.answered(c, &turn)
		return nil
	case m.joined && c.poll.Subscription == nil && fault.Is(err, fault.NoMember):
		m.fallAsleep(c.alive)
	case !fault.KindOf(err).Retryable() || !m.joined && (fault.Is(err, fault.Stopping) || time.Now().After(m.patience)):
		m.mu.Lock()
		defer m.mu.Unlock()
		m.replies = append(c.replies, m.replies...)
		return err
	default:
		// Jitter, so that a coordinator that comes back does not meet all of its members at once.
		m.pause = time.Now().Add(retryAfter/2 + rand.N(retryAfter))
	}
	// A coordinator that had trouble may be another one by now, which knows no turn and may know more.
	m.number, m.changed = 0, nil
	m.takeBack(c)
	return nil
}

// fallAsleep is for a member whose session is over, or that somebody has taken out. It has nothing any more,
// and joins again once its client shows a sign of life, which the session asks for at once: else one that
// has stopped would be given its partitions over and over, and nobody would read them.
func (m *Membership) fallAsleep(alive bool) {
	m.mu.Lock()
	m.asleep, m.beat = true, m.beat || alive
	m.held, m.losing = nil, false
	m.turn = &topic.GroupTurn{Member: m.join.Member, Epoch: m.epoch, Start: m.join.Start, Session: m.session}
	m.mu.Unlock()
	m.tell()
}

// takeBack keeps for later what a call did not bring to the node, or may not have.
func (m *Membership) takeBack(c groupJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range c.poll.Ack {
		if newer, there := m.acks[a.Ref]; there && (newer.Assigned != a.Assigned || newer.Next >= a.Next) {
			continue
		}
		m.put(a)
	}
	m.replies = append(c.replies, m.replies...)
}

func (m *Membership) put(a topic.GroupCommit) {
	if m.acks == nil {
		m.acks = map[topic.Ref]topic.GroupCommit{}
	}
	m.acks[a.Ref] = a
}

// answered takes what the node has answered.
func (m *Membership) answered(c groupJob, turn *topic.GroupTurn) {
	if !c.poll.Heartbeat {
		m.number, m.changed = turn.Turn, turn.Changed
		m.joined, m.rejoin = true, topic.NoGroupEpoch
	}
	m.mu.Lock()
	m.join.Member = turn.Member
	if m.hold(c.poll, turn) {
		m.turn = turn
	}
	for _, n := range turn.NotCommitted {
		m.refused = append(m.refused, m.named(n))
	}
	m.done = append(m.done, c.replies...)
	news := m.turn != nil || m.refused != nil || m.done != nil
	m.mu.Unlock()
	if news {
		m.tell()
	}
}

// hold takes an assignment. It returns false when it is the one that is held already. mu is held.
func (m *Membership) hold(p *topic.GroupPoll, turn *topic.GroupTurn) bool {
	m.session = turn.Session
	if p.Heartbeat && turn.Epoch == m.epoch && len(turn.Assignment) == len(m.held) && !m.losing {
		return false
	}
	m.losing = false
	held := make(map[topic.Ref]*holding, len(turn.Assignment))
	for i := range turn.Assignment {
		a := &turn.Assignment[i]
		h := m.held[a.Ref]
		switch {
		case h == nil || h.assigned != a.Assigned:
			// What it does not get while it is here it has read nothing of.
			h = &holding{topic: a.Topic, assigned: a.Assigned, leaving: a.Leaving, given: a.Leaving}
			m.giveUp = m.giveUp || a.Leaving
		case !a.Leaving:
			h.leaving, h.given = false, false
		case !h.leaving:
			h.leaving, h.before = true, m.epoch
		}
		m.losing = m.losing || a.Leaving
		held[a.Ref] = h
	}
	m.held, m.epoch = held, turn.Epoch
	return true
}

// named has the name of its topic, where that is known.
func (m *Membership) named(n topic.NotCommitted) topic.NotCommitted {
	if h := m.held[n.Ref]; h != nil && n.Topic == "" {
		n.Topic = h.topic
	}
	return n
}

func (m *Membership) tell() {
	m.news.Store(true)
	m.ring()
}

// end says why the member is none any more.
func (m *Membership) end(err error) {
	m.mu.Lock()
	m.err, m.over = err, true
	m.mu.Unlock()
	m.tell()
}

// part says goodbye to the node.
func (m *Membership) part(c groupJob) {
	m.mu.Lock()
	p := m.blank()
	p.Heartbeat, p.Epoch = true, m.epoch
	for _, a := range m.acks {
		p.Ack = append(p.Ack, a)
	}
	m.mu.Unlock()
	var refused []topic.NotCommitted
	var err error
	if m.joined {
		ctx, cancel := context.WithTimeout(m.hub.ctx, leaveWait)
		defer cancel()
		if c.part == leaving {
			refused, err = m.leave(ctx, p)
		}
		if c.part == disconnect && len(p.Ack) > 0 {
			_, _ = m.hub.groups.PollGroup(ctx, p) // nobody is left to be told
		}
		if m.number != 0 {
			m.hub.groups.EndTurn(p.Group, p.Member, m.number, false)
		}
		if c.part == disconnect || err != nil {
			m.hub.groups.DisconnectMember(p.Group, p.Member, p.Epoch)
		}
	}
	m.mu.Lock()
	for _, n := range refused {
		m.refused = append(m.refused, m.named(n))
	}
	if m.err = err; err == nil {
		m.done, m.replies = append(m.done, m.replies...), nil
	}
	m.over = true
	m.mu.Unlock()
	m.tell()
}

// leave leaves the group, as soon as it can be told.
func (m *Membership) leave(ctx context.Context, p *topic.GroupPoll) ([]topic.NotCommitted, error) {
	for {
		refused, err := m.hub.groups.LeaveGroup(ctx, p.Group, p.Member, p.Epoch, p.Ack)
		switch {
		case fault.Is(err, fault.NoMember) || fault.Is(err, fault.NoGroup):
			return nil, nil
		case err == nil || fault.Is(err, fault.FencedMember):
			return refused, nil // it is another's by now, who may stay
		case !fault.KindOf(err).Retryable() || ctx.Err() != nil:
			return refused, err
		}
		again := time.NewTimer(retryAfter)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}
