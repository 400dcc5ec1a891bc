package broker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weirlog/weir/topic"
)

// BenchmarkGroupPoll is a poll that finds nothing new.
func BenchmarkGroupPoll(b *testing.B) {
	r, _ := beginMem(b)
	defer r.stop()
	r.fill("orders", 4, 1)
	m := r.join("g", "m", "orders")
	m.end()
	p := &topic.GroupPoll{Group: "g", Member: "m", Epoch: m.Epoch, Principal: topic.Anonymous, Node: 1, Subscription: &topic.Subscription{Topics: []topic.Name{"orders"}}}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		turn, err := r.PollGroup(ctx, p)
		if err != nil {
			b.Fatal(err)
		}
		r.EndTurn("g", "m", turn.Turn, true)
	}
}

// BenchmarkGroupAck is polls with an ack each, of many groups at once, on a disk in memory.
func BenchmarkGroupAck(b *testing.B) {
	r, _ := beginMem(b)
	defer r.stop()
	r.fill("orders", 1, 1)
	const groups = 1000
	members := make([]*member, groups)
	for g := range members {
		members[g] = r.join(topic.GroupName(fmt.Sprint("g", g)), "m", "orders")
		members[g].end()
	}
	for range 100 {
		r.produce("orders", make([]topic.Record, 1000)...)
	}
	b.ResetTimer()
	var next atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			m := members[n%groups]
			a := m.Assignment[0]
			turn, err := r.PollGroup(context.Background(), &topic.GroupPoll{
				Group: m.group, Member: m.name, Epoch: m.Epoch, Principal: topic.Anonymous, Node: 1,
				Ack: []topic.GroupCommit{{Ref: a.Ref, Next: topic.Offset(n / groups % 100_000), LastEpoch: topic.NoEpoch, Assigned: a.Assigned}},
			})
			if err != nil {
				b.Fatal(err)
			}
			r.EndTurn(m.group, m.name, turn.Turn, true)
		}
	})
	b.StopTimer()
}
