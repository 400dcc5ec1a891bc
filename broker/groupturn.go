package broker

import (
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// longestTurn bounds how long a member over REST is taken for alive because its poll waits. A poll waits for
// a minute at most; one that is older was forgotten by whoever made it. Looks for such are sweepEvery apart.
const (
	longestTurn = 2 * time.Minute
	sweepEvery  = time.Minute
)

// turn is the latest poll of a member.
type turn struct {
	number  uint64
	waiting bool             // nobody has said that it is over
	kind    topic.MemberKind // of the member
	at      time.Time        // of its last call
	fenced  uint64           // turns up to this one were ended by a take-over
	changed chan struct{}    // nil after it was closed, or promised to a flight
}

// wake tells the turn's caller at once. The channel is not the turn's any more.
func (t *turn) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// notify tells a member's waiting poll that its answer is out of date, once a flight is committed.
func (s *seat) notify(m topic.MemberName, f *flight) {
	t, ok := s.turns[m]
	if !ok {
		return
	}
	s.let(&t, f)
	if s.group.HasMember(m) {
		s.turns[m] = t
	} else {
		delete(s.turns, m)
	}
}

func (s *seat) let(t *turn, f *flight) {
	if f == nil || f.landed || t.changed == nil {
		t.wake()
		return
	}
	f.wakes = append(f.wakes, t.changed)
	t.changed = nil
}

// goesOn says whether a poll that comes back with its turn is still the member's. mu of the coordinator
// is held, as for all of these.
func (s *seat) goesOn(op string, p *topic.GroupPoll) error {
	t, known := s.turns[p.Member]
	switch {
	case known && p.Turn <= t.fenced:
		return fault.Newf(op, fault.FencedMember, p.Group, "another process has taken over the name of member %q", p.Member)
	case known && p.Turn < t.number:
		return fault.Newf(op, fault.Superseded, p.Group, "another poll of member %q has taken the place of this one", p.Member)
	case !s.group.HasMember(p.Member):
		return fault.Newf(op, fault.NoMember, p.Group, "member %q is not in the group any more", p.Member)
	}
	return nil
}

// begin gives a poll that was answered its turn, or lets it go on with the one that it has. f is what the
// answer waits for.
func (s *seat) begin(p *topic.GroupPoll, answer *topic.GroupTurn, desk *coordinators, f *flight, now time.Time) {
	t := s.turns[p.Member]
	if t.waiting && p.Turn != t.number {
		s.let(&t, f)
	}
	if p.Turn == 0 {
		if p.Epoch == topic.NoGroupEpoch {
			t.fenced = t.number
		}
		t.number = desk.turns.Add(1)
	} else {
		t.number = p.Turn
	}
	if t.changed == nil { // else nobody listens to it any more, or the same poll still does
		t.changed = make(chan struct{})
	}
	t.waiting, t.kind, t.at = true, p.Kind, now
	if s.turns == nil {
		s.turns = map[topic.MemberName]turn{}
	}
	s.turns[p.Member] = t
	answer.Turn, answer.Changed = t.number, t.changed
}

// end says that a turn is over, as EndTurn does.
func (s *seat) end(m topic.MemberName, t turn, alive bool, now time.Time) {
	t.waiting = false
	s.turns[m] = t
	s.group.EndPoll(m, alive, now)
}

// sweep ends the turns that nobody has ended. As long as a poll waits its member is taken for alive.
func (s *seat) sweep(now time.Time) {
	for m, t := range s.turns {
		if t.waiting && t.kind == topic.PollingMember && now.Sub(t.at) > longestTurn {
			s.end(m, t, false, now)
		}
	}
}
