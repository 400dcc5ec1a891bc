package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// benchGroup is a group whose members read so many partitions each, all at rest.
func benchGroup(b *testing.B, members, partitions int) (*Group, *world, time.Time) {
	w := newWorld()
	w.make("orders", partitions)
	g, now := New("billing", testConfig()), time.UnixMilli(1_000_000)
	epochs := make([]topic.GroupEpoch, members)
	sub := topic.Subscription{Topics: []topic.Name{"orders"}}
	for round := range 4 {
		for i := range members {
			turn, _, err := g.Poll(&topic.GroupPoll{Member: memberName(i), Epoch: epochs[i], Subscription: &sub}, nil, w, now)
			if err != nil {
				b.Fatal(round, err)
			}
			epochs[i] = turn.Epoch
		}
	}
	if g.State() != topic.GroupStable {
		b.Fatal(g.State())
	}
	g.Moved()
	return g, w, now
}

func BenchmarkPoll(b *testing.B) {
	for _, size := range [][2]int{{4, 12}, {1000, 8000}} {
		b.Run(fmt.Sprintf("members=%d/partitions=%d", size[0], size[1]), func(b *testing.B) {
			g, w, now := benchGroup(b, size[0], size[1])
			p := &topic.GroupPoll{
				Member: memberName(0), Epoch: g.members[memberName(0)].epoch, Node: 1,
				Subscription: &topic.Subscription{Topics: []topic.Name{"orders"}},
			}
			b.Run("unchanged", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := g.Poll(p, nil, w, now); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("commit", func(b *testing.B) {
				held := g.members[memberName(0)].held[0]
				q := *p
				q.Ack = []topic.GroupCommit{{Ref: held.ref(), Next: max(held.committed, 0), LastEpoch: 1, Assigned: held.assigned}}
				b.ReportAllocs()
				for b.Loop() {
					q.Ack[0].Next++
					if _, records, err := g.Poll(&q, nil, w, now); err != nil || len(records) != 1 {
						b.Fatal(records, err)
					}
				}
			})
		})
	}
}

// BenchmarkJoinAndLeave is what a member costs that comes and goes in a large group.
func BenchmarkJoinAndLeave(b *testing.B) {
	g, w, now := benchGroup(b, 999, 8000)
	p := &topic.GroupPoll{Member: "zz", Subscription: &topic.Subscription{Topics: []topic.Name{"orders"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := g.Poll(p, nil, w, now); err != nil {
			b.Fatal(err)
		}
		if _, _, err := g.Leave("zz", 0, nil, w, now); err != nil {
			b.Fatal(err)
		}
	}
}
