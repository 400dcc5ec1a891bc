package group

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// TestLargeGroup deploys a large group: all members join at once, poll until they have their share, and
// then a tenth of them is gone. Nobody else loses a partition by that.
func TestLargeGroup(t *testing.T) {
	members, partitions := 200, 1_600
	if soak() {
		members, partitions = 1_000, 8_000
	}
	w := newWorld()
	w.make("orders", partitions)
	g, now := New("billing", testConfig()), time.UnixMilli(1_000_000)
	var log kept
	sub := topic.Subscription{Topics: []topic.Name{"orders"}}
	turns := make([]topic.GroupTurn, members)
	everybody := func(from int) {
		for i := from; i < members; i++ {
			turn, records, err := g.Poll(&topic.GroupPoll{Member: memberName(i), Epoch: turns[i].Epoch, Subscription: &sub}, nil, w, now)
			if err != nil {
				t.Fatal(err)
			}
			log.add(records)
			turns[i] = turn
		}
	}
	everybody(0)
	// The first round learns what is taken away, the second gives it up, the third learns what came of it.
	for range 3 {
		everybody(0)
	}
	share := partitions / members
	for i := range turns {
		if len(turns[i].Assignment) != share || len(turns[i].Waiting) > 0 {
			t.Fatalf("member %d has %d partitions and waits for %d", i, len(turns[i].Assignment), len(turns[i].Waiting))
		}
	}
	gone := members / 10
	for i := range gone {
		g.EndPoll(memberName(i), false, now)
	}
	now = now.Add(g.settings.MaxPollInterval)
	log.add(g.Expire(now))
	if g.Size() != members-gone || g.State() != topic.GroupStable {
		t.Fatalf("%d members of %d are left, and the group is %s", g.Size(), members, g.State())
	}
	before := append([]topic.GroupTurn(nil), turns...)
	everybody(gone)
	for i := gone; i < members; i++ {
		had, has := before[i].Assignment, map[topic.Ref]topic.GroupEpoch{}
		for _, a := range turns[i].Assignment {
			has[a.Ref] = a.Assigned
		}
		for _, a := range had {
			if has[a.Ref] != a.Assigned {
				t.Fatalf("member %d has lost %v", i, a.Ref)
			}
		}
		if len(has) > share+1 {
			t.Fatalf("member %d has %d partitions", i, len(has))
		}
	}
	if err := checkGroup(g); err != nil {
		t.Fatal(err)
	}
	if err := sameAfterReplay(g, &log); err != nil {
		t.Fatal(err)
	}
}

// TestSameCallsSameRecords: the order of a map has no say in what is decided, nor in what is written.
func TestSameCallsSameRecords(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := newModel(t, seed), newModel(t, seed)
		for _, m := range []*model{a, b} {
			m.play(steps)
			m.quiet()
		}
		if len(a.kept.keys) != len(b.kept.keys) {
			t.Fatalf("seed %d: %d records, and %d", seed, len(a.kept.keys), len(b.kept.keys))
		}
		for i, key := range a.kept.keys {
			if b.kept.keys[i] != key || !bytes.Equal(a.kept.records[key].Value, b.kept.records[key].Value) {
				t.Fatalf("seed %d: record %d is %q, and %q", seed, i, key, b.kept.keys[i])
			}
		}
	}
}
