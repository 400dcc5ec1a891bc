package group

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

var seedFlag = flag.Uint64("seed", 0, "play only this seed of the model test")

// steps of one seed before it becomes quiet.
const steps = 150

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
		m.play(steps)
		m.quiet()
		all.add(m.tally)
	}
	t.Logf("%+v", all)
	if *seedFlag == 0 && (all.accepted == 0 || all.refused == 0 || all.fenced == 0 || all.rejoined == 0 || all.redeemed == 0 || all.loads == 0 || all.lost == 0 || all.cut == 0) {
		t.Error("something never happened, and so was not tested")
	}
}

// tally counts what happened, so that a model that tests nothing is noticed.
type tally struct{ calls, accepted, refused, fenced, rejoined, redeemed, loads, lost, cut int }

func (a *tally) add(b tally) {
	a.calls += b.calls
	a.accepted += b.accepted
	a.refused += b.refused
	a.fenced += b.fenced
	a.rejoined += b.rejoined
	a.redeemed += b.redeemed
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
	committed map[topic.Ref]topic.Offset     // as the group had it after the call before
	granted   map[topic.Ref]topic.GroupEpoch // the newest assignment that somebody was told
	last      *aim                           // as it was after the call before; nil: not to be compared with
	tracing   bool
	trace     []string
}

// log is what has become of a partition's records.
type log struct {
	processed []bool // by offset: some process has done what is to be done with the record
	excused   []bool // nobody need: a seek or the start policy passed it over
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

// failf ends the test. It plays the seed once more to tell what came before, which costs too much otherwise.
func (m *model) failf(format string, args ...any) {
	m.t.Helper()
	if !m.tracing {
		again := newModel(m.t, m.seed)
		again.tracing = true
		again.play(steps)
		again.quiet()
		m.t.Errorf("the seed went well the second time; the rules, or the model, look at more than they say")
	}
	const most = 40
	from := max(0, len(m.trace)-most)
	for _, line := range m.trace[from:] {
		m.t.Log(line)
	}
	m.t.Fatalf("seed %d: %s\n%s", m.seed, fmt.Sprintf(format, args...), dump(m.group))
}

func (m *model) notef(format string, args ...any) {
	if !m.tracing {
		return
	}
	m.trace = append(m.trace, fmt.Sprintf("%6s ", m.now.Sub(time.UnixMilli(1_000_000)))+fmt.Sprintf(format, args...))
}

func (m *model) play(steps int) {
	for range steps {
		m.step()
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
	m.group = m.replay()
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
		m.group = m.replay()
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
	if !m.calm && m.rng.IntN(8) == 0 {
		m.same()
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
	m.same()
	m.probe()
}
