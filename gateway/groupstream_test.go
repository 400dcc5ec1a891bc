package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// lineGroups is a coordinator for streams: whoever joins gets partition 0 of orders.
type lineGroups struct {
	node *fakeNode

	mu      sync.Mutex
	joins   []topic.GroupPoll
	commits []topic.GroupCommit
	refuse  bool  // commits do not count
	trouble error // of joins
	gone    int   // members that were disconnected
}

func (g *lineGroups) PollGroup(_ context.Context, p *topic.GroupPoll) (topic.GroupTurn, error) {
	d, err := g.node.Topic("orders")
	if err != nil {
		return topic.GroupTurn{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	ref := topic.Ref{ID: d.ID}
	turn := topic.GroupTurn{
		Member: p.Member, Epoch: 3, Session: 45 * time.Second, Turn: 1,
		Assignment: []topic.Assignment{{Topic: "orders", Ref: ref, Assigned: 3, Committed: topic.NoOffset, LastEpoch: topic.NoEpoch}},
	}
	if p.Member == topic.MadeMember {
		turn.Member = "m-1"
	}
	if p.Epoch == topic.NoGroupEpoch {
		if g.trouble != nil {
			return topic.GroupTurn{}, g.trouble
		}
		g.joins = append(g.joins, *p)
	}
	for _, a := range p.Ack {
		if g.refuse {
			turn.NotCommitted = append(turn.NotCommitted, topic.NotCommitted{Ref: a.Ref, Next: a.Next, Reason: topic.PastEnd})
		} else {
			g.commits = append(g.commits, a)
		}
	}
	return turn, nil
}

func (g *lineGroups) EndTurn(topic.GroupName, topic.MemberName, uint64, bool) {}

func (g *lineGroups) LeaveGroup(context.Context, topic.GroupName, topic.MemberName, topic.GroupEpoch, []topic.GroupCommit) ([]topic.NotCommitted, error) {
	return nil, nil
}

func (g *lineGroups) DisconnectMember(topic.GroupName, topic.MemberName, topic.GroupEpoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone++
}

func (g *lineGroups) disconnected() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// withLineGroups gives the server a hub with that coordinator.
func withLineGroups(t testing.TB, groups *lineGroups) func(*Config, *Deps) {
	return func(_ *Config, d *Deps) {
		groups.node = d.Node.(*fakeNode)
		hub, err := session.NewHub(session.DefaultConfig(), session.Deps{Log: groups.node, Producer: groups.node, Groups: groups, NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		d.Hub = hub
	}
}

func TestGroupStream(t *testing.T) {
	groups := &lineGroups{}
	w := start(t, withLineGroups(t, groups))
	w.produceValues("0", "1")
	s := w.stream("/v1/groups/bill%C3%ADng/members/w%201/records?topics=orders,users&start=ts:5", "Accept", typeNDJSON)
	if line := s.line(); line != `{"assignment":{"member":"w 1","epoch":3,"added":[{"topic":"orders","partitions":[0]}],"removed":[],"missing_topics":["users"]}}` {
		t.Errorf("the first line is %s", line)
	}
	s.line()
	s.line()
	if line := s.line(); !strings.HasPrefix(line, `{"cursor":"g1.`) {
		t.Errorf("behind the records comes %s", line)
	}
	join := groups.joins[0]
	if join.Group != "billíng" || join.Member != "w 1" || len(join.Subscription.Topics) != 2 || join.Start.Time != 5 || join.Kind != topic.ConnectedMember {
		t.Errorf("joined with %+v, %+v", join, join.Subscription)
	}
	s.cancel()
	until(t, func() bool { return groups.disconnected() == 1 })

	auto := w.stream("/v1/groups/billing/members/-/records?topic_prefix=or&ack=auto&value_format=base64")
	if line := auto.line(); !strings.Contains(line, `"member":"m-1"`) {
		t.Errorf("the first line is %s", line)
	}
	if line := auto.line(); !strings.Contains(line, `"value_encoding":"base64"`) {
		t.Errorf("a record is %s", line)
	}
	until(t, func() bool {
		groups.mu.Lock()
		defer groups.mu.Unlock()
		return len(groups.commits) == 1 && groups.commits[0].Next == 2
	})
	groups.mu.Lock()
	groups.refuse = true
	groups.mu.Unlock()
	w.produceValues("2")
	for !strings.HasPrefix(auto.line(), `{"not_committed":[{"topic":"orders","partition":0,"next_offset":3,"reason":"beyond_end"}]}`) {
	}
	w.send("DELETE", "/v1/topics/orders", "").want(t, 204)
}

func TestGroupStreamRefuses(t *testing.T) {
	groups := &lineGroups{}
	w := start(t, withLineGroups(t, groups))
	w.produceValues("0")
	const at = "/v1/groups/billing/members/w1/records"
	w.send("GET", at, "").want(t, 422, "topic_prefix")
	w.send("GET", at+"?topics=orders&topic_prefix=o", "").want(t, 422)
	w.send("GET", at+"?topics=or%20ders", "").want(t, 422, `"field":"topics[0]"`)
	w.send("GET", at+"?topics=orders&start=-3", "").want(t, 422, `"field":"start"`)
	w.send("GET", at+"?topic_pattern=(&start=5&ack=later&value_format=xml", "").want(t, 422,
		`"field":"topic_pattern"`, `"field":"start"`, `"field":"ack"`, `"field":"value_format"`)
	w.send("GET", at+"?topic=orders", "").want(t, 400, "topics")
	w.send("GET", "/v1/groups/a%0Ab/members/w1/records?topics=orders", "").want(t, 422)
	w.send("HEAD", at+"?topics=orders", "").want(t, 405)
	groups.trouble = fault.Newf("fake", fault.Stopping, nil, "the node is stopping")
	w.send("GET", at+"?topics=orders", "").want(t, 503, "stopping")
	groups.trouble = fault.Newf("fake", fault.Limit, nil, "the group is full")
	w.send("GET", at+"?topics=orders", "").want(t, 409, "limit_exceeded")
	if len(groups.joins) != 0 {
		t.Errorf("%d joined", len(groups.joins))
	}
}
