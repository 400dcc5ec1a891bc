package topic

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"

	"github.com/weirlog/weir/internal/fault"
)

// GroupCursor is a member's position in what its group has it read: how far it came since the last
// commit, and in which epochs it was given the partitions, so that an acknowledgement counts only where
// they are still its own. It lists the partitions that were read past their committed offset, and no
// others. For clients it is opaque text that begins with "g1."; docs/cursor.md has the bytes.
type GroupCursor struct {
	Group  uint32             // the [GroupSum] of the group's name: a cursor fits no other group
	Epoch  GroupEpoch         // of the member when the cursor was made
	Topics []GroupCursorTopic // by ID, ascending, each once, none without parts
}

// GroupCursorTopic is the position in one topic.
type GroupCursorTopic struct {
	ID    ID
	Parts []GroupCursorPart // by partition, ascending, each once
}

// GroupCursorPart is the position in one partition.
type GroupCursorPart struct {
	Partition Partition
	Next      Offset
	LastEpoch Epoch      // of the last record read, NoEpoch when none
	Assigned  GroupEpoch // the epoch in which the member was given the partition
}

// GroupSum is the sum of a group's name that stands in its cursors.
func GroupSum(name GroupName) uint32 { return crc32.Checksum([]byte(name), cursorTable) }

// CheckGroup refuses the cursor of another group, as a fault of kind InvalidCursor.
func (c *GroupCursor) CheckGroup(name GroupName) error {
	if c.Group == GroupSum(name) {
		return nil
	}
	return fault.Newf("topic.CheckGroup", fault.InvalidCursor, nil, "the cursor is of another group than %s", quote(string(name)))
}

// Advance sets the position in one partition, which it adds where it is new.
func (c *GroupCursor) Advance(ref Ref, next Offset, last Epoch, assigned GroupEpoch) {
	t, found := slices.BinarySearchFunc(c.Topics, ref.ID, compareGroupTopic)
	if !found {
		c.Topics = slices.Insert(c.Topics, t, GroupCursorTopic{ID: ref.ID})
	}
	parts := &c.Topics[t].Parts
	i, found := slices.BinarySearchFunc(*parts, ref.Partition, compareGroupPart)
	if !found {
		*parts = slices.Insert(*parts, i, GroupCursorPart{})
	}
	(*parts)[i] = GroupCursorPart{Partition: ref.Partition, Next: next, LastEpoch: last, Assigned: assigned}
}

// Remove drops the position in one partition, if there is one.
func (c *GroupCursor) Remove(ref Ref) {
	t, found := slices.BinarySearchFunc(c.Topics, ref.ID, compareGroupTopic)
	if !found {
		return
	}
	parts := &c.Topics[t].Parts
	if i, found := slices.BinarySearchFunc(*parts, ref.Partition, compareGroupPart); found {
		*parts = slices.Delete(*parts, i, i+1)
	}
	if len(*parts) == 0 {
		c.Topics = slices.Delete(c.Topics, t, t+1)
	}
}

// Part is the position in one partition, and whether there is one.
func (c *GroupCursor) Part(ref Ref) (GroupCursorPart, bool) {
	t, found := slices.BinarySearchFunc(c.Topics, ref.ID, compareGroupTopic)
	if !found {
		return GroupCursorPart{}, false
	}
	parts := c.Topics[t].Parts
	i, found := slices.BinarySearchFunc(parts, ref.Partition, compareGroupPart)
	if !found {
		return GroupCursorPart{}, false
	}
	return parts[i], true
}

// Commits is what an acknowledgement of the cursor asks for, by topic id and partition.
func (c *GroupCursor) Commits() []GroupCommit {
	n := 0
	for i := range c.Topics {
		n += len(c.Topics[i].Parts)
	}
	commits := make([]GroupCommit, 0, n)
	for _, t := range c.Topics {
		for _, p := range t.Parts {
			commits = append(commits, GroupCommit{Ref: Ref{t.ID, p.Partition}, Next: p.Next, LastEpoch: p.LastEpoch, Assigned: p.Assigned})
		}
	}
	return commits
}

func compareGroupTopic(t GroupCursorTopic, id ID) int { return slices.Compare(t.ID[:], id[:]) }

func compareGroupPart(p GroupCursorPart, number Partition) int {
	return cmp.Compare(p.Partition, number)
}

const (
	groupCursorPrefix = "g1."

	sameAssignedBit = 1
	groupSumBytes   = 4
)

// String is the cursor as clients see it: URL-safe text that [ParseGroupCursor] reads.
func (c GroupCursor) String() string { return string(c.Append(nil)) }

// Append appends the text of the cursor to dst. Topics and partitions must be in order and numbers
// not negative, as [GroupCursor.Advance] and [ParseGroupCursor] leave them: otherwise nobody can read the text.
func (c GroupCursor) Append(dst []byte) []byte {
	dst = append(dst, groupCursorPrefix...)
	start := len(dst)
	dst = append(dst, groupCursor)
	dst = binary.BigEndian.AppendUint32(dst, c.Group)
	dst = binary.AppendUvarint(dst, uint64(c.Epoch))
	dst = binary.AppendUvarint(dst, uint64(len(c.Topics)))
	for i := range c.Topics {
		dst = c.Topics[i].append(dst)
	}
	return sealCursor(dst, start)
}

// append appends the topic's id and its partitions as runs of consecutive numbers.
func (t *GroupCursorTopic) append(b []byte) []byte {
	b = append(b, t.ID[:]...)
	runs := 0
	for i := range t.Parts {
		if i == 0 || t.Parts[i].Partition != t.Parts[i-1].Partition+1 {
			runs++
		}
	}
	b = binary.AppendUvarint(b, uint64(runs))
	after := int64(0) // the first number that the next run may begin with
	epoch, assigned := NoEpoch, NoGroupEpoch
	for rest := t.Parts; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Partition == rest[n-1].Partition+1 {
			n++
		}
		b = binary.AppendUvarint(b, uint64(int64(rest[0].Partition)-after))
		b = binary.AppendUvarint(b, uint64(n-1))
		for _, part := range rest[:n] {
			// Most partitions have both epochs of the one before.
			if part.LastEpoch == epoch && part.Assigned == assigned {
				b = binary.AppendUvarint(b, uint64(part.Next)<<1|sameEpochBit)
				continue
			}
			b = binary.AppendUvarint(b, uint64(part.Next)<<1)
			last := uint64(int64(part.LastEpoch)+1) << 1
			if part.Assigned == assigned {
				b = binary.AppendUvarint(b, last|sameAssignedBit)
			} else {
				b = binary.AppendUvarint(b, last)
				b = binary.AppendUvarint(b, uint64(part.Assigned))
			}
			epoch, assigned = part.LastEpoch, part.Assigned
		}
		after = int64(rest[n-1].Partition) + 2 // or it would be the same run
		rest = rest[n:]
	}
	return b
}

// ParseGroupCursor reads the text of a group's cursor; [GroupCursor.CheckGroup] says whether it is of
// the group that is meant. Whatever is wrong with it is a fault of kind InvalidCursor.
func ParseGroupCursor(s string) (GroupCursor, error) {
	bad := func(why string) (GroupCursor, error) {
		return GroupCursor{}, fault.Newf("topic.ParseGroupCursor", fault.InvalidCursor, nil, "cursor %s: %s", quote(s), why)
	}
	payload, why := openCursor(s, groupCursorPrefix)
	if why != "" {
		return bad(why)
	}
	c, err := readGroupCursor(payload)
	if err != nil {
		return bad(err.Error())
	}
	// Numbers can be written longer than needed, and ids out of order: one cursor has one text.
	if !bytes.Equal(c.Append(nil), []byte(s)) {
		return bad("is not in its canonical form")
	}
	return c, nil
}

func readGroupCursor(b []byte) (GroupCursor, error) {
	r := cursorReader{b: b}
	if r.number(math.MaxUint64) != groupCursor || r.bad {
		return GroupCursor{}, errors.New("is of a kind that is not known")
	}
	if len(r.b) < groupSumBytes {
		return GroupCursor{}, errCursor
	}
	c := GroupCursor{Group: binary.BigEndian.Uint32(r.b)}
	r.b = r.b[groupSumBytes:]
	c.Epoch = GroupEpoch(r.number(math.MaxInt64))
	if topics, _ := r.count(0, len(ID{})+4); topics > 0 {
		c.Topics = make([]GroupCursorTopic, topics)
	}
	for i := range c.Topics {
		r.groupTopic(&c.Topics[i])
		if r.bad || i > 0 && compareGroupTopic(c.Topics[i-1], c.Topics[i].ID) >= 0 {
			return GroupCursor{}, errCursor
		}
	}
	if r.bad || len(r.b) > 0 {
		return GroupCursor{}, errCursor
	}
	return c, nil
}

func (r *cursorReader) groupTopic(t *GroupCursorTopic) {
	t.ID = r.id()
	runs, _ := r.count(0, 3)
	if runs == 0 {
		r.b, r.bad = nil, true // a topic without parts says nothing
		return
	}
	after := int64(0)
	epoch, assigned := NoEpoch, NoGroupEpoch
	for range runs {
		first, n := r.run(after)
		if n == 0 {
			return
		}
		t.Parts = slices.Grow(t.Parts, n)
		for i := range n {
			v := r.number(math.MaxUint64)
			if v&sameEpochBit == 0 {
				e := r.number((math.MaxInt32+1)<<1 | sameAssignedBit)
				epoch = Epoch(int64(e>>1) - 1)
				if e&sameAssignedBit == 0 {
					assigned = GroupEpoch(r.number(math.MaxInt64))
				}
			}
			if r.bad {
				return
			}
			t.Parts = append(t.Parts, GroupCursorPart{Partition: Partition(first + int64(i)), Next: Offset(v >> 1), LastEpoch: epoch, Assigned: assigned})
		}
		after = first + int64(n) + 1
	}
}
