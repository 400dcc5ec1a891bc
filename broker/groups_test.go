package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// member is a member of a group under test, with what it was last told.
type member struct {
	r     *running
	group topic.GroupName
	name  topic.MemberName
	topic.GroupTurn
}

// poll makes one poll; edit may be nil. It ends the turn unless the test waits with it.
func (m *member) poll(edit func(*topic.GroupPoll)) error {
	p := &topic.GroupPoll{Group: m.group, Member: m.name, Epoch: m.Epoch, Principal: topic.Anonymous, Node: 1}
	if edit != nil {
		edit(p)
	}
	turn, err := m.r.PollGroup(context.Background(), p)
	if err != nil {
		return err
	}
	if p.Heartbeat {
		turn.Turn, turn.Changed = m.Turn, m.Changed
	}
	m.GroupTurn = turn
	return nil
}

// join makes a member that reads topics, "orders" where none are named.
func (r *running) join(g topic.GroupName, name topic.MemberName, topics ...topic.Name) *member {
	r.t.Helper()
	if len(topics) == 0 {
		topics = []topic.Name{"orders"}
	}
	m := &member{r: r, group: g, name: name}
	if err := m.poll(func(p *topic.GroupPoll) { p.Subscription = &topic.Subscription{Topics: topics} }); err != nil {
		r.t.Fatal(err)
	}
	m.name = m.Member
	return m
}

// end says that the member's poll is over.
func (m *member) end() { m.r.EndTurn(m.group, m.name, m.Turn, true) }

// ack commits an offset in every partition that the member has.
func (m *member) ack(next topic.Offset) error {
	return m.poll(func(p *topic.GroupPoll) {
		p.Heartbeat = true
		for _, a := range m.Assignment {
			p.Ack = append(p.Ack, topic.GroupCommit{Ref: a.Ref, Next: next, LastEpoch: topic.NoEpoch, Assigned: a.Assigned})
		}
	})
}

// numbers are the partitions of what a member has.
func (m *member) numbers() (all []topic.Partition) {
	for _, a := range m.Assignment {
		if !a.Leaving {
			all = append(all, a.Ref.Partition)
		}
	}
	return all
}

// woken fails the test when a waiting poll is not told within ten seconds.
func (m *member) woken(why string) {
	m.r.t.Helper()
	select {
	case <-m.Changed:
	case <-time.After(10 * time.Second):
		m.r.t.Fatalf("%s: the waiting poll of %s was not told", why, m.name)
	}
}

func (m *member) asleep(why string) {
	m.r.t.Helper()
	select {
	case <-m.Changed:
		m.r.t.Fatalf("%s: the waiting poll of %s was told of something", why, m.name)
	default:
	}
}

// committed are the positions of a group, by partition path.
func (r *running) committed(g topic.GroupName) map[topic.Path]topic.Offset {
	r.t.Helper()
	d, err := r.DescribeGroup(context.Background(), g)
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[topic.Path]topic.Offset{}
	for _, p := range d.Partitions {
		if p.Committed != topic.NoOffset {
			all[p.Path] = p.Committed
		}
	}
	return all
}

func wantKind(t *testing.T, what string, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got %v, want %v", what, err, kind)
	}
}

// fill makes a topic with some records in each partition.
func (r *running) fill(name topic.Name, partitions, records int) {
	r.t.Helper()
	r.create(name, partitions)
	for p := range partitions {
		for i := range records {
			r.produce(name, to(topic.Partition(p), fmt.Sprint("v", i)))
		}
	}
}

// TestGroupJoinCommitRestart: what a member commits is there after a stop and a start, and the member with it.
func TestGroupJoinCommitRestart(t *testing.T) {
	r, mem := beginMem(t)
	r.fill("orders", 2, 5)
	m := r.join("billing", "worker-1", "orders")
	if got := m.numbers(); !slices.Equal(got, []topic.Partition{0, 1}) {
		t.Fatalf("assigned %v", got)
	}
	m.end()
	if err := m.ack(3); err != nil {
		t.Fatal(err)
	}
	r.stop()

	r = begin(t, mem, r.cluster, testConfig("data"))
	m.r = r
	if got := r.committed("billing"); len(got) != 2 || got[topic.Path{Topic: "orders", Partition: 1}] != 3 {
		t.Errorf("committed %v", got)
	}
	if err := m.poll(nil); err != nil {
		t.Fatal(err)
	}
	if m.AssignmentChanged || m.Assignment[0].Committed != 3 {
		t.Errorf("after the restart: %+v", m.GroupTurn)
	}
	m.end()
	d, err := r.DescribeGroup(t.Context(), "billing")
	if err != nil || len(d.Members) != 1 || d.Partitions[0].Lag != 2 || d.Partitions[0].End != 5 {
		t.Errorf("described as %+v, %v", d, err)
	}
	r.stop()
}

// TestGroupUnknown: calls for what is not there say so, also before the first group.
func TestGroupUnknown(t *testing.T) {
	r, _ := beginMem(t)
	ctx := t.Context()
	for range 2 {
		_, err := r.DescribeGroup(ctx, "none")
		wantKind(t, "describe", err, fault.NoGroup)
		_, err = r.AlterGroup(ctx, "none", map[string]*string{"assignor": new("range")})
		wantKind(t, "alter", err, fault.NoGroup)
		wantKind(t, "delete", r.DeleteGroup(ctx, "none"), fault.NoGroup)
		_, err = r.LeaveGroup(ctx, "none", "m", 0, nil)
		if !fault.Is(err, fault.NoGroup) && !fault.Is(err, fault.NoMember) {
			t.Errorf("leave: %v", err)
		}
		if all, err := r.ListGroups(ctx, "", 10); err != nil || len(all) > 1 {
			t.Errorf("listed %v, %v", all, err)
		}
		r.EndTurn("none", "m", 1, true)
		r.DisconnectMember("none", "m", 1)
		r.join("some", "m").end()
	}
	if n := r.groups.kept.Load(); n != 1 {
		t.Errorf("%d groups are kept in memory", n)
	}
	r.stop()
}

// TestGroupsTopicIsWeirsOwn: clients can neither write to __groups nor change it.
func TestGroupsTopicIsWeirsOwn(t *testing.T) {
	r, _ := beginMem(t)
	r.join("g", "m").end()
	d, err := r.Topic(groupsTopic)
	if err != nil || len(d.Partitions) != groupPartitions || !d.Settings.Compact || d.Settings.Delete || d.Settings.SegmentBytes != 16<<20 {
		t.Fatalf("%+v, %v", d, err)
	}
	ctx := t.Context()
	wantKind(t, "produce", r.Produce(ctx, appendTo(groupsTopic, topic.AcksAll, "v")), fault.Forbidden)
	_, err = r.AlterTopic(ctx, groupsTopic, topic.Alteration{Partitions: 20})
	wantKind(t, "alter", err, fault.Forbidden)
	wantKind(t, "delete", r.DeleteTopic(ctx, groupsTopic), fault.Forbidden)
	_, err = r.DeleteRecords(ctx, topic.Path{Topic: groupsTopic}, topic.NoOffset)
	wantKind(t, "delete records", err, fault.Forbidden)
	_, err = r.CreateTopic(ctx, topic.Creation{Name: "__other"})
	wantKind(t, "create", err, fault.Forbidden)
	r.stop()
}

// TestGroupWakeUps: a waiting poll is told when another joins, leaves, takes over, or polls in its place.
func TestGroupWakeUps(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 2, 1)
	a := r.join("g", "a", "orders")
	a.asleep("nothing has happened")
	b := r.join("g", "b", "orders")
	a.woken("b has joined")
	if len(b.numbers()) != 0 || len(b.Waiting) != 1 {
		t.Errorf("b has %v and waits for %v", b.numbers(), b.Waiting)
	}
	turn := a.Turn
	if err := a.poll(func(p *topic.GroupPoll) { p.Turn = turn }); err != nil || a.Turn != turn || len(a.numbers()) != 1 {
		t.Fatalf("the same poll goes on with %v: %v", a.GroupTurn, err)
	}
	b.asleep("a has only been told")
	old := *a
	if err := a.poll(nil); err != nil { // in the place of the one that waits: it gives up what was taken
		t.Fatal(err)
	}
	old.woken("another poll came")
	wantKind(t, "the poll whose place was taken", old.poll(func(p *topic.GroupPoll) { p.Turn = turn }), fault.Superseded)
	b.woken("a has given up its partition")
	if err := b.poll(func(p *topic.GroupPoll) { p.Turn = b.Turn }); err != nil || len(b.numbers()) != 1 {
		t.Fatalf("b has %v: %v", b.numbers(), err)
	}

	elder := *b
	again := r.join("g", "b", "orders")
	elder.woken("its name was taken over")
	wantKind(t, "the elder's poll", elder.poll(func(p *topic.GroupPoll) { p.Turn = elder.Turn }), fault.FencedMember)
	wantKind(t, "the elder's next poll", elder.poll(nil), fault.FencedMember)
	if !slices.Equal(again.numbers(), b.numbers()) {
		t.Errorf("the take-over moved partitions: %v, %v", again.numbers(), b.numbers())
	}

	if _, err := r.LeaveGroup(t.Context(), "g", "a", a.Epoch, nil); err != nil {
		t.Fatal(err)
	}
	a.woken("it has left")
	wantKind(t, "the poll of one who left", a.poll(func(p *topic.GroupPoll) {
		p.Turn, p.Subscription = a.Turn, &topic.Subscription{Topics: []topic.Name{"orders"}}
	}), fault.NoMember)
	again.woken("a has left")
	if err := again.poll(func(p *topic.GroupPoll) { p.Turn = again.Turn }); err != nil || len(again.numbers()) != 2 {
		t.Errorf("alone with %v: %v", again.numbers(), err)
	}
	again.end()
	if s := r.groups; s.existing.Load() != 1 {
		t.Errorf("%d groups", s.existing.Load())
	}
	r.stop()
}

// TestGroupTopicsChange: waiting polls hear of topics that are made, grow and go.
func TestGroupTopicsChange(t *testing.T) {
	r, _ := beginMem(t)
	a := r.join("g", "a", "orders")
	if len(a.Assignment) != 0 {
		t.Fatalf("assigned %v of a topic that is not there", a.Assignment)
	}
	next := func(why string, want int) {
		t.Helper()
		a.woken(why)
		if err := a.poll(func(p *topic.GroupPoll) { p.Turn = a.Turn }); err != nil || len(a.numbers()) != want {
			t.Fatalf("%s: assigned %v, %v", why, a.numbers(), err)
		}
	}
	r.create("other", 1)
	r.create("orders", 1)
	next("made", 1)
	if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	next("grown", 3)
	a.end()
	if err := a.ack(0); err != nil {
		t.Fatal(err)
	}
	if err := a.poll(nil); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	next("deleted", 0)
	if got := r.committed("g"); len(got) != 0 {
		t.Errorf("offsets of a deleted topic: %v", got)
	}
	a.end()
	r.stop()
}

// TestGroupStart: a group begins where it says, in what is there when it begins.
func TestGroupStart(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 2, 4)
	m := &member{r: r, group: "g", name: "m"}
	latest := func(p *topic.GroupPoll) {
		p.Subscription = &topic.Subscription{Prefix: "or"}
		p.Start = topic.GroupStart{Kind: topic.AtLatest}
	}
	if err := m.poll(latest); err != nil {
		t.Fatal(err)
	}
	if len(m.Assignment) != 2 || m.Assignment[0].Committed != 4 || m.Assignment[1].Committed != 4 {
		t.Errorf("begins at %+v", m.Assignment)
	}
	m.end()
	r.fill("orders2", 1, 2)
	m.woken("a topic was made")
	if err := m.poll(latest); err != nil {
		t.Fatal(err)
	}
	if len(m.Assignment) != 3 || m.Assignment[2].Committed != topic.NoOffset {
		t.Errorf("a later topic begins at %+v", m.Assignment)
	}
	m.end()
	r.stop()
}

// TestGroupSeek: positions move to a time, an end or an offset that is there, and nowhere else.
func TestGroupSeek(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 2, 4)
	ctx := t.Context()
	got, err := r.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{"orders"}, At: topic.At{Kind: topic.AtLatest}})
	if err != nil || len(got) != 2 || got[1].Committed != 4 || got[1].Lag != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	one := func(p topic.Partition, o topic.Offset) *topic.GroupSeek {
		return &topic.GroupSeek{Group: "g", Offsets: []topic.PathOffset{{Path: topic.Path{Topic: "orders", Partition: p}, Offset: o}}}
	}
	got, err = r.SeekGroup(ctx, one(1, 2))
	if err != nil || len(got) != 1 || got[0].Committed != 2 || got[0].Lag != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = r.SeekGroup(ctx, one(1, 5))
	wantKind(t, "beyond the end", err, fault.OffsetRange)
	if _, err := r.DeleteRecords(ctx, topic.Path{Topic: "orders"}, 2); err != nil {
		t.Fatal(err)
	}
	_, err = r.SeekGroup(ctx, one(0, 1))
	wantKind(t, "below the start", err, fault.OffsetRange)
	_, err = r.SeekGroup(ctx, one(2, 1))
	wantKind(t, "no partition", err, fault.NoPartition)
	_, err = r.SeekGroup(ctx, &topic.GroupSeek{Group: "g"})
	wantKind(t, "nothing", err, fault.Validation)
	_, err = r.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{"orders", "orders"}})
	wantKind(t, "twice", err, fault.Validation)
	_, err = r.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{"none"}})
	wantKind(t, "no topic", err, fault.NoTopic)
	_, err = r.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{groupsTopic}})
	wantKind(t, "a topic of weir's own", err, fault.Forbidden)

	m := r.join("g", "m", "orders")
	old := m.Assignment[0].Assigned
	if _, err := r.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{"orders"}}); err != nil {
		t.Fatal(err)
	}
	m.woken("a seek")
	if err := m.poll(func(p *topic.GroupPoll) { p.Turn = m.Turn }); err != nil {
		t.Fatal(err)
	}
	if a := m.Assignment[0]; a.Assigned <= old || a.Committed != 2 || m.Assignment[1].Committed != 0 {
		t.Errorf("after the seek: %+v", m.Assignment)
	}
	m.end()
	r.stop()
}

// TestGroupList: groups of all partitions, by name, page by page; deleted ones are not among them.
func TestGroupList(t *testing.T) {
	r, _ := beginMem(t)
	var want []topic.GroupName
	for i := range 40 {
		g := topic.GroupName(fmt.Sprintf("g%02d", i))
		r.join(g, "m").end()
		want = append(want, g)
	}
	ctx := t.Context()
	wantKind(t, "with members", r.DeleteGroup(ctx, "g07"), fault.GroupNotEmpty)
	if _, err := r.LeaveGroup(ctx, "g07", "m", 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteGroup(ctx, "g07"); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 7, 8)
	var got []topic.GroupName
	for after := topic.GroupName(""); ; after = got[len(got)-1] {
		page, err := r.ListGroups(ctx, after, 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			got = append(got, s.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
	if r.groups.existing.Load() != 39 || r.groups.kept.Load() != 40 {
		t.Errorf("%d groups, %d kept", r.groups.existing.Load(), r.groups.kept.Load())
	}
	r.stop()
}

// TestGroupMadeNames: a join that is repeated gets the same name, another principal's does not.
func TestGroupMadeNames(t *testing.T) {
	r, _ := beginMem(t)
	made := func(from, principal string) topic.MemberName {
		t.Helper()
		m := &member{r: r, group: "g", name: topic.MadeMember}
		if err := m.poll(func(p *topic.GroupPoll) {
			p.Subscription, p.MadeFrom, p.Principal = &topic.Subscription{Topics: []topic.Name{"orders"}}, from, principal
		}); err != nil {
			t.Fatal(err)
		}
		return m.Member
	}
	if a, b := made("x", "User:a"), made("x", "User:a"); a != b || a == topic.MadeMember {
		t.Errorf("%q and %q", a, b)
	}
	if a, b := made("x", "User:a"), made("x", "User:b"); a == b {
		t.Errorf("both got %q", a)
	}
	if a, b := made("", "User:a"), made("", "User:a"); a == b {
		t.Errorf("both got %q", a)
	}
	m := &member{r: r, group: "g", name: topic.MadeMember}
	wantKind(t, "a made name with an epoch", m.poll(func(p *topic.GroupPoll) { p.Epoch = 1 }), fault.Validation)
	r.stop()
}

// TestGroupLimits: caps refuse what is new and leave what is there.
func TestGroupLimits(t *testing.T) {
	mem := newMem(t)
	cfg := testConfig("data")
	cfg.MaxGroups, cfg.MaxGroupMembers = 2, 1
	r := begin(t, mem, newOneNode(), cfg)
	a := r.join("a", "m")
	a.end()
	r.join("b", "m").end()
	c := &member{r: r, group: "c", name: "m"}
	wantKind(t, "a third group", c.poll(func(p *topic.GroupPoll) { p.Subscription = &topic.Subscription{Topics: []topic.Name{"t"}} }), fault.Limit)
	second := &member{r: r, group: "a", name: "n"}
	wantKind(t, "a second member", second.poll(func(p *topic.GroupPoll) { p.Subscription = &topic.Subscription{Topics: []topic.Name{"t"}} }), fault.Limit)
	if err := a.poll(nil); err != nil {
		t.Error(err)
	}
	a.end()
	r.stop()
}

// TestGroupsInParallel: many groups in all partitions at once, with joins, commits, lists and stops.
func TestGroupsInParallel(t *testing.T) {
	r, mem := beginMem(t)
	r.fill("orders", 3, 1)
	r.produce("orders", slices.Repeat([]topic.Record{to(0, "v"), to(1, "v"), to(2, "v")}, 100)...)
	groups := 64
	var wg sync.WaitGroup
	for g := range groups {
		for w := range 3 {
			wg.Go(func() {
				m := r.join(topic.GroupName(fmt.Sprint("g", g)), topic.MemberName(fmt.Sprint("w", w)), "orders")
				for i := range 20 {
					if err := m.poll(func(p *topic.GroupPoll) {
						for _, a := range m.Assignment {
							p.Ack = append(p.Ack, topic.GroupCommit{Ref: a.Ref, Next: topic.Offset(i), LastEpoch: topic.NoEpoch, Assigned: a.Assigned})
						}
					}); err != nil {
						t.Error(err)
					}
					m.end()
					if i == 10 {
						if _, err := r.ListGroups(context.Background(), "", 100); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for g := range groups {
		d, err := r.DescribeGroup(t.Context(), topic.GroupName(fmt.Sprint("g", g)))
		if err != nil || len(d.Members) != 3 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	before, err := r.DescribeGroup(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r = begin(t, mem, r.cluster, testConfig("data"))
	after, err := r.DescribeGroup(t.Context(), "g1")
	if err != nil || after.Epoch != before.Epoch || len(after.Partitions) != len(before.Partitions) {
		t.Errorf("%+v, %v; before %+v", after, err, before)
	}
	if n := r.groups.existing.Load(); n != int64(groups) && n != 0 {
		r.await("all are loaded", func() bool { return r.groups.existing.Load() == int64(groups) })
	}
	r.stop()
}

// TestGroupStop: a node that stops answers everyone.
func TestGroupStop(t *testing.T) {
	r, _ := beginMem(t)
	r.fill("orders", 1, 1)
	m := r.join("g", "m", "orders")
	r.stop()
	m.woken("the node has stopped")
	wantKind(t, "a poll afterwards", m.poll(func(p *topic.GroupPoll) { p.Turn = m.Turn }), fault.Stopping)
	r.EndTurn("g", "m", m.Turn, true)
}
