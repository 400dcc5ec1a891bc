package group

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Record is one record of the topic __groups, in the format of docs/group-records.md. A nil Value is a
// tombstone: what the key names is no more.
type Record struct {
	Key   []byte
	Value []byte
}

// recordKind says what a record is about. A letter is never given to another kind.
type recordKind byte

const (
	groupKind  recordKind = 'g' // the group itself
	memberKind recordKind = 'm' // one of its members
	topicKind  recordKind = 't' // a topic that it has met
	offsetKind recordKind = 'o' // what it has committed in one partition
)

// recordKey is a key in parts; which of them count besides Group depends on Kind.
type recordKey struct {
	Kind      recordKind
	Group     topic.GroupName
	Member    topic.MemberName // of a member
	Topic     topic.ID         // of a topic and of an offset
	Partition topic.Partition  // of an offset
}

// groupRecord is the group itself.
type groupRecord struct {
	Epoch topic.GroupEpoch
	// Deleted says that the group is no more and only its last epoch is kept, so that it goes on from
	// there when it is made again.
	Deleted    bool
	Overrides  map[string]string // settings that differ from the defaults, by name; nil where there are none
	Start      topic.GroupStart  // Time is kept with AtTime only
	CreatedAt  topic.Millis
	EmptySince topic.Millis // or of the deletion; NoTimestamp while it has members
}

// memberRecord is a member without its session, which is never recorded.
type memberRecord struct {
	Epoch topic.GroupEpoch // of the last change that concerned it
	Since topic.GroupEpoch // of its take-over or join: calls with lower ones are fenced
	Also  topic.GroupEpoch // with which it came back after its session had ended: is taken too; or NoGroupEpoch

	Kind         topic.MemberKind
	Principal    string
	Node         topic.NodeID
	JoinedAt     topic.Millis
	Subscription topic.Subscription
	Assignment   []heldPartition // in the order of compareRef, each once; nil where there are none
}

// heldPartition is a partition that a member holds.
type heldPartition struct {
	Ref      topic.Ref
	Assigned topic.GroupEpoch // in which the member got it, or in which a seek moved its position
	Leaving  topic.GroupEpoch // in which it was taken away, to be given up; NoGroupEpoch: it stays
}

// topicRecord is a topic that the group has met: the start policy is done for it.
type topicRecord struct {
	Name       topic.Name
	Partitions int32 // that it had then
}

// offsetRecord is what the group has committed in one partition.
type offsetRecord struct {
	Next      topic.Offset     // the offset to read next
	LastEpoch topic.Epoch      // of the record before Next as the reader saw it, or NoEpoch
	Assigned  topic.GroupEpoch // of the assignment that committed it; NoGroupEpoch: a seek or the start policy set it
	At        topic.Millis
	Metadata  string
}

// compareRef orders partitions by id, then number.
func compareRef(a, b topic.Ref) int {
	if c := bytes.Compare(a.ID[:], b.ID[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// GroupOf says to which group a record with this key belongs. An error is a fault of kind Corrupt; the
// record must not be skipped.
func GroupOf(key []byte) (topic.GroupName, error) {
	k, err := decodeKey(key)
	return k.Group, err
}

// The keys of a group's records.

func groupKey(g topic.GroupName) []byte {
	return recordKey{Kind: groupKind, Group: g}.encode()
}

func memberKey(g topic.GroupName, m topic.MemberName) []byte {
	return recordKey{Kind: memberKind, Group: g, Member: m}.encode()
}

func topicKey(g topic.GroupName, id topic.ID) []byte {
	return recordKey{Kind: topicKind, Group: g, Topic: id}.encode()
}

func offsetKey(g topic.GroupName, ref topic.Ref) []byte {
	return recordKey{Kind: offsetKind, Group: g, Topic: ref.ID, Partition: ref.Partition}.encode()
}

// tombstone is the record that takes away what key names.
func tombstone(key []byte) Record { return Record{Key: key} }

func (v *groupRecord) record(g topic.GroupName) Record { return seal(groupKey(g), v) }

func (v *memberRecord) record(g topic.GroupName, m topic.MemberName) Record {
	return seal(memberKey(g, m), v)
}

func (v *topicRecord) record(g topic.GroupName, id topic.ID) Record { return seal(topicKey(g, id), v) }

func (v *offsetRecord) record(g topic.GroupName, ref topic.Ref) Record {
	return seal(offsetKey(g, ref), v)
}

// decodeKey takes a key apart. An error is a fault of kind Corrupt, as of all decoders here.
func decodeKey(key []byte) (recordKey, error) {
	k, err := readKey(key)
	if err != nil {
		return recordKey{}, corrupt("key", key, err)
	}
	return k, nil
}

// The decoders of values take the whole record: the checksum of a value is over its key too. They must
// not be called with a tombstone.

func decodeGroup(r Record) (v groupRecord, err error) {
	err = open(r, &v)
	return v, err
}

func decodeMember(r Record) (v memberRecord, err error) {
	err = open(r, &v)
	return v, err
}

func decodeTopic(r Record) (v topicRecord, err error) {
	err = open(r, &v)
	return v, err
}

func decodeOffset(r Record) (v offsetRecord, err error) {
	err = open(r, &v)
	return v, err
}

func corrupt(what string, key []byte, err error) error {
	where := fmt.Sprintf("%q", key[:min(len(key), 64)]) // it may be anything, and long
	return fault.Newf("group.Decode", fault.Corrupt, where, "the %s of a record of __groups cannot be read: %w", what, err)
}
