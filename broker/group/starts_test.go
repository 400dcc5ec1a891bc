package group

import (
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// TestLateStarts: where a group starts is looked up while others may change the group. What they have done
// meanwhile counts.
func TestLateStarts(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	sub := topic.Subscription{Topics: []topic.Name{"orders"}}
	for what, test := range map[string]struct {
		meanwhile func(t *testing.T, g *Group, w *world, ref topic.Ref)
		committed topic.Offset // in the partition of ref; the other one starts at 80
		other     topic.Offset
	}{
		"nothing": {func(*testing.T, *Group, *world, topic.Ref) {}, 40, 80},
		"a seek": {func(t *testing.T, g *Group, w *world, ref topic.Ref) {
			if _, err := g.Seek([]Position{{Ref: ref, Offset: 5}}, w, now); err != nil {
				t.Fatal(err)
			}
		}, 5, 80},
		"another joins and starts at the beginning": {func(t *testing.T, g *Group, w *world, _ topic.Ref) {
			if _, _, err := g.Poll(&topic.GroupPoll{Member: "B", Subscription: &sub}, nil, w, now); err != nil {
				t.Fatal(err)
			}
		}, topic.NoOffset, topic.NoOffset},
		"the topic is made again": {func(_ *testing.T, _ *Group, w *world, _ topic.Ref) {
			w.make("orders", 2)
		}, topic.NoOffset, topic.NoOffset},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			ref := topic.Ref{ID: w.make("orders", 2)}
			g := New("billing", testConfig())
			p := &topic.GroupPoll{Member: "A", Subscription: &sub, Start: topic.GroupStart{Kind: topic.AtLatest}}
			starts := map[topic.Ref]topic.Offset{}
			_, refs := g.Unstarted(p, w)
			for i, one := range refs {
				starts[one] = 40 * topic.Offset(1+i)
			}
			test.meanwhile(t, g, w, ref)
			if _, _, err := g.Poll(p, starts, w, now); err != nil {
				t.Fatal(err)
			}
			id, _, _ := w.Topic("orders")
			for i, want := range []topic.Offset{test.committed, test.other} {
				if got := g.part(topic.Ref{ID: id, Partition: topic.Partition(i)}).committed; got != want {
					t.Errorf("partition %d begins at %d, want %d", i, got, want)
				}
			}
		})
	}
}
