package group

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// TestDamagedRecords: the log of the groups had a damaged range, and some records are gone. What is left of
// a group is kept for as long as offsets are, and its epochs go on.
func TestDamagedRecords(t *testing.T) {
	w := newWorld()
	w.make("orders", 2)
	for _, gone := range []string{"g", "m", "t", "o", "to", "gm", "gt", "mt", "gmt"} {
		t.Run(gone, func(t *testing.T) {
			now := time.UnixMilli(1_700_000_000_000)
			g := New("billing", testConfig())
			sub := topic.Subscription{Topics: []topic.Name{"orders"}}
			var log kept
			turn, records, err := g.Poll(&topic.GroupPoll{Member: "A", Subscription: &sub}, nil, w, now)
			if err != nil {
				t.Fatal(err)
			}
			log.add(records)
			for _, next := range []topic.Offset{5, 10} {
				ack := []topic.GroupCommit{{Ref: turn.Assignment[0].Ref, Next: next, LastEpoch: 1, Assigned: turn.Assignment[0].Assigned}}
				if _, records, err = g.Poll(&topic.GroupPoll{Member: "A", Epoch: turn.Epoch, Ack: ack}, nil, w, now); err != nil {
					t.Fatal(err)
				}
				log.add(records)
			}
			log.keys = slices.DeleteFunc(log.keys, func(key string) bool {
				k, err := decodeKey([]byte(key))
				return err != nil || strings.ContainsRune(gone, rune(k.Kind))
			})

			again, err := log.replay("billing", g.cfg)
			if err != nil {
				t.Fatal(err)
			}
			records = again.Loaded(w, now)
			log.add(records)
			if err := checkGroup(again); err != nil {
				t.Error(err)
			}
			if err := sameAfterReplay(again, &log); err != nil {
				t.Error(err)
			}
			if again.Gone() || !again.Exists() {
				t.Fatalf("exists %t, gone %t", again.Exists(), again.Gone())
			}
			for now = now.Add(time.Minute); now.Before(time.UnixMilli(1_700_000_000_000).Add(6 * 24 * time.Hour)); now = now.Add(time.Hour) {
				log.add(again.Expire(now))
			}
			if p := again.part(turn.Assignment[0].Ref); !strings.Contains(gone, "o") && (p == nil || p.committed != 10) {
				t.Errorf("nothing is left of what was committed: %s", strings.TrimSpace(dump(again)))
			}
			turn, _, err = again.Poll(&topic.GroupPoll{Member: "B", Subscription: &sub}, nil, w, now)
			if err != nil || turn.Epoch <= g.epoch && gone != "gmt" || turn.Assignment[0].Topic != "orders" {
				t.Errorf("%+v, %v; the epoch was %d", turn, err, g.epoch)
			}
		})
	}
}

// TestDamagedDeletion: some of a deleted group comes back with the tombstones that are gone; it is deleted
// all the same.
func TestDamagedDeletion(t *testing.T) {
	w, now := newWorld(), time.UnixMilli(1_700_000_000_000)
	ref := topic.Ref{ID: w.make("orders", 1)}
	g := New("billing", testConfig())
	var log kept
	seek, err := g.Seek([]Position{{Ref: ref, Offset: 7}}, w, now)
	if err != nil {
		t.Fatal(err)
	}
	deletion, err := g.Delete(now)
	if err != nil {
		t.Fatal(err)
	}
	log.add(seek)
	log.add(slices.DeleteFunc(deletion, func(r Record) bool { return r.Value == nil }))
	again, err := log.replay("billing", g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	log.add(again.Loaded(w, now))
	if again.Exists() || len(log.keys) != 1 || again.epoch != g.epoch {
		t.Errorf("epoch %d, %q: %s", again.epoch, log.keys, dump(again))
	}
}

// TestRefusedToday: what an older program let a member subscribe, and this one does not, is read by nobody,
// and the member is told when it comes with it.
func TestRefusedToday(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	w := newWorld()
	w.make("__groups", 2)
	w.make("orders", 2)
	for _, sub := range []topic.Subscription{
		{Topics: []topic.Name{"__groups"}}, {Pattern: strings.Repeat(".{0,900}", 20)}, {Prefix: "o", Pattern: "o.*"},
	} {
		old := memberRecord{Epoch: 3, Since: 3, Subscription: sub}
		made := groupRecord{Epoch: 3, EmptySince: topic.NoTimestamp}
		g := New("billing", testConfig())
		for _, r := range []Record{made.record("billing"), old.record("billing", "A"), old.record("billing", "B")} {
			if err := g.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
		g.members["A"].interest.sub, g.members["B"].interest.sub = sub, sub // a record has one of the three
		g.Loaded(w, now)
		p := &topic.GroupPoll{Member: "A", Epoch: 3}
		turn, _, err := g.Poll(p, nil, w, now)
		if err != nil || len(turn.Assignment) > 0 || g.reads("orders") || g.reads("__groups") {
			t.Errorf("%+v: reads %v, %v", sub, turn.Assignment, err)
		}
		p.Subscription = &sub
		if _, _, err := g.Poll(p, nil, w, now); !fault.Is(err, fault.Validation) && !fault.Is(err, fault.Forbidden) {
			t.Errorf("%+v is taken again: %v", sub, err)
		}
		p.Subscription = &topic.Subscription{Topics: []topic.Name{"orders"}}
		if turn, _, err := g.Poll(p, nil, w, now); err != nil || len(turn.Assignment) != 2 {
			t.Errorf("%+v: then it reads %v, %v", sub, turn.Assignment, err)
		}
		if err := checkGroup(g); err != nil {
			t.Error(err)
		}
	}
}
