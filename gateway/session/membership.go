package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Groups is what the members of groups that are connected here need of the node. A PollGroup may take as
// long as the commit of what it changes; the other two that return nothing do not wait.
type Groups interface {
	PollGroup(context.Context, *topic.GroupPoll) (topic.GroupTurn, error)
	EndTurn(g topic.GroupName, m topic.MemberName, turn uint64, alive bool)
	LeaveGroup(context.Context, topic.GroupName, topic.MemberName, topic.GroupEpoch, []topic.GroupCommit) ([]topic.NotCommitted, error)
	DisconnectMember(topic.GroupName, topic.MemberName, topic.GroupEpoch)
}

// Join says which member of which group a connection becomes, and what it reads.
type Join struct {
	Group        topic.GroupName
	Member       topic.MemberName // topic.MadeMember has the node make a name
	Subscription topic.Subscription
	Start        topic.GroupStart
	// Auto commits what the socket has taken. Otherwise the client acknowledges.
	Auto   bool
	Format Format
}

// Membership is one member of a group, whose client is connected here. All calls to the node are made by a
// goroutine of its own, one at a time: they wait for the group's log, and the session's goroutine does not.
// What is to be committed meanwhile is kept as one offset a partition, the newest.
//
// A partition that the group takes away is given up once nothing that was sent of it is unacknowledged:
// until then every call names an epoch from before, since an epoch that is named gives up what was taken
// away up to it.
type Membership struct {
	hub  *Hub
	auto bool
	join topic.GroupPoll // the call that joins, and joins again
	kick chan struct{}   // room for one; wakes the goroutine
	ring func()          // wakes the session
	runs bool            // the goroutine was started

	// Of the goroutine alone.
	changed  <-chan struct{} // the node has news
	number   uint64          // of the turn at the node; 0: none
	joined   bool
	rejoin   topic.GroupEpoch // named by every try to poll anew, so that a repeated one is known for the same
	patience time.Time        // until then a join that fails is tried again
	pause    time.Time        // until then nothing is called, after trouble
	paced    time.Time        // until then nothing is committed that the client did not ask for

	news atomic.Bool // of what follows something is for the session

	mu sync.Mutex // guards what follows
	// For the node.
	stale    bool      // what the node was last asked is out of date
	beat     bool      // there was a sign of life
	heard    time.Time // and when
	giveUp   bool      // something is to be given up now
	asleep   bool      // it is no member, and joins again with the next sign of life
	acks     map[topic.Ref]topic.GroupCommit
	replies  [][]byte // ids of frames that are answered when all of acks is committed
	parting  parting
	partedBy []byte // the id of the frame that asked for parting
	// From the node.
	epoch   topic.GroupEpoch
	session time.Duration
	held    map[topic.Ref]*holding
	losing  bool                 // some of held is leaving
	turn    *topic.GroupTurn     // not yet taken by the session
	refused []topic.NotCommitted // not yet taken; while there are any, nothing more is committed
	done    [][]byte             // ids of frames that were done, not yet taken
	err     error                // why the member is none any more
	over    bool                 // the goroutine has ended
}

// holding is a partition that the member has.
type holding struct {
	topic    topic.Name
	assigned topic.GroupEpoch
	leaving  bool             // was taken away
	given    bool             // and is given up, as soon as the node hears of it
	before   topic.GroupEpoch // the last epoch in which it was not leaving
}

// parting is how a membership ends.
type parting int8

const (
	staying    parting = iota
	leaving            // for good: others get its partitions at once
	disconnect         // the connection is gone: it may come back
)

const (
	groupCall      = 5 * time.Second        // the longest that one call may take
	joinWait       = 10 * time.Second       // how long a join waits for a coordinator
	leaveWait      = 3 * time.Second        // how long what is left to say may take once nobody waits for it
	autoAckEvery   = 100 * time.Millisecond // between two commits that no client has asked for
	signsOfLife    = 3                      // in one session
	mostReplies    = 256                    // acks with an id that wait for their commit
	leastHeartbeat = 100 * time.Millisecond
)

func (h *Hub) newMembership(j *Join, madeFrom string) (*Membership, error) {
	if h.groups == nil {
		return nil, fault.Newf("session.Join", fault.BadRequest, nil, "this node has no consumer groups")
	}
	m := &Membership{
		hub: h, auto: j.Auto, kick: make(chan struct{}, 1), ring: func() {},
		join: topic.GroupPoll{
			Group: j.Group, Member: j.Member, Kind: topic.ConnectedMember, Principal: topic.Anonymous, Node: h.nodeID,
			Subscription: &j.Subscription, Start: j.Start, MadeFrom: madeFrom,
		},
	}
	return m, nil
}

// Join has a client become a member, and returns a reader of what it is assigned. Give both to a [Stream]:
// the membership goes on there. The error is that of a request.
func (h *Hub) Join(ctx context.Context, j Join) (*Membership, *Reader, error) {
	m, err := h.newMembership(&j, nuid.Next()) // tried again it is the same join
	if err != nil {
		return nil, nil, err
	}
	m.patience = time.Now().Add(joinWait)
	for !m.joined {
		if wait := time.Until(m.pause); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		if err := m.call(m.next(time.Now())); err != nil {
			return nil, nil, err
		}
	}
	return m, h.OpenGroup(GroupSpec{Group: j.Group, Format: j.Format}), nil
}

// serve starts the goroutine for the session of a stream.
func (m *Membership) serve(s *session) {
	m.ring, m.runs = s.ring, true
	s.socket.moved = m.alive
	m.hub.beside(s, m.run)
}

// close parts with the end of the stream.
func (m *Membership) close() {
	if m.runs {
		m.goodbye(disconnect, nil)
	} else {
		m.part(groupJob{part: disconnect})
	}
}

// What follows is for the session's goroutine, but for alive.

// wake has the goroutine look for something to do.
func (m *Membership) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// alive says that the client has shown a sign of life.
func (m *Membership) alive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.asleep || now.Sub(m.heard) >= leastHeartbeat {
		m.heard, m.beat = now, true
		m.wake()
	}
}

// goodbye has the member part. A second call changes nothing.
func (m *Membership) goodbye(how parting, id []byte) {
	m.mu.Lock()
	if m.parting == staying {
		m.parting, m.partedBy = how, id
	}
	m.mu.Unlock()
	m.wake()
}

// groupNews is what has happened since the session last looked.
type groupNews struct {
	turn    *topic.GroupTurn // nil: as before
	refused []topic.NotCommitted
	done    [][]byte // ids of frames to be answered
	err     error    // the member is none any more
	over    bool     // nothing more will come
	failed  [][]byte // with err: ids of frames that were not done
	asleep  bool     // the client is to show that it lives
	parted  bool     // it was asked to part
	id      []byte   // by this frame
}

// take takes the news.
func (m *Membership) take() groupNews {
	m.news.Store(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := groupNews{turn: m.turn, refused: m.refused, done: m.done, err: m.err, over: m.over, asleep: m.asleep, parted: m.parting != staying, id: m.partedBy}
	if m.turn, m.done = nil, nil; m.refused != nil {
		m.refused = nil
		m.wake()
	}
	if m.err != nil {
		n.failed, m.replies = m.replies, nil
	}
	return n
}

// ack commits what a client has acknowledged, or what its socket has taken. It returns what does not count
// for what is known here: that of partitions that the member does not hold as the cursor says.
func (m *Membership) ack(r *Reader, commits []topic.GroupCommit, id []byte) ([]topic.NotCommitted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id != nil && len(m.replies) >= mostReplies {
		return nil, fault.Newf("session.Ack", fault.Overloaded, nil, "%d acks wait to be committed", len(m.replies))
	}
	var refused []topic.NotCommitted
	for i := range commits {
		c := &commits[i]
		h := m.held[c.Ref]
		if h == nil || h.assigned != c.Assigned {
			refused = append(refused, m.refuse(c, h))
			continue
		}
		r.acked(c)
		if was, there := m.acks[c.Ref]; !there || was.Assigned != c.Assigned || was.Next < c.Next {
			m.put(*c)
		}
	}
	if id != nil {
		m.replies = append(m.replies, id)
	}
	m.settle(r)
	m.wake()
	return refused, nil
}

// refuse says why a commit does not count. mu is held.
func (m *Membership) refuse(c *topic.GroupCommit, h *holding) topic.NotCommitted {
	n := topic.NotCommitted{Ref: c.Ref, Next: c.Next, Reason: topic.NotAssigned}
	if h != nil {
		n.Topic, n.Reason = h.topic, topic.Reassigned
		return n
	}
	switch d, err := m.hub.log.TopicByID(c.Ref.ID); {
	case err == nil:
		n.Topic = d.Name
	case fault.Is(err, fault.NoTopic):
		n.Reason = topic.TopicGone
	}
	return n
}

// settle gives up what was taken away and has nothing unacknowledged. The session sends nothing between the
// news that something was taken away and its retarget, so that what settles meanwhile stays so. mu is held.
func (m *Membership) settle(r *Reader) {
	for ref, h := range m.held {
		if h.leaving && !h.given && !r.unacked(ref, h.assigned) {
			h.given, m.giveUp = true, true
		}
	}
}

// retarget has the reader read what is assigned now, and gives up what can be given up.
func (m *Membership) retarget(r *Reader, turn *topic.GroupTurn) (added, removed []topic.Assignment) {
	added, removed = r.Retarget(turn.Epoch, turn.Assignment, turn.Start)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(r)
	if m.giveUp {
		m.wake()
	}
	return added, removed
}

// appendNews has the reader of a stream read what is assigned now, and appends the lines that say so.
func (m *Membership) appendNews(dst []byte, r *Reader, n *groupNews) []byte {
	if n.turn != nil {
		first := r.group.cursor.Epoch == topic.NoGroupEpoch
		if added, removed := m.retarget(r, n.turn); first || len(added)+len(removed) > 0 {
			dst = append(dst, `{"assignment":{"member":`...)
			dst = problem.AppendString(dst, string(n.turn.Member))
			dst = append(dst, ',')
			dst = appendChange(dst, n.turn.Epoch, added, removed)
			dst = m.appendMissing(dst)
			dst = append(dst, "}}\n"...)
		}
	}
	if len(n.refused) > 0 {
		dst = append(dst, `{"not_committed":`...)
		dst = appendRefused(dst, n.refused)
		dst = append(dst, "}\n"...)
	}
	return dst
}

// took commits everything that the reader has passed, once the socket has taken it, if that is how the
// member acknowledges.
func (m *Membership) took(r *Reader) {
	if !m.auto || len(r.group.cursor.Topics) == 0 {
		return
	}
	refused, _ := m.ack(r, r.group.cursor.Commits(), nil) // fails for acks with an id alone
	if len(refused) == 0 {
		return
	}
	for i := range refused {
		r.group.cursor.Remove(refused[i].Ref)
	}
	m.mu.Lock()
	m.refused = append(m.refused, refused...)
	m.mu.Unlock()
	m.tell()
}

// every is how often a client has to show that it lives, at least.
func (m *Membership) every(most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session <= 0 {
		return most
	}
	return min(most, max(m.session/signsOfLife, leastHeartbeat))
}
