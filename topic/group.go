package topic

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlog/weir/internal/fault"
)

// GroupName names a consumer group: 1 to 249 bytes of UTF-8 without control characters, '/' and '\', but
// not "." or "..".
type GroupName string

// MemberName names a member within its group, by the rules of a GroupName. It is the client's and stays
// over restarts; "-" asks for one that the node makes.
type MemberName string

// MadeMember is the name that asks for one that the node makes.
const MadeMember MemberName = "-"

// ParseGroupName checks a name and copies it.
func ParseGroupName(s string) (GroupName, error) {
	if err := checkGroupWord("group", s); err != nil {
		return "", err
	}
	return GroupName(strings.Clone(s)), nil
}

// ParseMemberName checks a name and copies it.
func ParseMemberName(s string) (MemberName, error) {
	if err := checkGroupWord("member", s); err != nil {
		return "", err
	}
	return MemberName(strings.Clone(s)), nil
}

func checkGroupWord(what, s string) error {
	bad := func(why string) error {
		return fault.Newf("topic.Parse", fault.Validation, nil, "%s name %s %s", what, quote(s), why)
	}
	switch {
	case s == "":
		return bad("must not be empty")
	case len(s) > MaxNameBytes:
		return bad("is longer than 249 bytes")
	case s == "." || s == "..":
		return bad("is not allowed")
	case !utf8.ValidString(s):
		return bad("is not UTF-8")
	case strings.ContainsAny(s, `/\`):
		return bad(`must not contain "/" or "\"`)
	case strings.ContainsFunc(s, unicode.IsControl):
		return bad("must not contain control characters")
	}
	return nil
}

// GroupEpoch counts the changes of one group: of its members, of what they read, of what is assigned to
// them, and every seek. A member's epoch is that of the last change that concerned it, an assignment's
// the one in which the member got the partition. The first is 1; it never falls, not even when the
// group is deleted and made again.
type GroupEpoch int64

// NoGroupEpoch stands where no epoch is named.
const NoGroupEpoch GroupEpoch = 0

// Subscription says what a member reads: topics by name, or those whose names begin with Prefix, or those
// that Pattern, in RE2, matches as a whole; one of the three. Prefix and Pattern never mean weir's own
// topics. A topic that does not exist yet is read from its beginning once it does.
type Subscription struct {
	Topics  []Name // ascending, each once
	Prefix  string
	Pattern string
}

// IsZero says that nothing is subscribed.
func (s *Subscription) IsZero() bool { return len(s.Topics) == 0 && s.Prefix == "" && s.Pattern == "" }

// GroupStart says where a group begins that has no committed offset in a partition: in those that are
// there when the group first reads their topic. Partitions and topics that come later are read from their
// beginning.
type GroupStart = At

// MemberKind says how a member is heard of, and so how long its session is.
type MemberKind int8

// The kinds.
const (
	PollingMember   MemberKind = iota // over REST: its session is max.poll.interval.ms from its last call
	ConnectedMember                   // over a connection: session.timeout.ms from its last sign of life, rejoin.grace.ms once that is closed
)

// GroupPoll is one call of a member: it joins, renews its session, commits, and learns what is assigned
// to it. The records it fetches itself.
type GroupPoll struct {
	Group     GroupName
	Member    MemberName // MadeMember asks for a name
	Kind      MemberKind
	Principal string
	Node      NodeID // where the member is connected

	// Epoch is that of the answer, or the cursor, which the member saw last. NoGroupEpoch joins: a name
	// that is taken is taken over, and the one who had it is fenced.
	Epoch GroupEpoch
	// Turn, when not 0, is that of an answer whose Changed was closed: the same poll goes on. With it
	// Epoch acknowledges nothing, and Ack is nil.
	Turn uint64
	// Heartbeat renews the session and commits, and is no poll: it waits for nothing, supersedes no
	// other, and its answer has no Turn.
	Heartbeat bool

	Subscription *Subscription // nil leaves it; needed to join
	Start        GroupStart
	Ack          []GroupCommit // what to commit, before anything else
	MadeFrom     string        // with MadeMember: joins with the same text get the same name; may be empty
}

// GroupCommit asks for an offset to be committed.
type GroupCommit struct {
	Ref       Ref
	Next      Offset // the offset to read next
	LastEpoch Epoch  // of the record before Next as the reader saw it, or NoEpoch
	Metadata  string // the member's own, at most MaxCommitMetadata bytes
	// Assigned is the epoch in which the partition was assigned, from a cursor; the commit counts if that
	// still holds. NoGroupEpoch: it counts if the member has held the partition since GroupPoll.Epoch.
	Assigned GroupEpoch
}

// MaxCommitMetadata is the most bytes of metadata that are kept with a committed offset.
const MaxCommitMetadata = 4096

// NotCommitted is an offset of a commit that did not count.
type NotCommitted struct {
	Topic  Name // empty where the topic is gone
	Ref    Ref
	Next   Offset
	Reason NotCommittedReason
}

// NotCommittedReason says why an offset was not committed.
type NotCommittedReason string

// The reasons.
const (
	NotAssigned NotCommittedReason = "not_assigned"     // the partition is not this member's
	Reassigned  NotCommittedReason = "reassigned"       // it is again, or its position was moved by a seek, but not since the epoch named
	TopicGone   NotCommittedReason = "topic_deleted"    // the topic was deleted, perhaps made again
	PastEnd     NotCommittedReason = "beyond_end"       // above the high watermark
	BehindFirst NotCommittedReason = "behind_committed" // below what is committed; only a seek moves back
)

// Assignment is one partition that a member reads.
type Assignment struct {
	Topic     Name
	Ref       Ref
	Assigned  GroupEpoch // the epoch in which it was assigned
	Committed Offset     // where to begin; NoOffset: nothing is committed, begin at the log's start
	LastEpoch Epoch      // of the record before Committed, or NoEpoch
	Leaving   bool       // taken away: commits still count, nothing more is to be read
}

// GroupTurn is the answer to a GroupPoll.
type GroupTurn struct {
	Member     MemberName
	Epoch      GroupEpoch
	Assignment []Assignment // by topic name and partition
	// AssignmentChanged says that the assignment is another one than in the epoch that the poll named.
	AssignmentChanged bool
	// Waiting are the partitions that are to be this member's as soon as others have given them up.
	Waiting      []GroupWaiting
	NotCommitted []NotCommitted
	Start        GroupStart    // of the group, for an offset that is out of range
	Session      time.Duration // of a connected member, so that its door asks for signs of life in time; 0: not known

	// Turn is this poll's number. Changed is closed when its answer is out of date: the assignment or a
	// position in it has changed, another poll has taken its place, or the member is gone. Call again
	// with the same Turn then; the answer is the new state, or why the poll is over.
	Turn    uint64
	Changed <-chan struct{}
}

// GroupWaiting is a partition that a member waits for.
type GroupWaiting struct {
	Topic  Name
	Ref    Ref
	Holder MemberName // who has it still
}

// GroupSeek moves committed offsets.
type GroupSeek struct {
	Group  GroupName
	Topics []Name // whole topics, to At
	At     At
	// Offsets, where Topics is empty, are exact positions.
	Offsets   []PathOffset
	Principal string
}

// PathOffset is a position in a partition, named as people do.
type PathOffset struct {
	Path   Path
	Offset Offset
}

// GroupState says what a group is doing.
type GroupState string

// The states.
const (
	GroupEmpty       GroupState = "empty"       // has no members
	GroupReconciling GroupState = "reconciling" // some member waits for a partition, or has one to give up
	GroupStable      GroupState = "stable"      // everybody has what it is to have
)

// GroupSummary is a group in a list.
type GroupSummary struct {
	Name    GroupName
	State   GroupState
	Members int
	Epoch   GroupEpoch
}

// GroupDescription is what a coordinator knows of a group.
type GroupDescription struct {
	GroupSummary
	Settings   GroupSettings
	Overrides  map[string]string
	Start      GroupStart
	Members    []MemberDescription // by name
	Partitions []GroupPartition    // by topic name and partition: all of the topics that it reads or has read
	EmptySince Millis              // NoTimestamp while it has members
}

// MemberDescription is a member of a group.
type MemberDescription struct {
	Name         MemberName
	Kind         MemberKind
	Epoch        GroupEpoch
	Principal    string
	Node         NodeID
	JoinedAt     Millis
	LastSeen     Millis // its last call or sign of life
	SessionEnds  Millis
	Polling      bool // a poll of it waits right now
	Subscription Subscription
	Assignment   []Ref // what it holds
	Leaving      []Ref // of that, what it has still to give up
	Waiting      []GroupWaiting
}

// GroupPartition is a group's position in a partition.
type GroupPartition struct {
	Path      Path
	Ref       Ref
	Member    MemberName // who holds it; empty: nobody
	Assigned  GroupEpoch
	Committed Offset // NoOffset: nothing is committed
	Metadata  string
	CommitAt  Millis
	LogStart  Offset // NoOffset, as End and Lag, where the partition's bounds are not known
	End       Offset // the high watermark
	Lag       int64  // records from the committed offset, or from the log's start, to End; -1: not known
}

// GroupSettings of one group, with Kafka's names and meanings where Kafka has them. Start from
// DefaultGroupSettings or ParseGroupSettings; the zero value is not valid.
type GroupSettings struct {
	Session         time.Duration // session.timeout.ms: of a connected member, from its last sign of life
	MaxPollInterval time.Duration // max.poll.interval.ms: of a polling member, from its last call
	RejoinGrace     time.Duration // rejoin.grace.ms: of a connected member, from the end of its connection
	Assignor        Assignor      // assignor
}

// Assignor chooses who reads what.
type Assignor string

// The assignors.
const (
	StickyAssignor  Assignor = "sticky"  // even over all topics, and moves as little as possible
	UniformAssignor Assignor = "uniform" // even over all topics, the same for the same members
	RangeAssignor   Assignor = "range"   // partitions of the same number in all topics to the same member
)
