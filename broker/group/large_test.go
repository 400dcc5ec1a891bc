package group

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
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

// TestLargestDecision: whatever the members subscribe, and however many they are, what one call changes
// fits into one batch of __groups.
func TestLargestDecision(t *testing.T) {
	const batchBytes = 16 << 20
	size := func(records []Record) (n int) {
		for _, r := range records {
			n += len(r.Key) + len(r.Value)
		}
		return n
	}
	w := newWorld()
	w.make("orders", 1_000)
	name := topic.GroupName(strings.Repeat("g", topic.MaxNameBytes))
	g, now := New(name, testConfig()), time.UnixMilli(1_000_000)
	subs := make([]topic.Subscription, 100)
	turns := make([]topic.GroupTurn, len(subs))
	poll := func(i int, ack []topic.GroupCommit) ([]Record, error) {
		turn, records, err := g.Poll(&topic.GroupPoll{Member: memberName(i), Epoch: turns[i].Epoch, Subscription: &subs[i], Ack: ack}, nil, w, now)
		if err == nil {
			turns[i] = turn
		}
		return records, err
	}
	joined := 0
	for ; joined < len(subs); joined++ {
		subs[joined].Topics = []topic.Name{"orders"}
		for n := range MaxSubscriptionBytes/topic.MaxNameBytes - 1 {
			subs[joined].Topics = append(subs[joined].Topics, topic.Name(fmt.Sprintf("t%04d-%03d-%0239d", n, joined, 0)))
		}
		if _, err := poll(joined, nil); fault.Is(err, fault.Limit) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if joined < 10 || joined == len(subs) {
		t.Fatalf("%d members with the longest subscriptions are in one group", joined)
	}
	subs[joined].Topics = []topic.Name{"orders"}
	if _, err := poll(joined, nil); err != nil {
		t.Errorf("there is room for somebody with fewer names: %v", err)
	}
	subs[0].Topics = subs[0].Topics[:len(subs[0].Topics)-1]
	if _, err := poll(0, nil); err != nil {
		t.Errorf("a member wants to read less: %v", err)
	}
	for range 3 {
		for i := range joined + 1 {
			if _, err := poll(i, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Everything at once: each member loses what it has, one of them commits as much as there is, and all of
	// the topic goes.
	var ack []topic.GroupCommit
	for _, a := range turns[1].Assignment {
		ack = append(ack, topic.GroupCommit{Ref: a.Ref, Metadata: strings.Repeat("x", topic.MaxCommitMetadata)})
	}
	records, err := poll(1, ack)
	if err != nil {
		t.Fatal(err)
	}
	most := size(records)
	for len(ack)*topic.MaxCommitMetadata <= maxCallMetadata {
		ack = append(ack, ack[0])
	}
	if _, err := poll(1, ack); !fault.Is(err, fault.Validation) {
		t.Errorf("%d bytes of metadata in one call: %v", len(ack)*topic.MaxCommitMetadata, err)
	}
	delete(w.topics, "orders")
	if most += maxCallMetadata + size(g.TopicsChanged(w, now)); most > batchBytes-(2<<20) {
		t.Errorf("what is decided at once may have %d bytes", most)
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
