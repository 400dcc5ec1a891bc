package gateway

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// fakeGroups is a coordinator in memory. It moves partitions at once: nobody has to give one up.
type fakeGroups struct {
	node *fakeNode

	mu     sync.Mutex
	groups map[topic.GroupName]*fakeGroup
	turns  uint64
	asked  []topic.GroupPoll // every call of PollGroup
	ended  []bool            // every call of EndTurn: whether the caller was there

	fail  atomic.Pointer[error]                  // what every call answers with
	twist atomic.Pointer[func(*topic.GroupTurn)] // changes what a poll is answered with
}

type fakeGroup struct {
	epoch     topic.GroupEpoch
	start     topic.GroupStart
	members   map[topic.MemberName]*fakeMember
	owners    map[topic.Ref]fakeOwner
	committed map[topic.Ref]topic.GroupCommit
	overrides map[string]string
}

type fakeMember struct {
	epoch, since topic.GroupEpoch
	sub          topic.Subscription
	turn         uint64
	changed      chan struct{}
}

type fakeOwner struct {
	member   topic.MemberName
	assigned topic.GroupEpoch
}

func newFakeGroups(n *fakeNode) *fakeGroups {
	return &fakeGroups{node: n, groups: map[topic.GroupName]*fakeGroup{}}
}

// refuse makes every call answer with a kind of error; nil ends that.
func (f *fakeGroups) refuse(err error) {
	if err == nil {
		f.fail.Store(nil)
		return
	}
	f.fail.Store(&err)
}

func (f *fakeGroups) failing() error {
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fakeGroups) of(name topic.GroupName) *fakeGroup {
	g := f.groups[name]
	if g == nil {
		g = &fakeGroup{
			members: map[topic.MemberName]*fakeMember{}, owners: map[topic.Ref]fakeOwner{}, committed: map[topic.Ref]topic.GroupCommit{},
			overrides: map[string]string{},
		}
		f.groups[name] = g
	}
	return g
}

func (m *fakeMember) ring() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// balance gives every partition to one who subscribes it, in turn.
func (f *fakeGroups) balance(g *fakeGroup) {
	g.epoch++
	names := slices.Sorted(maps.Keys(g.members))
	old := g.owners
	g.owners = map[topic.Ref]fakeOwner{}
	touched := map[topic.MemberName]bool{}
	turn := 0
	for _, d := range f.node.Topics("", 1000) {
		for p := range d.Partitions {
			var able []topic.MemberName
			for _, name := range names {
				if subscribes(&g.members[name].sub, d.Name) {
					able = append(able, name)
				}
			}
			ref := topic.Ref{ID: d.ID, Partition: topic.Partition(p)}
			if len(able) == 0 {
				touched[old[ref].member] = true
				continue
			}
			owner := fakeOwner{able[turn%len(able)], g.epoch}
			turn++
			if was := old[ref]; was.member == owner.member {
				owner = was
			} else {
				touched[was.member], touched[owner.member] = true, true
			}
			g.owners[ref] = owner
		}
	}
	for name := range touched {
		if m := g.members[name]; m != nil {
			m.epoch = g.epoch
			m.ring()
		}
	}
}

func subscribes(s *topic.Subscription, name topic.Name) bool {
	switch {
	case s.Prefix != "":
		return strings.HasPrefix(string(name), s.Prefix)
	case s.Pattern != "":
		return regexp.MustCompile(`\A(?:` + s.Pattern + `)\z`).MatchString(string(name))
	default:
		return slices.Contains(s.Topics, name)
	}
}

func (f *fakeGroups) PollGroup(_ context.Context, p *topic.GroupPoll) (topic.GroupTurn, error) {
	if err := f.failing(); err != nil {
		return topic.GroupTurn{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, *p)
	g := f.of(p.Group)
	name := p.Member
	if name == topic.MadeMember {
		name = topic.MemberName("m-" + p.MadeFrom)
	}
	m := g.members[name]
	switch {
	case p.Epoch > g.epoch:
		return topic.GroupTurn{}, fault.Newf("fake.Poll", fault.Validation, nil, "epoch %d is above the group's", p.Epoch)
	case m == nil && p.Subscription == nil:
		return topic.GroupTurn{}, fault.Newf("fake.Poll", fault.NoMember, name, "group %q has no member %q", p.Group, name)
	case m == nil:
		m = &fakeMember{sub: *p.Subscription}
		g.members[name] = m
		if g.epoch == 0 {
			g.start = p.Start
		}
		f.balance(g)
		m.epoch, m.since = g.epoch, g.epoch
	case p.Epoch == topic.NoGroupEpoch && p.Turn == 0:
		g.epoch++
		m.epoch, m.since = g.epoch, g.epoch
		m.ring()
	case p.Epoch < m.since && p.Turn == 0:
		return topic.GroupTurn{}, fault.Newf("fake.Poll", fault.FencedMember, name, "the name was taken over in epoch %d", m.since)
	}
	turn := topic.GroupTurn{Member: name, Start: g.start, NotCommitted: f.commit(g, name, p)}
	if !p.Heartbeat {
		if p.Turn == 0 {
			f.turns++
			m.ring()
			m.turn = f.turns
		} else if p.Turn != m.turn {
			return topic.GroupTurn{}, fault.Newf("fake.Poll", fault.Superseded, name, "another poll took this one's place")
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		turn.Turn, turn.Changed = m.turn, m.changed
	}
	turn.Epoch, turn.AssignmentChanged = m.epoch, p.Epoch < m.epoch
	turn.Assignment = f.assignment(g, name)
	if twist := f.twist.Load(); twist != nil {
		(*twist)(&turn)
	}
	return turn, nil
}

func (f *fakeGroups) assignment(g *fakeGroup, name topic.MemberName) []topic.Assignment {
	var out []topic.Assignment
	for ref, owner := range g.owners {
		d, err := f.node.TopicByID(ref.ID)
		if owner.member != name || err != nil {
			continue
		}
		a := topic.Assignment{Topic: d.Name, Ref: ref, Assigned: owner.assigned, Committed: topic.NoOffset, LastEpoch: topic.NoEpoch}
		if c, ok := g.committed[ref]; ok {
			a.Committed, a.LastEpoch = c.Next, c.LastEpoch
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b topic.Assignment) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Ref.Partition, b.Ref.Partition))
	})
	return out
}

func (f *fakeGroups) commit(g *fakeGroup, name topic.MemberName, p *topic.GroupPoll) (not []topic.NotCommitted) {
	for _, c := range p.Ack {
		owner := g.owners[c.Ref]
		d, err := f.node.TopicByID(c.Ref.ID)
		no := topic.NotCommitted{Ref: c.Ref, Next: c.Next}
		if err == nil {
			no.Topic = d.Name
		}
		switch {
		case err != nil:
			no.Reason = topic.TopicGone
		case owner.member != name:
			no.Reason = topic.NotAssigned
		case c.Assigned != topic.NoGroupEpoch && c.Assigned != owner.assigned, c.Assigned == topic.NoGroupEpoch && owner.assigned > p.Epoch:
			no.Reason = topic.Reassigned
		case c.Next < g.committed[c.Ref].Next:
			no.Reason = topic.BehindFirst
		default:
			g.committed[c.Ref] = c
			continue
		}
		not = append(not, no)
	}
	return not
}

func (f *fakeGroups) EndTurn(_ topic.GroupName, _ topic.MemberName, _ uint64, alive bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, alive)
}

// ends is how many polls have ended, and how many of them because their callers had gone.
func (f *fakeGroups) ends() (all, gone int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, alive := range f.ended {
		if !alive {
			gone++
		}
	}
	return len(f.ended), gone
}

// waiting is whether a member has joined and what its poll may wait for.
func (f *fakeGroups) waiting(group topic.GroupName, member topic.MemberName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[group]
	return g != nil && g.members[member] != nil && g.members[member].changed != nil
}

func (f *fakeGroups) LeaveGroup(_ context.Context, name topic.GroupName, m topic.MemberName, e topic.GroupEpoch, acks []topic.GroupCommit) ([]topic.NotCommitted, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.of(name)
	if g.members[m] == nil {
		return nil, fault.Newf("fake.Leave", fault.NoMember, m, "group %q has no member %q", name, m)
	}
	not := f.commit(g, m, &topic.GroupPoll{Epoch: e, Ack: acks})
	g.members[m].ring()
	delete(g.members, m)
	f.balance(g)
	return not, nil
}

func (f *fakeGroups) SeekGroup(_ context.Context, s *topic.GroupSeek) ([]topic.GroupPartition, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.of(s.Group)
	to := s.Offsets
	for _, name := range s.Topics {
		found, err := f.node.Offsets(context.Background(), name, s.At)
		if err != nil {
			return nil, err
		}
		for _, at := range found {
			to = append(to, topic.PathOffset{Path: topic.Path{Topic: name, Partition: at.Partition}, Offset: at.Offset})
		}
	}
	g.epoch++
	var out []topic.GroupPartition
	for _, at := range to {
		d, err := f.node.Topic(at.Path.Topic)
		if err != nil {
			return nil, err
		}
		ref := topic.Ref{ID: d.ID, Partition: at.Path.Partition}
		g.committed[ref] = topic.GroupCommit{Ref: ref, Next: at.Offset, LastEpoch: topic.NoEpoch}
		if owner, held := g.owners[ref]; held {
			g.owners[ref] = fakeOwner{owner.member, g.epoch}
			g.members[owner.member].epoch = g.epoch
			g.members[owner.member].ring()
		}
		out = append(out, topic.GroupPartition{Path: at.Path, Ref: ref, Committed: at.Offset})
	}
	return out, nil
}

func (f *fakeGroups) AlterGroup(ctx context.Context, name topic.GroupName, overrides map[string]*string) (*topic.GroupDescription, error) {
	f.mu.Lock()
	if g := f.groups[name]; g != nil {
		for k, v := range overrides {
			if delete(g.overrides, k); v != nil {
				g.overrides[k] = *v
			}
		}
	}
	f.mu.Unlock()
	return f.DescribeGroup(ctx, name)
}

func (f *fakeGroups) DescribeGroup(_ context.Context, name topic.GroupName) (*topic.GroupDescription, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[name]
	if g == nil {
		return nil, fault.Newf("fake.Describe", fault.NoGroup, name, "group %q does not exist", name)
	}
	settings, err := topic.ParseGroupSettings(g.overrides, topic.DefaultGroupSettings())
	if err != nil {
		return nil, err
	}
	d := &topic.GroupDescription{GroupSummary: f.summary(name), Settings: settings, Overrides: g.overrides, Start: g.start, EmptySince: topic.NoTimestamp}
	if len(g.members) == 0 {
		d.EmptySince = 1_762_077_600_000
	}
	for i, member := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[member]
		one := topic.MemberDescription{
			Name: member, Kind: topic.MemberKind(i % 2), Epoch: m.epoch, Principal: topic.Anonymous, Node: 1, Polling: m.changed != nil, Subscription: m.sub,
		}
		for _, a := range f.assignment(g, member) {
			one.Assignment = append(one.Assignment, a.Ref)
			bounds, _ := f.node.Bounds(a.Ref)
			p := topic.GroupPartition{
				Path: topic.Path{Topic: a.Topic, Partition: a.Ref.Partition}, Ref: a.Ref, Member: member, Assigned: a.Assigned,
				Committed: a.Committed, Metadata: g.committed[a.Ref].Metadata, LogStart: bounds.LogStart, End: bounds.HighWatermark,
				Lag: int64(bounds.HighWatermark - max(a.Committed, bounds.LogStart)),
			}
			d.Partitions = append(d.Partitions, p)
		}
		d.Members = append(d.Members, one)
	}
	return d, nil
}

func (f *fakeGroups) summary(name topic.GroupName) topic.GroupSummary {
	g := f.groups[name]
	s := topic.GroupSummary{Name: name, State: topic.GroupStable, Members: len(g.members), Epoch: g.epoch}
	if s.Members == 0 {
		s.State = topic.GroupEmpty
	}
	return s
}

func (f *fakeGroups) ListGroups(_ context.Context, after topic.GroupName, limit int) ([]topic.GroupSummary, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []topic.GroupSummary
	for _, name := range slices.Sorted(maps.Keys(f.groups)) {
		if name > after && len(out) < limit {
			out = append(out, f.summary(name))
		}
	}
	return out, nil
}

func (f *fakeGroups) DeleteGroup(_ context.Context, name topic.GroupName) error {
	if err := f.failing(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[name]
	switch {
	case g == nil:
		return fault.Newf("fake.Delete", fault.NoGroup, name, "group %q does not exist", name)
	case len(g.members) > 0:
		return fault.Newf("fake.Delete", fault.GroupNotEmpty, name, "group %q has %d members", name, len(g.members))
	}
	delete(f.groups, name)
	return nil
}
