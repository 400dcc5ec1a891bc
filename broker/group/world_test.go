package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlog/weir/topic"
)

// world is a cluster as far as the rules look at it.
type world struct {
	topics map[topic.Name]*worldTopic
	lives  map[topic.Name]int
	ends   map[topic.Ref]topic.Offset
}

type worldTopic struct {
	id         topic.ID
	partitions int
}

func newWorld() *world {
	return &world{topics: map[topic.Name]*worldTopic{}, lives: map[topic.Name]int{}, ends: map[topic.Ref]topic.Offset{}}
}

// idOf is the id of the n-th life of a topic: its name, then the number.
func idOf(name topic.Name, life int) (id topic.ID) {
	copy(id[:15], name)
	id[15] = byte(life)
	return id
}

func (w *world) make(name topic.Name, partitions int) topic.ID {
	w.lives[name]++
	w.topics[name] = &worldTopic{id: idOf(name, w.lives[name]), partitions: partitions}
	return w.topics[name].id
}

func (w *world) Topic(name topic.Name) (topic.ID, int, bool) {
	if t := w.topics[name]; t != nil {
		return t.id, t.partitions, true
	}
	return topic.ID{}, 0, false
}

func (w *world) TopicByID(id topic.ID) (topic.Name, int, bool) {
	for name, t := range w.topics {
		if t.id == id {
			return name, t.partitions, true
		}
	}
	return "", 0, false
}

func (w *world) Topics(yield func(topic.Name, topic.ID, int) bool) {
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		if !name.Internal() && !yield(name, w.topics[name].id, w.topics[name].partitions) {
			return
		}
	}
}

func (w *world) End(ref topic.Ref) (topic.Offset, bool) {
	end, ok := w.ends[ref]
	return end, ok
}

// kept is the records of a group that compaction leaves.
type kept struct {
	keys    []string
	records map[string]Record
}

func (k *kept) add(records []Record) {
	if k.records == nil {
		k.records = map[string]Record{}
	}
	for _, r := range records {
		key := string(r.Key)
		if _, ok := k.records[key]; ok {
			k.keys = slices.DeleteFunc(k.keys, func(s string) bool { return s == key })
		}
		if r.Value == nil {
			delete(k.records, key)
			continue
		}
		k.keys = append(k.keys, key)
		k.records[key] = r
	}
}

// replay makes the group anew from its records; it is not Loaded.
func (k *kept) replay(name topic.GroupName, cfg Config) (*Group, error) {
	g := New(name, cfg)
	for _, key := range k.keys {
		if err := g.Replay(k.records[key]); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// dump is all that is recorded of a group, in words.
func dump(g *Group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "exists=%t logged=%t overrides=%v start=%v created=%d empty=%d leaving=%d", g.exists, g.logged, g.overrides, g.start, g.createdAt, g.emptySince, g.leaving)
	if g.logged {
		fmt.Fprintf(&b, " epoch=%d", g.epoch)
	}
	b.WriteString("\n")
	for _, m := range g.byName {
		r := m.record()
		fmt.Fprintf(&b, "%s: %+v\n", m.name, r)
	}
	for _, t := range g.topics {
		fmt.Fprintf(&b, "%s %s known=%d\n", t.name, t.id, t.known)
		for _, p := range t.parts {
			holder := topic.MemberName("-")
			if p.holder != nil {
				holder = p.holder.name
			}
			if p.holder != nil || p.committed != topic.NoOffset {
				fmt.Fprintf(&b, "  %d: %s assigned=%d leaving=%d at=%d %d/%d by=%d %q\n", p.number, holder, p.assigned, p.leaving, p.at, p.committed, p.lastEpoch, p.by, p.metadata)
			}
		}
	}
	return b.String()
}

// sameAfterReplay compares a group with what its records make.
func sameAfterReplay(g *Group, k *kept) error {
	again, err := k.replay(g.name, g.cfg)
	if err != nil {
		return err
	}
	again.index()
	if got, want := dump(again), dump(g); got != want {
		return fmt.Errorf("the records make\n%s\nand the group is\n%s", got, want)
	}
	return nil
}

// checkGroup finds where a group is at odds with itself.
func checkGroup(g *Group) error {
	leaving := 0
	for _, x := range g.topics {
		if x.gone || g.met[x.id] != x {
			return fmt.Errorf("topic %s is gone, and still there", x.name)
		}
		for _, p := range x.parts {
			if p.leaving != topic.NoGroupEpoch {
				leaving++
			}
			if p.holder != nil && (g.members[p.holder.name] != p.holder || !slices.Contains(p.holder.held, p)) {
				return fmt.Errorf("%s: %s has it and does not", p.path(), p.holder.name)
			}
			if p.target != nil && g.members[p.target.name] != p.target {
				return fmt.Errorf("%s is for %s, who is gone", p.path(), p.target.name)
			}
			if p.holder == nil && p.target != nil {
				return fmt.Errorf("%s is free, and %s does not get it", p.path(), p.target.name)
			}
			if p.holder != nil && p.holder != p.target && p.leaving == topic.NoGroupEpoch {
				return fmt.Errorf("%s is not for %s, and is not taken away", p.path(), p.holder.name)
			}
		}
	}
	if leaving != g.leaving {
		return fmt.Errorf("%d partitions leave, %d are counted", leaving, g.leaving)
	}
	held := map[*part]bool{}
	for _, m := range g.byName {
		if m.gone || m.epoch > g.epoch || m.since > m.epoch || m.interest == nil {
			return fmt.Errorf("member %s: gone %t, epoch %d since %d of %d", m.name, m.gone, m.epoch, m.since, g.epoch)
		}
		for _, p := range m.held {
			if held[p] || p.holder != m || p.assigned > m.epoch || p.assigned == topic.NoGroupEpoch {
				return fmt.Errorf("%s: %s holds it twice or not at all; assigned %d", p.path(), m.name, p.assigned)
			}
			held[p] = true
		}
	}
	return nil
}

func testConfig() Config {
	return Config{Settings: topic.DefaultGroupSettings(), OffsetsRetention: 7 * 24 * time.Hour, MaxMembers: 1000}
}
