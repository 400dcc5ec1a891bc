package group

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlog/weir/topic"
)

// process is a client: it reads what it is assigned from what is committed, does its work, and commits.
type process struct {
	number  int
	name    topic.MemberName
	kind    topic.MemberKind
	sub     topic.Subscription
	start   topic.GroupStart
	epoch   topic.GroupEpoch
	parts   map[topic.Ref]*reading
	dead    bool
	paused  time.Time // it does nothing before
	without bool      // its commits name no assignment, only the member's epoch

	// What the model knows, so as to say which of its commits have to count.
	called  time.Time // its session is no older
	learned time.Time // the answer that it knows is no older; zero: its commits may count or not
}

type reading struct {
	next, done topic.Offset // read up to, and worked off up to
	assigned   topic.GroupEpoch
	leaving    bool
	moved      bool // by a seek that it has not learned of: nothing of it may count
}

// arrive starts a process, by a name of its own or by one that another has.
func (m *model) arrive() {
	p := &process{
		number: m.made, kind: topic.MemberKind(m.rng.IntN(2)), parts: map[topic.Ref]*reading{}, without: m.rng.IntN(4) == 0,
		name: topic.MemberName(fmt.Sprintf("m%d", m.rng.IntN(6))),
	}
	p.start.Kind = topic.AtKind(m.rng.IntN(8) / 7)
	m.made++
	p.sub = m.subscription()
	m.processes = append(m.processes, p)
	m.call(p, true)
}

func (m *model) subscription() topic.Subscription {
	switch m.rng.IntN(6) {
	case 0:
		return topic.Subscription{Prefix: "a"}
	case 1:
		return topic.Subscription{Pattern: "[ab]"}
	case 2:
		return topic.Subscription{Topics: []topic.Name{"a"}}
	case 3:
		return topic.Subscription{Topics: []topic.Name{"b", "c"}}
	default:
		return topic.Subscription{Topics: []topic.Name{"a", "b"}}
	}
}

func (m *model) living() []*process {
	var some []*process
	for _, p := range m.processes {
		if !p.dead && !m.now.Before(p.paused) {
			some = append(some, p)
		}
	}
	return some
}

// act lets one process do something.
func (m *model) act() {
	some := m.living()
	if len(some) == 0 {
		return
	}
	p := some[m.rng.IntN(len(some))]
	switch n := m.rng.IntN(40); {
	case n < 22:
		m.work(p)
		m.call(p, true)
	case n < 28:
		m.work(p)
		m.call(p, false)
	case n < 30:
		m.notef("%d %s vanishes", p.number, p.name)
		p.dead = true
		m.disconnect(p)
	case n < 32:
		p.paused = m.now.Add(time.Duration(m.rng.IntN(400)) * time.Second)
		m.notef("%d %s pauses until %s", p.number, p.name, p.paused.Sub(time.UnixMilli(1_000_000)))
		m.disconnect(p)
	case n < 34:
		m.leave(p)
	case n < 35:
		p.sub = m.subscription()
		m.call(p, true)
	case n < 36:
		p.epoch, p.parts, p.learned = topic.NoGroupEpoch, map[topic.Ref]*reading{}, time.Time{} // started anew by its name
		m.call(p, true)
	default:
		m.group.Alive(p.name, p.epoch, m.now)
	}
}

// disconnect tells of a connection that was closed, or a poll that was given up; sometimes nobody notices.
func (m *model) disconnect(p *process) {
	p.learned = time.Time{}
	if m.rng.IntN(2) == 0 {
		m.group.Disconnect(p.name, p.epoch, m.now)
	}
	m.group.EndPoll(p.name, false, m.now)
}

// work reads some, and does some of what was read.
func (m *model) work(p *process) {
	for _, ref := range slices.SortedFunc(maps.Keys(p.parts), compareRef) {
		r, l := p.parts[ref], m.log[ref]
		if _, _, ok := m.world.TopicByID(ref.ID); !ok || l == nil {
			continue
		}
		if !r.leaving {
			r.next = min(r.next+topic.Offset(m.rng.IntN(6)), topic.Offset(len(l.processed)))
		}
		for stop := r.done + topic.Offset(m.rng.IntN(6)); r.done < min(stop, r.next); r.done++ {
			l.processed[r.done] = true
		}
	}
}

// commits is what a process has worked off.
func (p *process) commits() []topic.GroupCommit {
	var all []topic.GroupCommit
	for _, ref := range slices.SortedFunc(maps.Keys(p.parts), compareRef) {
		c := topic.GroupCommit{Ref: ref, Next: p.parts[ref].done, LastEpoch: topic.NoEpoch, Assigned: p.parts[ref].assigned}
		if p.without {
			c.Assigned = topic.NoGroupEpoch
		}
		all = append(all, c)
	}
	return all
}

// call polls or commits.
func (m *model) call(p *process, poll bool) {
	m.tally.calls++
	if p.epoch == topic.NoGroupEpoch && !poll {
		return
	}
	q := &topic.GroupPoll{
		Group: "billing", Member: p.name, Kind: p.kind, Node: 1, Epoch: p.epoch, Heartbeat: !poll, Start: p.start, Ack: p.commits(),
	}
	if m.rng.IntN(20) == 0 {
		for i := range q.Ack {
			q.Ack[i].Next = topic.Offset(m.rng.Int64N(int64(q.Ack[i].Next) + 1)) // an old one, sent again
		}
	}
	if poll {
		q.Subscription = &p.sub
	}
	starts := map[topic.Ref]topic.Offset{}
	start, refs := m.group.Unstarted(q, m.world)
	for _, ref := range refs {
		if start.Kind != topic.AtLatest {
			m.failf("starts are asked for with %v", start)
		}
		starts[ref] = topic.Offset(len(m.logOf(ref).processed))
	}
	known := m.group.HasMember(p.name)
	targets := m.targets()
	same := known && (!poll || m.group.members[p.name].interest.is(&p.sub))
	turn, records, err := m.group.Poll(q, starts, m.world, m.now)
	m.notef("%d %s poll=%t epoch %d acks %v: epoch %d %v waits %v refused %v, %v", p.number, p.name, poll, p.epoch, q.Ack, turn.Epoch, turn.Assignment, turn.Waiting, turn.NotCommitted, err)
	if err != nil {
		m.refusedCall(p, err)
		return
	}
	if !known && p.epoch != topic.NoGroupEpoch {
		m.tally.rejoined++
	}
	if p.epoch == topic.NoGroupEpoch || !known {
		m.took(p)
	}
	if !known {
		m.redeemed(q, &turn)
	}
	m.acks(p, q, &turn, starts)
	m.keeps(p, &turn)
	p.called = m.now
	if same && !m.stale && !maps.Equal(targets, m.targets()) {
		m.failf("a call that changes nothing changes who is to read what")
	}
	if !m.after(records) {
		return // nobody will hear of it
	}
	for _, a := range turn.Assignment {
		m.granted[a.Ref] = max(m.granted[a.Ref], a.Assigned)
	}
	if m.rng.IntN(10) == 0 {
		m.tally.lost++
		p.learned = time.Time{}
		return // the answer is lost
	}
	p.learn(&turn)
	p.learned = m.now
	if poll && m.rng.IntN(3) > 0 {
		m.group.EndPoll(p.name, true, m.now)
	}
}

// redeemed checks the commits that count of somebody whose session had ended: nobody has got the partition
// since the assignment in which it was read.
func (m *model) redeemed(q *topic.GroupPoll, turn *topic.GroupTurn) {
	for _, c := range q.Ack {
		if slices.ContainsFunc(turn.NotCommitted, func(n topic.NotCommitted) bool { return n.Ref == c.Ref }) {
			continue
		}
		m.tally.redeemed++
		if c.Assigned == topic.NoGroupEpoch || c.Assigned != m.granted[c.Ref] || q.Kind != topic.PollingMember {
			m.failf("a commit in %v counts of somebody who was no member, of assignment %d, the last one was %d", c.Ref, c.Assigned, m.granted[c.Ref])
		}
	}
}

// learn takes in an answer. What is no longer read is dropped where it is not worked off.
func (p *process) learn(turn *topic.GroupTurn) {
	p.epoch = turn.Epoch
	parts := map[topic.Ref]*reading{}
	for _, a := range turn.Assignment {
		r := p.parts[a.Ref]
		if r == nil || r.assigned != a.Assigned {
			at := max(a.Committed, 0)
			r = &reading{next: at, done: at, assigned: a.Assigned}
		}
		if r.leaving = a.Leaving; r.leaving {
			r.next = r.done
		}
		parts[a.Ref] = r
	}
	p.parts = parts
}

func (m *model) leave(p *process) {
	acks := p.commits()
	refused, records, err := m.group.Leave(p.name, p.epoch, acks, m.world, m.now)
	m.notef("%d %s leaves with epoch %d: %v", p.number, p.name, p.epoch, err)
	p.dead = true
	if err != nil {
		return
	}
	m.acks(p, &topic.GroupPoll{Ack: acks}, &topic.GroupTurn{NotCommitted: refused}, nil)
	m.took(p)
	m.after(records)
}

// arriveSurely has somebody read everything at the end.
func (m *model) arriveSurely() {
	p := &process{number: m.made, name: "last", parts: map[topic.Ref]*reading{}, sub: topic.Subscription{Pattern: ".*"}}
	if m.group.Size() >= m.cfg.MaxMembers {
		return
	}
	m.made++
	m.processes = append(m.processes, p)
	m.call(p, true)
}

// round lets everybody who lives read, work and commit.
func (m *model) round() {
	for _, p := range m.processes {
		if !p.dead {
			m.work(p)
			m.call(p, true)
		}
	}
}
