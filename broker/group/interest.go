package group

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Bounds of a subscription. A member's record holds it, so it has to be small beside a record of __groups.
// A topic that goes can change every member, and the records of one call are one batch: all members together
// have a bound too. A group past it could write nothing any more, and nor could others beside it.
const (
	MaxSubscriptionBytes = 256 << 10 // of the names of topics together
	MaxMembersBytes      = 6 << 20   // of the records of a group's members, but for what they are assigned
)

// interest is a subscription and the topics that it comes to. Members with the same subscription share
// one, so that a thousand of them do not look the topics up a thousand times.
type interest struct {
	sub     topic.Subscription
	pattern *regexp.Regexp
	matched map[topic.Name]bool // of the topics that exist, whether the pattern matches: it may take a while
	bytes   int                 // of the subscription in a record
	refused bool                // an older program has taken it, and this one does not: it takes in nothing, and nobody asks for it
	members int
	topics  []*met // that exist, by name
}

// interest finds the interest that a subscription is, or makes one, which is not among the group's yet.
func (g *Group) interest(s *topic.Subscription) (*interest, error) {
	for _, it := range g.interests {
		if it.is(s) {
			return it, nil
		}
	}
	bad := func(format string, args ...any) (*interest, error) {
		return nil, fault.Newf("group.Subscribe", fault.Validation, g.name, format, args...)
	}
	ways := 0
	for _, given := range []bool{len(s.Topics) > 0, s.Prefix != "", s.Pattern != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return bad("a subscription names topics, a prefix or a pattern, and only one of the three")
	}
	if len(s.Prefix) > topic.MaxNameBytes {
		return bad("the prefix is longer than %d bytes", topic.MaxNameBytes)
	}
	size := 0
	for i, name := range s.Topics {
		if i > 0 && name <= s.Topics[i-1] {
			return bad("the topics of a subscription are not in order, or one stands twice")
		}
		if _, err := topic.ParseName(string(name)); err != nil {
			return bad("%w", err)
		}
		if name.Internal() { // each commit would be a record for the group to read
			return nil, fault.Newf("group.Subscribe", fault.Forbidden, g.name, "topic %q is weir's own; groups do not read those", name)
		}
		size += len(name)
	}
	if size > MaxSubscriptionBytes {
		return bad("the names of the topics have more than %d bytes together; a prefix or a pattern is shorter", MaxSubscriptionBytes)
	}
	it := newInterest(topic.Subscription{Topics: slices.Clone(s.Topics), Prefix: s.Prefix, Pattern: s.Pattern})
	if s.Pattern != "" {
		pattern, err := topic.ParsePattern(s.Pattern)
		if err != nil {
			return bad("the pattern %s", fault.Sentence(err))
		}
		it.pattern = pattern
	}
	return it, nil
}

func newInterest(s topic.Subscription) *interest {
	it := &interest{sub: s, bytes: len(s.Prefix) + len(s.Pattern)}
	for _, name := range s.Topics {
		it.bytes += len(name) + 1
	}
	return it
}

// recordBytes is about what a member takes in the log, but for its assignment.
func (g *Group) recordBytes(name topic.MemberName, principal string, it *interest) int {
	const rest = 64 // numbers, and what a batch has of each record
	return rest + len(g.name) + len(name) + len(principal) + it.bytes
}

// holds checks that there is room for a member, or for what one wants to read in place of what it reads.
func (g *Group) holds(p *topic.GroupPoll, wants *interest) error {
	total := g.recordBytes(p.Member, p.Principal, wants)
	for _, m := range g.byName {
		if m.name != p.Member {
			total += g.recordBytes(m.name, m.principal, m.interest)
		}
	}
	if total > MaxMembersBytes {
		return fault.Newf("group.Poll", fault.Limit, g.name, "what the members of the group subscribe would have %d bytes together, at most %d are kept; a prefix or a pattern is shorter than names", total, MaxMembersBytes)
	}
	return nil
}

// is says whether this is the interest of that subscription.
func (it *interest) is(s *topic.Subscription) bool {
	return !it.refused && it.sub.Prefix == s.Prefix && it.sub.Pattern == s.Pattern && slices.Equal(it.sub.Topics, s.Topics)
}

// matches says whether it takes in a topic of that name.
func (it *interest) matches(name topic.Name) bool {
	switch {
	case it.refused:
		return false
	case len(it.sub.Topics) > 0:
		_, found := slices.BinarySearch(it.sub.Topics, name)
		return found
	case name.Internal():
		return false
	case it.sub.Pattern != "":
		return it.pattern != nil && it.pattern.MatchString(string(name))
	default:
		return strings.HasPrefix(string(name), it.sub.Prefix)
	}
}

// each goes through the topics that it takes in, by name.
func (it *interest) each(w World, yield func(name topic.Name, id topic.ID, partitions int)) {
	if it.refused {
		return
	}
	if len(it.sub.Topics) > 0 {
		for _, name := range it.sub.Topics {
			if id, partitions, ok := w.Topic(name); ok {
				yield(name, id, partitions)
			}
		}
		return
	}
	var matched map[topic.Name]bool
	if it.pattern != nil {
		matched = make(map[topic.Name]bool, len(it.matched))
	}
	w.Topics(func(name topic.Name, id topic.ID, partitions int) bool {
		matches, known := it.matched[name]
		if !known {
			matches = it.matches(name)
		}
		if matched != nil {
			matched[name] = matches
		}
		if matches {
			yield(name, id, partitions)
		}
		return true
	})
	it.matched = matched
}

// adopt makes an interest one of a member's, in place of the one that it had.
func (g *Group) adopt(m *member, it *interest) {
	if !slices.Contains(g.interests, it) {
		g.interests = append(g.interests, it)
	}
	it.members++
	if m.interest != nil {
		g.abandon(m)
	}
	m.interest = it
}

// abandon takes a member's interest from it.
func (g *Group) abandon(m *member) {
	if m.interest.members--; m.interest.members == 0 {
		g.interests = slices.DeleteFunc(g.interests, func(it *interest) bool { return it == m.interest })
	}
	m.interest = nil
}

// look finds anew the topics of an interest. Those that the group meets here begin where starts say, by
// the group's start policy; with starts nil, and where the log's end was not asked for, at their beginning.
func (g *Group) look(it *interest, starts map[topic.Ref]topic.Offset, w World) {
	topics := make([]*met, 0, len(it.topics))
	it.each(w, func(name topic.Name, id topic.ID, partitions int) {
		t := g.topic(id, name)
		t.grow(partitions)
		if t.known == 0 {
			t.known = partitions
			g.touchTopic(t)
			g.startIn(t, starts)
		}
		topics = append(topics, t)
	})
	if !slices.Equal(topics, it.topics) {
		it.topics = topics
		g.unbalanced = true
	}
}

// startIn commits the offsets at which the group starts in a topic that it has just met.
func (g *Group) startIn(t *met, starts map[topic.Ref]topic.Offset) {
	if g.start.Kind == topic.AtEarliest || len(starts) == 0 {
		return
	}
	for _, p := range t.parts {
		if p.committed != topic.NoOffset {
			continue
		}
		if offset, ok := starts[p.ref()]; ok {
			g.place(p, offset, topic.NoEpoch)
		}
	}
}

// Unstarted says which offsets a poll needs, and what they are to be: those of the partitions, without a
// commit, of topics that the group is about to meet. They are handed to [Group.Poll]. There are none
// where the group starts at the logs' beginning.
func (g *Group) Unstarted(p *topic.GroupPoll, w World) (topic.GroupStart, []topic.Ref) {
	start, m := startOf(p), g.members[p.Member]
	if m != nil && !joins(p) {
		start = g.start
	}
	if p.Subscription == nil || start.Kind == topic.AtEarliest || m != nil && m.interest.is(p.Subscription) {
		return start, nil
	}
	it, err := g.interest(p.Subscription)
	if err != nil {
		return start, nil // Poll says so
	}
	var refs []topic.Ref
	it.each(w, func(name topic.Name, id topic.ID, partitions int) {
		t := g.met[id]
		if t != nil && t.known > 0 || g.reads(name) {
			return
		}
		for n := range topic.Partition(partitions) {
			ref := topic.Ref{ID: id, Partition: n}
			if known := g.part(ref); known == nil || known.committed == topic.NoOffset {
				refs = append(refs, ref)
			}
		}
	})
	return start, refs
}

// reads says whether some member subscribes a topic of that name.
func (g *Group) reads(name topic.Name) bool {
	return slices.ContainsFunc(g.interests, func(it *interest) bool { return it.matches(name) })
}

// Affected says whether it can matter to the group that a topic was made, deleted, or given partitions.
// When it does the group wants a call of [Group.TopicsChanged].
func (g *Group) Affected(name topic.Name, id topic.ID) bool {
	_, known := g.met[id]
	return known || g.reads(name)
}

// TopicsChanged looks at the topics anew: topics and partitions that are new are read from their
// beginning, and the offsets of deleted topics go.
func (g *Group) TopicsChanged(w World, now time.Time) []Record {
	g.enter(now)
	g.survey(w)
	g.balance()
	return g.records()
}

// survey finds what is new, and what is gone, among the topics of the group.
func (g *Group) survey(w World) {
	gone := false
	for _, t := range g.topics {
		if _, _, ok := w.TopicByID(t.id); !ok {
			g.lose(t)
			gone = true
		}
	}
	if gone {
		g.topics = slices.DeleteFunc(g.topics, func(t *met) bool { return t.gone })
		for _, m := range g.byName {
			m.held = slices.DeleteFunc(m.held, func(p *part) bool { return p.topic.gone })
		}
	}
	for _, it := range g.interests {
		g.look(it, nil, w)
	}
	for _, it := range g.interests {
		for _, t := range it.topics {
			if t.grown {
				t.grown, g.unbalanced = false, true
			}
		}
	}
}

// lose takes a topic that was deleted, and what the group has of it, out of the group's records.
func (g *Group) lose(t *met) {
	t.gone, g.unbalanced = true, true
	delete(g.met, t.id)
	for _, p := range t.parts {
		if p.holder != nil {
			if p.leaving != topic.NoGroupEpoch {
				g.leaving--
			}
			g.concern(p.holder)
			p.holder = nil
		}
		if p.committed != topic.NoOffset {
			g.bury(offsetKey(g.name, p.ref()))
		}
	}
	g.bury(topicKey(g.name, t.id))
}
