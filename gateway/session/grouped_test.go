package session_test

import (
	"fmt"
	"testing"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// assign is a partition that was assigned in an epoch, with what is committed in it.
func (l *fakeLog) assign(name topic.Name, n topic.Partition, epoch topic.GroupEpoch, committed topic.Offset) topic.Assignment {
	d, err := l.Topic(name)
	if err != nil {
		l.t.Fatal(err)
	}
	last := topic.Epoch(1)
	if committed <= 0 {
		last = topic.NoEpoch
	}
	return topic.Assignment{Topic: name, Ref: topic.Ref{ID: d.ID, Partition: n}, Assigned: epoch, Committed: committed, LastEpoch: last}
}

// spread is a log with three partitions of two topics, each with the records 0 to 4.
func spread(t testing.TB) *fakeLog {
	log := newFakeLog(t)
	log.create("orders", 2)
	log.create("users", 1)
	for i := range 5 {
		log.values("orders", 0, fmt.Sprint(i))
		log.values("orders", 1, fmt.Sprint(i))
		log.values("users", 0, fmt.Sprint(i))
	}
	return log
}

func positions(c *topic.GroupCursor) []string {
	var out []string
	for _, p := range c.Commits() {
		out = append(out, fmt.Sprintf("%d=%d@%d", p.Ref.Partition, p.Next, p.Assigned))
	}
	return out
}

func TestGroupReaderBeginsAtCommits(t *testing.T) {
	log := spread(t)
	h := newHub(t, log, nil)
	r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 7, Assignment: []topic.Assignment{
		log.assign("orders", 0, 3, 3), log.assign("orders", 1, 4, topic.NoOffset), log.assign("users", 0, 5, 5),
	}})
	defer r.Close()
	page, err := r.Next(t.Context(), wide)
	if err != nil {
		t.Fatal(err)
	}
	// The sum of the positions is 8, so the last partition's turn comes first.
	expect(t, words(t, page), "orders/0@3=3", "orders/0@4=4", "orders/1@0=0", "orders/1@1=1", "orders/1@2=2", "orders/1@3=3", "orders/1@4=4")
	if !page.AtEnd {
		t.Error("the page is not at the end")
	}
	r.PassedAll(page)
	c := r.GroupCursor()
	if c.Epoch != 7 || c.CheckGroup("billing") != nil || c.CheckGroup("other") == nil {
		t.Errorf("the cursor is %+v", c)
	}
	expect(t, positions(c), "0=5@3", "1=5@4") // and not users, which was not read past its commit
}

// The same positions give the same records, in the same order, and a cursor goes on behind them.
func TestGroupReaderRepeatsAndGoesOn(t *testing.T) {
	log := spread(t)
	h := newHub(t, log, nil)
	all := []topic.Assignment{log.assign("orders", 0, 3, 1), log.assign("orders", 1, 4, topic.NoOffset), log.assign("users", 0, 5, 2)}
	var after *topic.GroupCursor
	var got seen
	for range 20 {
		var pages [2]seen
		var next topic.GroupCursor
		for i := range pages {
			r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 7, Assignment: all, After: after})
			page, err := r.Next(t.Context(), session.Limit{Records: 2, Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			pages[i] = words(t, page)
			r.PassedAll(page)
			if next, err = topic.ParseGroupCursor(r.GroupCursor().String()); err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
		expect(t, pages[1], pages[0]...)
		got = append(got, pages[0]...)
		after = &next
	}
	met := map[string]bool{}
	for _, w := range got {
		if met[w] {
			t.Errorf("%s comes twice", w)
		}
		met[w] = true
	}
	if len(met) != 4+5+3 {
		t.Errorf("got %v", got)
	}
	// Where the assignment is another one, or the commit is ahead, the commit counts.
	r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 9, After: after, Assignment: []topic.Assignment{
		log.assign("orders", 0, 8, 4), log.assign("orders", 1, 4, 5), log.assign("users", 0, 5, 2),
	}})
	defer r.Close()
	expect(t, drain(t, r, wide), "orders/0@4=4")
	expect(t, positions(r.GroupCursor()), positionsOf(log, r)...)
}

// positionsOf are those of users/0 behind what was read before, and of orders/0 behind its last record, by topic id.
func positionsOf(log *fakeLog, r *session.Reader) []string {
	orders, users := log.topics["orders"].ID, log.topics["users"].ID
	if string(orders[:]) < string(users[:]) {
		return []string{"0=5@8", "0=5@5"}
	}
	return []string{"0=5@5", "0=5@8"}
}

func TestRetarget(t *testing.T) {
	log := spread(t)
	h := newHub(t, log, nil)
	r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 1})
	bell := make(chan struct{}, 1)
	if err := r.Listen(bell); err != nil {
		t.Fatal(err)
	}
	retarget := func(epoch topic.GroupEpoch, all ...topic.Assignment) string {
		added, removed := r.Retarget(epoch, all, topic.GroupStart{})
		return fmt.Sprint(paths(added), paths(removed))
	}
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	expect(t, drain(t, r, wide))
	a, b, u := log.assign("orders", 0, 2, 3), log.assign("orders", 1, 2, 4), log.assign("users", 0, 2, topic.NoOffset)
	check(retarget(2, a, b), "[orders/0 orders/1] []")
	expect(t, drain(t, r, wide), "orders/0@3=3", "orders/0@4=4", "orders/1@4=4")
	check(retarget(2, a, b), "[] []")

	// What stays goes on where it stands, what is taken away is not read, and stays in the cursor meanwhile.
	log.values("orders", 0, "5")
	log.values("orders", 1, "5")
	b.Leaving = true
	check(retarget(3, a, b, u), "[users/0] [orders/1]")
	expect(t, drain(t, r, session.Limit{Records: 3, Bytes: 1 << 20}), "orders/0@5=5", "users/0@0=0", "users/0@1=1", "users/0@2=2", "users/0@3=3", "users/0@4=4")
	if n := len(r.GroupCursor().Commits()); n != 3 || r.GroupCursor().Epoch != 3 {
		t.Errorf("the cursor has %d partitions: %+v", n, r.GroupCursor())
	}
	if n := log.listeners(); n != 2 {
		t.Errorf("%d bells hang in the log", n)
	}
	// Given back in the assignment that it was taken from, it goes on where it was read up to.
	b.Leaving = false
	check(retarget(4, a, b, u), "[orders/1] []")
	expect(t, drain(t, r, wide), "orders/1@5=5")
	// Assigned anew it begins at the commit, and what was read of it before is no more in the cursor.
	b.Assigned, b.Committed = 5, 2
	check(retarget(5, a, b, u), "[orders/1] [orders/1]")
	if n := len(r.GroupCursor().Commits()); n != 2 {
		t.Errorf("the cursor has %d partitions", n)
	}
	expect(t, drain(t, r, wide), "orders/1@2=2", "orders/1@3=3", "orders/1@4=4", "orders/1@5=5")
	// What is committed leaves the cursor.
	a.Committed = 6
	check(retarget(5, a, b, u), "[] []")
	if n := len(r.GroupCursor().Commits()); n != 2 {
		t.Errorf("the cursor has %d partitions", n)
	}
	check(retarget(6), "[] [orders/0 orders/1 users/0]")
	expect(t, drain(t, r, wide))
	if n := log.listeners(); n != 0 || r.Partitions() != 0 {
		t.Errorf("%d bells hang in the log", n)
	}
	r.Close()
}

func paths(all []topic.Assignment) []string {
	out := []string{}
	for _, a := range all {
		out = append(out, topic.Path{Topic: a.Topic, Partition: a.Ref.Partition}.String())
	}
	return out
}

// A piece that was fetched for a partition is not given once the partition is gone.
func TestRetargetDropsWhatWasFetched(t *testing.T) {
	log := spread(t)
	h := newHub(t, log, nil)
	a, u := log.assign("orders", 0, 2, 0), log.assign("users", 0, 2, 0)
	r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 2, Assignment: []topic.Assignment{a, u}})
	defer r.Close()
	one := session.Limit{Records: 1, Bytes: 1 << 20}
	page, err := r.Next(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, words(t, page), "orders/0@0=0")
	r.PassedAll(page)
	r.Retarget(3, []topic.Assignment{u}, topic.GroupStart{})
	expect(t, drain(t, r, wide), "users/0@0=0", "users/0@1=1", "users/0@2=2", "users/0@3=3", "users/0@4=4")
	r.Retarget(4, []topic.Assignment{a, u}, topic.GroupStart{})
	expect(t, drain(t, r, wide), "orders/0@0=0", "orders/0@1=1", "orders/0@2=2", "orders/0@3=3", "orders/0@4=4")
}

// An offset that is not there any more goes on where the group's start says, and as a gap.
func TestGroupReaderOutOfRange(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	for i := range 8 {
		log.append("orders", 0, topic.Record{Value: []byte(fmt.Sprint(i)), Timestamp: topic.Millis(100 * i)})
	}
	log.retain("orders", 0, 3)
	h := newHub(t, log, nil)
	from := func(start topic.GroupStart, committed topic.Offset) seen {
		r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 1, Assignment: []topic.Assignment{log.assign("orders", 0, 1, committed)}, Start: start})
		defer r.Close()
		out := drain(t, r, wide)
		return append(out, positions(r.GroupCursor())...)
	}
	expect(t, from(topic.At{}, 6), "orders/0@6=6", "orders/0@7=7", "0=8@1")
	expect(t, from(topic.At{}, topic.NoOffset), "orders/0@3=3", "orders/0@4=4", "orders/0@5=5", "orders/0@6=6", "orders/0@7=7", "0=8@1")
	expect(t, from(topic.At{}, 1), "gap orders/0 1..3 retention", "orders/0@3=3", "orders/0@4=4", "orders/0@5=5", "orders/0@6=6", "orders/0@7=7", "0=8@1")
	expect(t, from(topic.At{Kind: topic.AtLatest}, 1), "gap orders/0 1..8 retention", "0=8@1")
	expect(t, from(topic.At{Kind: topic.AtTime, Time: 600}, 1), "gap orders/0 1..6 retention", "orders/0@6=6", "orders/0@7=7", "0=8@1")
	expect(t, from(topic.At{Kind: topic.AtTime, Time: 100}, 99), "gap orders/0 99..8 truncated", "0=8@1")
	log.cut("orders", 0, 7)
	log.values("orders", 0, "70")
	expect(t, from(topic.At{}, 8), "gap orders/0 8..7 truncated", "orders/0@7=70", "0=8@1")
}

// A topic that is gone, or a partition that is not known here yet, is trouble that passes, and no end.
func TestGroupReaderWaitsForTopics(t *testing.T) {
	log := spread(t)
	h := newHub(t, log, nil)
	users := log.assign("users", 0, 1, 4)
	later := log.assign("orders", 1, 1, topic.NoOffset)
	later.Ref.Partition = 2
	r := h.OpenGroup(session.GroupSpec{Group: "billing", Epoch: 1, Assignment: []topic.Assignment{log.assign("orders", 0, 1, 4), later, users}})
	defer r.Close()
	if err := r.Listen(make(chan struct{}, 1)); err != nil {
		t.Fatal(err)
	}
	next := func() seen {
		page, err := r.Next(t.Context(), wide)
		if err != nil {
			if !fault.KindOf(err).Retryable() {
				t.Errorf("trouble that does not pass: %v", err)
			}
			return seen{"trouble"}
		}
		r.PassedAll(page)
		return words(t, page)
	}
	expect(t, next(), "orders/0@4=4", "users/0@4=4")
	expect(t, next(), "trouble")
	log.addPartitions("orders", 3)
	log.values("orders", 2, "0")
	expect(t, next(), "orders/2@0=0")
	expect(t, next())
	log.remove("users")
	expect(t, next(), "trouble")
	log.values("orders", 0, "5")
	expect(t, next(), "orders/0@5=5")
	expect(t, next(), "trouble")
	r.Retarget(2, []topic.Assignment{log.assign("orders", 0, 1, 4), later}, topic.GroupStart{})
	expect(t, next())
	if n := len(r.GroupCursor().Commits()); n != 2 {
		t.Errorf("the cursor has %d partitions", n)
	}
}
