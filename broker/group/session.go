package group

import (
	"slices"
	"time"

	"github.com/weirlog/weir/topic"
)

// deadline is when a member's session ends; false: not while its poll waits.
func (g *Group) deadline(m *member) (time.Time, bool) {
	if m.kind == topic.PollingMember {
		end := m.seen.Add(g.settings.MaxPollInterval)
		if !m.closed.IsZero() {
			// A poll may wait for longer than the interval. A proxy that cut it short has not ended the session:
			// its caller has the time to come again.
			if grace := m.closed.Add(min(g.settings.RejoinGrace, g.settings.MaxPollInterval)); grace.After(end) {
				end = grace
			}
		}
		return end, !m.waiting
	}
	end := m.seen.Add(g.settings.Session)
	if !m.closed.IsZero() {
		if grace := m.closed.Add(g.settings.RejoinGrace); grace.Before(end) {
			end = grace
		}
	}
	return end, true
}

// cut is when a partition that was taken away goes, whether its holder has given it up or not: who shows
// signs of life and never looks at its assignment holds up others for no longer than who shows none.
func (g *Group) cut(p *part) time.Time {
	if p.holder.kind == topic.PollingMember {
		return p.leftAt.Add(g.settings.MaxPollInterval)
	}
	return p.leftAt.Add(g.settings.Session)
}

// mind keeps wake before an end that was found. Ends mostly move away, and wake does not follow them:
// Expire finds nothing then, and the next one.
func (g *Group) mind(end time.Time) {
	if g.wake.IsZero() || end.Before(g.wake) {
		g.wake = end
	}
}

func (g *Group) mindMember(m *member) {
	if end, ends := g.deadline(m); ends {
		g.mind(end)
	}
}

// remind finds wake anew.
func (g *Group) remind() {
	g.wake = time.Time{}
	for _, m := range g.byName {
		g.mindMember(m)
		if g.leaving == 0 {
			continue
		}
		for _, p := range m.held {
			if p.leaving != topic.NoGroupEpoch {
				g.mind(g.cut(p))
			}
		}
	}
	if len(g.byName) == 0 && g.logged {
		g.mind(g.forgetAt())
	}
}

// forgetAt is when a group without members goes.
func (g *Group) forgetAt() time.Time {
	return time.UnixMilli(int64(g.emptySince)).Add(g.cfg.OffsetsRetention)
}

// NextExpiry says when to call [Group.Expire]: nothing ends before. It may turn out that nothing ends then
// either, since a call that renews a session does not look for the next end.
func (g *Group) NextExpiry() (time.Time, bool) { return g.wake, !g.wake.IsZero() }

// Expire ends what is over: sessions, the time that members have to give up partitions, and the whole
// group, once it has had no members for the retention of offsets.
func (g *Group) Expire(now time.Time) []Record {
	if g.wake.IsZero() || now.Before(g.wake) {
		return nil
	}
	g.enter(now)
	for _, m := range slices.Clone(g.byName) {
		if end, ends := g.deadline(m); ends && !now.Before(end) {
			if m.kind == topic.PollingMember { // a connected one was told, and may have let go of what it had read
				for _, p := range m.held {
					if p.leaving == topic.NoGroupEpoch {
						p.expired, p.elder = p.assigned, m.since
					}
				}
			}
			g.remove(m)
			continue
		}
		if g.release(m, func(p *part) bool { return !now.Before(g.cut(p)) }) {
			g.tell(m) // a reader that still holds on to what it read there can let go
		}
	}
	g.balance()
	all := g.records()
	if len(g.byName) == 0 && g.logged && !now.Before(g.forgetAt()) {
		all = g.expire()
	}
	g.remind()
	return all
}

// Alive is a sign of life of a connected member. One from before a take-over is of somebody else.
func (g *Group) Alive(name topic.MemberName, epoch topic.GroupEpoch, now time.Time) {
	if m := g.members[name]; m != nil && m.takes(epoch) {
		m.seen, m.closed = now, time.Time{}
	}
}

// EndPoll says that the member's poll waits no longer. While it waits, from the Poll that was no heartbeat
// on, the session of a polling member does not end. With alive it begins anew now, else the caller hung up:
// the session has gone on since the last call, and ends no sooner than the grace from now. A poll whose
// place another one has taken is not to be ended, the other one waits.
func (g *Group) EndPoll(name topic.MemberName, alive bool, now time.Time) {
	m := g.members[name]
	if m == nil || !m.waiting {
		return
	}
	m.waiting = false
	if m.closed = now; alive {
		m.seen, m.closed = now, time.Time{}
	}
	g.mindMember(m)
}

// Disconnect says that the connection of a connected member was closed: unless there is a sign of life
// its session ends with the grace.
func (g *Group) Disconnect(name topic.MemberName, epoch topic.GroupEpoch, now time.Time) {
	m := g.members[name]
	if m == nil || m.kind != topic.ConnectedMember || !m.takes(epoch) || !m.closed.IsZero() {
		return
	}
	m.closed = now
	g.mindMember(m)
}
