package group

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

var seedFlag = flag.Uint64("seed", 0, "play only this seed of the model test")

// TestModel lets processes join, read, commit, pause, vanish, come back and take each other over, while
// topics come and go and coordinators fail, and checks after each call what the package doc promises.
func TestModel(t *testing.T) {
	seeds := uint64(500)
	if soak() {
		seeds = 10_000
	}
	var all tally
	for seed := uint64(1); seed <= seeds; seed++ {
		if *seedFlag != 0 && seed != *seedFlag {
			continue
		}
		m := newModel(t, seed)
		m.play(150)
		m.quiet()
		all.add(m.tally)
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", all)
	if *seedFlag == 0 && (all.accepted == 0 || all.refused == 0 || all.fenced == 0 || all.rejoined == 0 || all.loads == 0 || all.lost == 0 || all.cut == 0) {
		t.Error("something never happened, and so was not tested")
	}
}

// tally counts what happened, so that a model that tests nothing is noticed.
type tally struct{ calls, accepted, refused, fenced, rejoined, loads, lost, cut int }

func (a *tally) add(b tally) {
	a.calls += b.calls
	a.accepted += b.accepted
	a.refused += b.refused
	a.fenced += b.fenced
	a.rejoined += b.rejoined
	a.loads += b.loads
	a.lost += b.lost
	a.cut += b.cut
}

type model struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	world *world
	stale bool // the world has changed, and the group was not told
	calm  bool // nothing fails any more
	cfg   Config
	group *Group
	kept  kept
	now   time.Time
	tally tally

	processes []*process
	made      int
	log       map[topic.Ref]*log
	committed map[topic.Ref]topic.Offset // as the group had it after the call before
	granted   map[topic.Ref]topic.GroupEpoch // the newest assignment that somebody was told
	last      *aim                       // as it was after the call before; nil: not to be compared with
	trace     []string
}

// aim is who is to read what.
type aim struct {
	by      topic.Assignor
	targets map[topic.Ref]topic.MemberName
}

// log is what has become of a partition's records.
type log struct {
	processed []bool // by offset: some process has done what is to be done with the record
	excused   []bool // nobody need: a seek or the start policy passed it over
}

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

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), world: newWorld(), cfg: testConfig(), now: time.UnixMilli(1_000_000),
		log: map[topic.Ref]*log{}, committed: map[topic.Ref]topic.Offset{}, granted: map[topic.Ref]topic.GroupEpoch{},
	}
	if seed%3 == 0 {
		m.cfg.OffsetsRetention = 10 * time.Minute
	}
	m.cfg.MaxMembers = 8
	if seed%5 == 0 {
		m.cfg.Settings.Assignor = []topic.Assignor{topic.UniformAssignor, topic.RangeAssignor}[m.rng.IntN(2)]
	}
	m.group = New("billing", m.cfg)
	for _, name := range []topic.Name{"a", "b"} {
		m.world.make(name, 1+m.rng.IntN(5))
	}
	return m
}

const traceLines = 40

func (m *model) failf(format string, args ...any) {
	m.t.Helper()
	from := max(0, len(m.trace)-traceLines)
	for _, line := range m.trace[from:] {
		m.t.Log(line)
	}
	m.t.Fatalf("seed %d: %s\n%s", m.seed, fmt.Sprintf(format, args...), dump(m.group))
}

func (m *model) notef(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%6s ", m.now.Sub(time.UnixMilli(1_000_000)))+fmt.Sprintf(format, args...))
}

func (m *model) play(steps int) {
	for range steps {
		m.step()
		if m.t.Failed() {
			return
		}
	}
}

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 8:
		m.arrive()
	case n < 60:
		m.act()
	case n < 70:
		m.append()
	case n < 82:
		m.pass(time.Duration(m.rng.IntN(90)) * time.Second)
	case n < 84:
		m.pass(time.Duration(m.rng.IntN(400)) * time.Second)
	case n < 89:
		m.topics()
	case n < 92:
		m.seek()
	case n < 93:
		m.alter()
		m.delete()
	case n < 96:
		m.load()
	case n < 99:
		m.unstale()
	default:
		m.probe()
	}
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
	if !known && len(turn.NotCommitted) != len(q.Ack) {
		m.failf("commits of somebody who was no member count")
	}
	m.acks(p, q, &turn, starts)
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

// took says that a process has the name now: others that had it have lost it.
func (m *model) took(p *process) {
	for _, other := range m.processes {
		if other.name == p.name {
			other.learned = time.Time{}
		}
	}
}

// stands says that a process has its place for sure, and knows it: its commits have to count.
func (m *model) stands(p *process) bool {
	session := m.group.settings.MaxPollInterval
	if p.kind == topic.ConnectedMember {
		session = m.group.settings.Session
	}
	return !p.learned.IsZero() && m.now.Sub(p.called) < session && m.now.Sub(p.learned) < session
}

func (m *model) refusedCall(p *process, err error) {
	switch fault.KindOf(err) {
	case fault.FencedMember:
		m.tally.fenced++
		p.dead = true
	case fault.NoMember:
		if m.group.HasMember(p.name) {
			m.failf("%s is a member: %v", p.name, err)
		}
	case fault.Limit:
		p.dead = true
	case fault.Validation:
		// Its group may have begun anew and given its name to another process, which it would take over.
		if m.group.members[p.name].epoch >= p.epoch {
			m.failf("%v", err)
		}
		p.dead = true
	default:
		m.failf("%v", err)
	}
}

// acks checks what a call has committed: what counted was worked off, and is where the caller put it.
func (m *model) acks(p *process, q *topic.GroupPoll, turn *topic.GroupTurn, starts map[topic.Ref]topic.Offset) {
	refused := map[topic.Ref]topic.NotCommittedReason{}
	for _, n := range turn.NotCommitted {
		refused[n.Ref] = n.Reason
	}
	m.tally.refused += len(refused)
	for _, c := range q.Ack {
		r := p.parts[c.Ref]
		before, had := m.committed[c.Ref]
		if why, not := refused[c.Ref]; not {
			if m.stands(p) && !r.leaving && !r.moved && why != topic.TopicGone && !(why == topic.BehindFirst && c.Next < before) {
				m.failf("%v:%d of %d has to count, and does not: %s", c.Ref, c.Next, p.number, why)
			}
			continue
		}
		m.tally.accepted++
		if r.moved {
			m.failf("a commit from before a seek counts: %v:%d of %d", c.Ref, c.Next, p.number)
		}
		if newest := m.granted[c.Ref]; r.assigned < newest {
			m.failf("%v:%d of %d counts, made in assignment %d, and the newest one is %d", c.Ref, c.Next, p.number, r.assigned, newest)
		}
		if had && c.Next < before {
			m.failf("a commit goes from %d to %d", before, c.Next)
		}
		if !had {
			before = 0
		}
		for offset := before; offset < c.Next; offset++ {
			if !m.log[c.Ref].processed[offset] && !m.log[c.Ref].excused[offset] {
				m.failf("%v: offset %d is committed by %d and nobody has done it", c.Ref, offset, p.number)
			}
		}
		m.committed[c.Ref] = c.Next
	}
	for ref, offset := range starts {
		if part := m.group.part(ref); part != nil && part.committed == offset && part.by == topic.NoGroupEpoch {
			m.excuse(ref, 0, offset)
			m.committed[ref] = offset
		}
	}
}

func (m *model) excuse(ref topic.Ref, from, to topic.Offset) {
	for offset := from; offset < to; offset++ {
		m.logOf(ref).excused[offset] = true
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

func (m *model) logOf(ref topic.Ref) *log {
	l := m.log[ref]
	if l == nil {
		l = &log{}
		m.log[ref] = l
	}
	return l
}

func (m *model) each(f func(topic.Name, topic.Ref)) {
	m.world.Topics(func(name topic.Name, id topic.ID, partitions int) bool {
		for n := range topic.Partition(partitions) {
			f(name, topic.Ref{ID: id, Partition: n})
		}
		return true
	})
}

func (m *model) append() {
	m.each(func(_ topic.Name, ref topic.Ref) {
		l := m.logOf(ref)
		n := m.rng.IntN(4)
		l.processed = append(l.processed, make([]bool, n)...)
		l.excused = append(l.excused, make([]bool, n)...)
		if m.rng.IntN(3) > 0 {
			m.world.ends[ref] = topic.Offset(len(l.processed))
		} else {
			delete(m.world.ends, ref)
		}
	})
}

func (m *model) topics() {
	name := []topic.Name{"a", "b", "c", "aa"}[m.rng.IntN(4)]
	have := m.world.topics[name]
	switch n := m.rng.IntN(4); {
	case have == nil:
		m.world.make(name, 1+m.rng.IntN(5))
	case n == 0:
		delete(m.world.topics, name)
	case n == 1:
		m.world.make(name, 1+m.rng.IntN(5))
	default:
		have.partitions += 1 + m.rng.IntN(2)
	}
	m.notef("topics: %s is %v", name, m.world.topics[name])
	m.stale = true
	if m.rng.IntN(2) == 0 {
		m.unstale()
	}
}

func (m *model) unstale() {
	if m.stale {
		records := m.group.TopicsChanged(m.world, m.now)
		m.notef("topics changed")
		m.stale = false
		m.after(records)
	}
}

func (m *model) seek() {
	var to []Position
	m.each(func(_ topic.Name, ref topic.Ref) {
		if m.rng.IntN(4) == 0 {
			to = append(to, Position{Ref: ref, Offset: topic.Offset(m.rng.IntN(len(m.logOf(ref).processed) + 1)), LastEpoch: topic.NoEpoch})
		}
	})
	if len(to) == 0 || !m.group.Exists() && m.rng.IntN(4) > 0 {
		return
	}
	records, err := m.group.Seek(to, m.world, m.now)
	m.notef("seek %v: %v", to, err)
	if err != nil {
		m.failf("%v", err)
	}
	for _, s := range to {
		before := max(m.committed[s.Ref], 0)
		m.excuse(s.Ref, before, s.Offset)
		m.committed[s.Ref] = s.Offset
		for _, p := range m.processes {
			if r := p.parts[s.Ref]; r != nil {
				r.moved = true
			}
		}
	}
	m.after(records)
}

func (m *model) alter() {
	value := []string{"sticky", "uniform", "range"}[m.rng.IntN(3)]
	records, err := m.group.Alter(map[string]*string{"assignor": &value}, m.now)
	if err != nil && !fault.Is(err, fault.NoGroup) {
		m.failf("%v", err)
	}
	m.notef("assignor %s", value)
	m.after(records)
}

// delete deletes the group, where nobody is in it.
func (m *model) delete() {
	if m.group.Size() > 0 || !m.group.Exists() {
		return
	}
	records, err := m.group.Delete(m.now)
	if err != nil {
		m.failf("%v", err)
	}
	m.notef("delete")
	m.committed = map[topic.Ref]topic.Offset{}
	m.after(records)
}

// load puts another coordinator in the place of the one there was.
func (m *model) load() {
	m.tally.loads++
	if m.group.leaving > 0 {
		// Nobody knows any more who was told that a partition is taken away, and so it may come back as another
		// assignment.
		for _, p := range m.processes {
			p.learned = time.Time{}
		}
	}
	m.group = m.kept.replay(m.t, "billing", m.cfg)
	records := m.group.Loaded(m.world, m.now)
	m.notef("loaded")
	m.last = nil
	m.stale = false
	m.after(records)
}

// pass lets time go by.
func (m *model) pass(d time.Duration) {
	until := m.now.Add(d)
	for {
		at, ok := m.group.NextExpiry()
		if !ok || at.After(until) {
			break
		}
		m.now = later(at, m.now)
		leaving, size := m.group.leaving, m.group.Size()
		records := m.group.Expire(m.now)
		m.notef("expire: %d members of %d", m.group.Size(), size)
		if m.group.leaving < leaving && m.group.Size() == size {
			m.tally.cut++
		}
		if at, ok := m.group.NextExpiry(); ok && !at.After(m.now) {
			m.failf("something ends at %s, and it has not ended", at)
		}
		if !m.group.Exists() {
			m.committed = map[topic.Ref]topic.Offset{}
		}
		if m.group.Gone() {
			m.granted = map[topic.Ref]topic.GroupEpoch{}
			m.group, m.kept = New("billing", m.cfg), kept{} // its coordinator forgets it
			m.last = nil
			break
		}
		m.after(records)
	}
	m.now = until
}

// after keeps the records of a call and checks the group. Sometimes they cannot be written: the group is
// loaded from what is, and it says false.
func (m *model) after(records []Record) bool {
	m.check()
	if len(records) > 0 && !m.calm && m.rng.IntN(60) == 0 {
		written := m.rng.IntN(2) == 0 // nobody knows
		if written {
			m.kept.add(records)
		}
		m.notef("nobody knows whether the records are written; they are: %t", written)
		m.group = m.kept.replay(m.t, "billing", m.cfg)
		m.kept.add(m.group.Loaded(m.world, m.now))
		m.stale, m.last = false, nil
		for _, p := range m.processes {
			p.learned = time.Time{}
			for _, r := range p.parts {
				r.moved = false
			}
		}
		m.resync()
		m.check()
		return false
	}
	m.kept.add(records)
	if m.rng.IntN(4) == 0 {
		sameAfterReplay(m.t, m.group, &m.kept)
	}
	for ref, offset := range m.committed {
		if _, _, ok := m.world.TopicByID(ref.ID); !ok {
			continue
		}
		if p := m.group.part(ref); p == nil || p.committed != offset {
			m.failf("%v is moved from %d by nobody", ref, offset)
		}
	}
	return true
}

// resync takes over what is committed after a call whose outcome was unknown.
func (m *model) resync() {
	m.committed = map[topic.Ref]topic.Offset{}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.committed != topic.NoOffset {
				m.committed[p.ref()] = p.committed
			}
		}
	}
}

func (m *model) targets() map[topic.Ref]topic.MemberName {
	all := map[topic.Ref]topic.MemberName{}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.target != nil {
				all[p.ref()] = p.target.name
			}
		}
	}
	return all
}

// check finds where the group breaks a promise.
func (m *model) check() {
	checkGroup(m.t, m.group)
	if m.t.Failed() {
		m.failf("see above")
	}
	load := map[*member]int{}
	for _, it := range m.group.interests {
		for _, x := range it.topics {
			for _, p := range x.parts {
				if p.target == nil || !slices.Contains(p.target.interest.topics, x) {
					m.failf("%s is for nobody who reads it", p.path())
				}
			}
		}
	}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			if p.target != nil {
				load[p.target]++
			}
		}
	}
	now := &aim{by: m.group.settings.Assignor, targets: m.targets()}
	last := m.last
	if m.last = now; now.by == topic.RangeAssignor {
		return
	}
	for _, x := range m.group.topics {
		for _, p := range x.parts {
			// A partition that has moved, and could go back without harm, need not have moved.
			if last != nil && last.by == topic.StickyAssignor && now.by == topic.StickyAssignor && p.target != nil {
				from := m.group.members[last.targets[p.ref()]]
				if from != nil && from != p.target && slices.Contains(from.interest.topics, x) && load[from] < load[p.target] {
					m.failf("%s moved from %s, who has %d, to %s, who has %d", p.path(), from.name, load[from], p.target.name, load[p.target])
				}
			}
			for _, other := range m.group.byName {
				if p.target != nil && slices.Contains(other.interest.topics, x) && load[p.target] > load[other]+1 {
					m.failf("%s has %d partitions and %s only %d", p.target.name, load[p.target], other.name, load[other])
				}
			}
		}
	}
}

// probe asks, on a copy, whose commits would count. Of each partition that is one process at most.
func (m *model) probe() {
	owner := map[topic.Ref]int{}
	for _, p := range m.processes {
		for ref, r := range p.parts {
			if _, _, ok := m.world.TopicByID(ref.ID); !ok {
				continue
			}
			copied := m.kept.replay(m.t, "billing", m.cfg)
			copied.Loaded(m.world, m.now)
			c := topic.GroupCommit{Ref: ref, Next: 1 << 40, LastEpoch: topic.NoEpoch, Assigned: r.assigned}
			if p.without {
				c.Assigned = topic.NoGroupEpoch
			}
			q := &topic.GroupPoll{Member: p.name, Epoch: p.epoch, Heartbeat: true, Ack: []topic.GroupCommit{c}}
			blind := *m.world
			blind.ends = nil
			turn, _, err := copied.Poll(q, nil, &blind, m.now)
			if err != nil || len(turn.NotCommitted) > 0 {
				continue
			}
			if other, taken := owner[ref]; taken {
				m.failf("commits in %v count from %d and from %d", ref, other, p.number)
			}
			owner[ref] = p.number
		}
	}
}

// quiet ends the trouble: who is alive polls on. Within two sessions every member has what it is to have;
// after that everything is read.
func (m *model) quiet() {
	m.notef("quiet")
	m.calm = true
	m.unstale()
	for _, p := range m.processes {
		p.paused = time.Time{}
	}
	m.arriveSurely()
	settings := m.group.settings
	session := max(settings.Session, settings.MaxPollInterval)
	end := m.now.Add(2 * session)
	steady := ""
	for m.now.Before(end) {
		m.round()
		m.pass(20 * time.Second)
	}
	if m.group.State() != topic.GroupStable {
		m.failf("the group is %s after two sessions", m.group.State())
	}
	for range 10 {
		m.round()
		if now := fmt.Sprint(m.group.epoch, m.targets()); steady == "" {
			steady = now
		} else if steady != now {
			m.failf("the group still changes: %s, and now %s", steady, now)
		}
		m.pass(10 * time.Second)
	}
	for range 100 {
		if m.lag() == 0 {
			break
		}
		m.round()
	}
	if lag := m.lag(); lag > 0 {
		m.failf("%d records are not read", lag)
	}
	m.each(func(name topic.Name, ref topic.Ref) {
		if !m.group.reads(name) {
			return
		}
		for offset, done := range m.logOf(ref).processed {
			if !done && !m.log[ref].excused[offset] {
				m.failf("%s/%d: nobody has done offset %d", name, ref.Partition, offset)
			}
		}
	})
	sameAfterReplay(m.t, m.group, &m.kept)
	m.probe()
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

// lag is the number of records that somebody reads and nobody has committed.
func (m *model) lag() int {
	lag := 0
	m.each(func(name topic.Name, ref topic.Ref) {
		if m.group.reads(name) {
			lag += len(m.logOf(ref).processed) - int(max(m.committed[ref], 0))
		}
	})
	return lag
}
