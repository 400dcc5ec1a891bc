package session

import (
	"slices"

	"github.com/weirlog/weir/topic"
)

// groupless refuses what only a subscription with a group has: who leaves the group out by mistake would
// else read everything, and acknowledge nothing.
func (f *opFrame) groupless() error {
	for _, one := range []struct {
		raw  []byte
		name string
	}{{f.memberName, "member"}, {f.prefix, "topic_prefix"}, {f.pattern, "topic_pattern"}, {f.ack, "ack"}, {f.start, "start"}} {
		if given(one.raw) {
			return invalid("%s goes with group, which is missing", one.name)
		}
	}
	return nil
}

// readJoin reads a subscribe with a group.
func (f *opFrame) readJoin(c *command) error {
	for _, one := range []struct {
		raw        []byte
		name, hint string
	}{{f.partitions, "partitions", "which gives out the partitions"}, {f.from, "from", "see start"}, {f.onGap, "on_gap", "see start"}} {
		if given(one.raw) {
			return invalid("%s does not go with group: %s", one.name, one.hint)
		}
	}
	var group, ack, start string
	member := string(topic.MadeMember)
	j := &Join{}
	for _, err := range []error{
		read(f.group, "group", &group, "a string"),
		read(f.memberName, "member", &member, "a string"),
		read(f.prefix, "topic_prefix", &j.Subscription.Prefix, "a string"),
		read(f.pattern, "topic_pattern", &j.Subscription.Pattern, "a string"),
		read(f.ack, "ack", &ack, "a string"),
		read(f.start, "start", &start, "a string"),
	} {
		if err != nil {
			return err
		}
	}
	var err error
	if j.Group, err = topic.ParseGroupName(group); err != nil {
		return err
	}
	if j.Member, err = topic.ParseMemberName(member); err != nil {
		return err
	}
	if j.Subscription.Topics, err = f.readTopics(); err != nil {
		return err
	}
	if err := checkSubscription(&j.Subscription); err != nil {
		return err
	}
	switch ack {
	case "", "manual":
	case "auto":
		j.Auto = true
	default:
		return invalid("ack must be manual or auto")
	}
	if j.Start, err = parseStart(start); err != nil {
		return err
	}
	if c.credit, err = f.readCredit(); err != nil {
		return err
	}
	j.Format.Values, err = f.readFormat()
	c.join = j
	return err
}

// checkSubscription puts the topics of a subscription in order, and refuses one that says nothing or two things.
func checkSubscription(s *topic.Subscription) error {
	slices.Sort(s.Topics)
	s.Topics = slices.Compact(s.Topics)
	ways := 0
	for _, there := range []bool{len(s.Topics) > 0, s.Prefix != "", s.Pattern != ""} {
		if there {
			ways++
		}
	}
	if ways != 1 {
		return invalid("one of topics, topic_prefix and topic_pattern is required, and only one")
	}
	return nil
}

// readAck reads the cursor of an ack.
func (f *opFrame) readAck(c *command) error {
	var text string
	if err := read(f.cursor, "cursor", &text, "a string"); err != nil {
		return err
	}
	if text == "" {
		return invalid("cursor is required")
	}
	var err error
	c.cursor, err = topic.ParseGroupCursor(text)
	return err
}
