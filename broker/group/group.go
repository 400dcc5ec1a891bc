package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlog/weir/topic"
)

// World is what the rules may look at of the cluster: one picture of it for the length of a call.
type World interface {
	// Topic finds a topic by its name.
	Topic(name topic.Name) (id topic.ID, partitions int, ok bool)
	// TopicByID finds a topic by its id; one that was deleted is not found, even when its name is back.
	TopicByID(id topic.ID) (name topic.Name, partitions int, ok bool)
	// Topics goes through all topics but weir's own, by name, until yield returns false.
	Topics(yield func(name topic.Name, id topic.ID, partitions int) bool)
	// End is the high watermark of a partition, where it is known here.
	End(ref topic.Ref) (topic.Offset, bool)
}

// Config of a group. The zero value is not valid.
type Config struct {
	Settings         topic.GroupSettings // of groups without overrides
	OffsetsRetention time.Duration       // a group that has had no members for this long is forgotten
	MaxMembers       int                 // of one group
}

// Group is the state of one group. Its owner calls it from one goroutine at a time.
type Group struct {
	name topic.GroupName
	cfg  Config

	// What is recorded.
	epoch      topic.GroupEpoch
	exists     bool // false: never made, deleted, or expired
	logged     bool // a record of the group itself stands in the log
	overrides  map[string]string
	start      topic.GroupStart
	createdAt  topic.Millis
	emptySince topic.Millis // or of the deletion; NoTimestamp while it has members
	members    map[topic.MemberName]*member
	met        map[topic.ID]*met

	// What follows from it.
	settings  topic.GroupSettings
	byName    []*member // all members, by name
	topics    []*met    // all topics met, by name and id
	interests []*interest
	leaving   int // partitions that are taken away and not given up

	// What is neither: the call that is going on, and who is to be told.
	now        time.Time
	raised     bool // this call has raised the epoch
	unbalanced bool // who reads what has to be decided anew
	free       []*part
	wake       time.Time // nothing ends before it; zero: nothing ends
	moved      []topic.MemberName
	moves      int // partitions that this call has moved, or taken away
	rebalances uint64

	dirty        bool
	dirtyMembers []*member
	dirtyTopics  []*met
	dirtyParts   []*part
	tombstones   []Record
}

// New returns the group of that name before its first record.
func New(name topic.GroupName, cfg Config) *Group {
	g := &Group{name: name, cfg: cfg}
	g.forget()
	return g
}

// forget leaves nothing of the group but its name and epoch.
func (g *Group) forget() {
	g.exists, g.overrides, g.start = false, nil, topic.GroupStart{}
	g.settings = g.cfg.Settings
	g.createdAt, g.emptySince = topic.NoTimestamp, topic.NoTimestamp
	g.members, g.met = map[topic.MemberName]*member{}, map[topic.ID]*met{}
	g.byName, g.topics, g.interests, g.leaving = nil, nil, nil, 0
}

// Name is the group's name.
func (g *Group) Name() topic.GroupName { return g.name }

// Exists says whether there is such a group: not one that is new, was deleted or has expired.
func (g *Group) Exists() bool { return g.exists }

// Gone says that nothing of the group is left, not in the log either. It can be forgotten.
func (g *Group) Gone() bool { return !g.exists && !g.logged }

// Members are the names of all members, in order.
func (g *Group) Members() []topic.MemberName {
	names := make([]topic.MemberName, len(g.byName))
	for i, m := range g.byName {
		names[i] = m.name
	}
	return names
}

// Size is the number of members.
func (g *Group) Size() int { return len(g.byName) }

// HasMember says whether the group has a member of that name.
func (g *Group) HasMember(name topic.MemberName) bool {
	_, ok := g.members[name]
	return ok
}

// Rebalances is how many calls have moved partitions, or taken them away, since the group was loaded.
func (g *Group) Rebalances() uint64 { return g.rebalances }

// Moved returns, in no order and each once, the members whose assignment or position in it has changed
// since Moved was last called, and those that are gone or were taken over: what they were answered is out
// of date. The member whose call it was is among them when its call changed it.
func (g *Group) Moved() []topic.MemberName {
	moved := g.moved
	g.moved = nil
	for _, name := range moved {
		if m := g.members[name]; m != nil {
			m.moved = false
		}
	}
	slices.Sort(moved)
	return slices.Compact(moved)
}

// member is one who reads. What it holds stands in the parts as well; give and drop keep the two in step.
type member struct {
	name      topic.MemberName
	epoch     topic.GroupEpoch // of the last change that concerned it
	since     topic.GroupEpoch // of its join or take-over: calls with lower epochs are fenced
	also      topic.GroupEpoch // with which it came back after its session had ended: is taken too
	kind      topic.MemberKind
	principal string
	node      topic.NodeID
	joinedAt  topic.Millis
	interest  *interest
	held      []*part // what it has, with what it has still to give up; in order only after refresh
	awaits    []*part // what it is to have, and others hold

	// The session: never recorded.
	seen    time.Time // the last sign of life
	closed  time.Time // when its connection was closed, or its waiting poll given up; zero: it was not
	waiting bool      // a poll of it waits
	at      topic.NodeID
	told    topic.GroupEpoch // the newest that an answer to it has had, or may have had

	view     []topic.Assignment // the answer to its polls; immutable, since those who were answered share it
	waits    []topic.GroupWaiting
	stale    bool // view and waits are out of date
	dirty    bool // it has to be recorded
	gone     bool // it left, or its session ended
	moved    bool // stands in Group.moved
	replayed []heldPartition
}

// met is a topic that the group reads, has read, or has a commit in.
type met struct {
	id    topic.ID
	name  topic.Name
	known int     // the partitions that it had when the group met it; 0: it has a commit by a seek, and is not met
	parts []*part // by number
	dirty bool
	grown bool // partitions were added in this call
	gone  bool // it was deleted
}

// part is one partition of such a topic.
type part struct {
	topic    *met
	number   topic.Partition
	holder   *member          // whose commits count
	target   *member          // who is to read it
	assigned topic.GroupEpoch // in which the holder got it, or a seek moved it
	leaving  topic.GroupEpoch // in which it was taken away from the holder, or NoGroupEpoch
	leftAt   time.Time        // when it was; never recorded
	expired  topic.GroupEpoch // the assignment that ended with its member's session, while nothing followed it; never recorded
	elder    topic.GroupEpoch // with expired: calls with lower epochs are of a process that this member had been taken over from

	committed topic.Offset
	lastEpoch topic.Epoch
	by        topic.GroupEpoch // of the assignment that committed it
	at        topic.Millis
	metadata  string
	dirty     bool
}

func (p *part) ref() topic.Ref   { return topic.Ref{ID: p.topic.id, Partition: p.number} }
func (p *part) path() topic.Path { return topic.Path{Topic: p.topic.name, Partition: p.number} }

func comparePart(a, b *part) int {
	if a.topic != b.topic {
		return compareMet(a.topic, b.topic)
	}
	return cmp.Compare(a.number, b.number)
}

func compareMet(a, b *met) int {
	return cmp.Or(cmp.Compare(a.name, b.name), slices.Compare(a.id[:], b.id[:]))
}

// grow gives the topic at least n partitions.
func (t *met) grow(n int) {
	for len(t.parts) < n {
		t.parts = append(t.parts, &part{
			topic: t, number: topic.Partition(len(t.parts)),
			committed: topic.NoOffset, lastEpoch: topic.NoEpoch, at: topic.NoTimestamp,
		})
		t.grown = true
	}
}

// part finds a partition that the group knows.
func (g *Group) part(ref topic.Ref) *part {
	t := g.met[ref.ID]
	if t == nil || ref.Partition < 0 || int(ref.Partition) >= len(t.parts) {
		return nil
	}
	return t.parts[ref.Partition]
}

// topic finds a topic, or adds it as one that the group has not met.
func (g *Group) topic(id topic.ID, name topic.Name) *met {
	t := g.met[id]
	if t == nil {
		t = &met{id: id, name: name}
		g.met[id] = t
		at, _ := slices.BinarySearchFunc(g.topics, t, compareMet)
		g.topics = slices.Insert(g.topics, at, t)
	}
	return t
}
