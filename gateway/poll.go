package gateway

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// PollGroup answers POST /v1/groups/{group}/members/{member}/poll.
func (g groups) PollGroup(c *fiber.Ctx, group api.GroupPath, member api.MemberPath, _ api.PollGroupParams) error {
	p := poll{s: g.s}
	var err error
	if p.ask.Group, p.ask.Member, err = g.member(group, member); err != nil {
		return err
	}
	if err := p.readBody(c); err != nil {
		return err
	}
	p.ask.Principal, p.ask.Node = principal(c), g.s.deps.NodeID
	p.limit, p.client = deadlineOf(c.Context()), connOf(c.Context())
	defer p.close()
	if err := p.run(); err != nil {
		return err
	}
	return p.answer(c)
}

// groupTimeout is the longest wait for the coordinator of a group.
const groupTimeout = 10 * time.Second

// poll is one call of a member, from its request to its answer.
type poll struct {
	s      *Server
	limit  *deadline
	client *conn

	ask     topic.GroupPoll
	after   topic.GroupCursor // where to go on without a commit; empty: at what is committed
	autoAck bool
	q       reading

	turn    topic.GroupTurn
	late    bool // nothing is waited for: the member does not know yet what it has
	over    bool // somebody else goes on under the member's name
	parts   []pollPart
	first   int // of parts: where the reading begins
	moved   int // of parts: how many were read past where the group stands
	page    recordPage
	full    bool
	trouble error // of a part that may be read later
	ears    []func()

	committed []topic.GroupCommit // what counted
	not       []topic.NotCommitted
}

// run makes a page: of what there is, or, where there is nothing, of what comes.
func (p *poll) run() error {
	if err := p.take(); err != nil {
		return err
	}
	p.place()
	if err := p.fill(); err != nil {
		return err
	}
	if !p.enough() {
		if err := p.wait(); err != nil {
			return err
		}
	}
	if p.trouble != nil && p.page.records == 0 && len(p.page.gaps) == 0 && p.allTroubled() {
		return p.trouble
	}
	return p.commitPage()
}

// take tells the node of the poll, and learns what to read.
func (p *poll) take() error {
	ctx := p.limit.begin(p.s.works, groupTimeout)
	defer p.limit.end()
	acks := p.ask.Ack
	turn, err := p.s.deps.Groups.PollGroup(ctx, &p.ask)
	if err != nil {
		return err
	}
	p.turn, p.not = turn, turn.NotCommitted
	p.committed = counted(acks, turn.NotCommitted)
	p.ask.Ack, p.ask.Member, p.ask.Turn = nil, turn.Member, turn.Turn // should the poll go on
	p.late = p.ask.Epoch != topic.NoGroupEpoch && p.ask.Epoch < turn.Epoch
	return nil
}

// close ends the poll for the node, which counts it as a sign of life unless its caller has gone.
func (p *poll) close() {
	p.deafen()
	if p.page.pageBody != nil {
		p.page.drop()
	}
	if p.turn.Turn != 0 {
		p.s.deps.Groups.EndTurn(p.ask.Group, p.turn.Member, p.turn.Turn, !p.over && !p.limit.left())
	}
}

// wait reads on whenever there may be more, until there is enough, the time is up, or what the member has
// changes: then the page is made anew, of what there is.
func (p *poll) wait() error {
	ctx := p.limit.beginWait(p.s.waits, p.q.wait, p.client)
	defer p.limit.end()
	bell := make(chan struct{}, 1)
	p.listen(bell)
	for {
		// Also the first time: something may have come before the bell was there.
		if err := p.fill(); err != nil || p.enough() {
			return err
		}
		if p.page.pageBody != nil && p.page.records == 0 {
			p.closePage() // who waits holds no memory
		}
		select {
		case <-bell:
		case <-p.again():
		case <-ctx.Done():
			return nil
		case <-p.turn.Changed:
			if err := p.change(); err != nil {
				return err
			}
			if !p.late {
				p.listen(bell)
			}
		}
	}
}

// troubledAgain is when a part that could not be read is tried again.
const troubledAgain = 500 * time.Millisecond

// again rings when a part is to be tried again that could not be read; nil where there is none.
func (p *poll) again() <-chan time.Time {
	if p.trouble == nil {
		return nil
	}
	return time.After(troubledAgain)
}

// change learns what has changed since the poll began.
func (p *poll) change() error {
	ctx, cancel := context.WithTimeout(p.s.works, groupTimeout)
	defer cancel()
	turn, err := p.s.deps.Groups.PollGroup(ctx, &p.ask)
	if err != nil {
		p.over = fault.Is(err, fault.Superseded) || fault.Is(err, fault.FencedMember)
		if len(p.committed) > 0 {
			return fault.Newf("gateway.Poll", fault.KindOf(err), nil, "%s; what the poll acknowledged is committed", fault.Sentence(err))
		}
		return err
	}
	same := turn.Epoch == p.turn.Epoch
	p.turn = turn
	if same {
		return nil
	}
	p.late = true
	p.closePage()
	p.place()
	return nil
}

// enough says that the page need not wait for more.
func (p *poll) enough() bool {
	switch {
	case p.late, p.q.wait == 0, p.full, len(p.page.gaps) > 0:
		return true
	default:
		return p.page.records > 0 && p.page.bytes() >= p.q.minBytes
	}
}

// listen rings bell for the parts that are read now. One that cannot be listened to is one in trouble, or
// about to be taken away.
func (p *poll) listen(bell chan<- struct{}) {
	p.deafen()
	for i := range p.parts {
		if stop, err := p.s.node.Listen(p.parts[i].ref(), bell); err == nil {
			p.ears = append(p.ears, stop)
		}
	}
}

func (p *poll) deafen() {
	for _, stop := range p.ears {
		stop()
	}
	p.ears = p.ears[:0]
}

// commitPage commits what the page has, for a member that asked for it. Without that the page is none.
func (p *poll) commitPage() error {
	if !p.autoAck {
		return nil
	}
	cursor := p.cursor()
	acks := cursor.Commits()
	if len(acks) == 0 {
		return nil
	}
	ask := p.ask
	ask.Heartbeat, ask.Turn, ask.Epoch, ask.Ack, ask.Subscription = true, 0, p.turn.Epoch, acks, nil
	ctx := p.limit.begin(p.s.works, groupTimeout)
	defer p.limit.end()
	turn, err := p.s.deps.Groups.PollGroup(ctx, &ask)
	if err != nil {
		return err
	}
	done := counted(acks, turn.NotCommitted)
	for _, one := range done {
		for i := range p.parts {
			if p.parts[i].ref() == one.Ref {
				p.parts[i].committed = one.Next
			}
		}
	}
	p.committed = append(p.committed, done...)
	p.not = append(p.not, turn.NotCommitted...)
	return nil
}

// counted are the commits that are not among those that did not count.
func counted(acks []topic.GroupCommit, not []topic.NotCommitted) []topic.GroupCommit {
	if len(not) == 0 {
		return acks
	}
	refused := make(map[topic.Ref]struct{}, len(not))
	for _, one := range not {
		refused[one.Ref] = struct{}{}
	}
	done := make([]topic.GroupCommit, 0, max(0, len(acks)-len(not)))
	for _, one := range acks {
		if _, no := refused[one.Ref]; !no {
			done = append(done, one)
		}
	}
	return done
}
