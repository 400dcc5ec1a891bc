package topic

import (
	"cmp"
	"slices"
)

// Cursor is a reader's position: in each of its topics, and there in each partition that it has met,
// the offset to read next. For clients it is opaque text that begins with "c1."; docs/cursor.md has the bytes.
type Cursor struct {
	Topics []CursorTopic // by ID, ascending, each once
}

// CursorTopic is the position in one topic.
type CursorTopic struct {
	ID ID
	// Whole says that the reader reads every partition of the topic, so a partition that is not in
	// Parts is new and is read from its beginning. Otherwise it reads those in Parts alone.
	Whole bool
	Parts []CursorPart // by partition, ascending, each once
}

// CursorPart is the position in one partition.
type CursorPart struct {
	Partition Partition
	Next      Offset
	LastEpoch Epoch // of the last record read, NoEpoch when none; never used for fencing
}

// Topic is the position in one topic, or nil. The pointer is into the cursor, and valid until a topic
// is added.
func (c *Cursor) Topic(id ID) *CursorTopic {
	i, found := slices.BinarySearchFunc(c.Topics, id, compareTopic)
	if !found {
		return nil
	}
	return &c.Topics[i]
}

// Add returns the position in a topic, which begins without partitions where the cursor had none.
// The pointer is into the cursor, and valid until another topic is added.
func (c *Cursor) Add(id ID) *CursorTopic {
	i, found := slices.BinarySearchFunc(c.Topics, id, compareTopic)
	if !found {
		c.Topics = slices.Insert(c.Topics, i, CursorTopic{ID: id})
	}
	return &c.Topics[i]
}

// Advance sets the position in one partition, which it adds where it is new.
func (c *Cursor) Advance(ref Ref, next Offset, last Epoch) {
	c.Add(ref.ID).Advance(ref.Partition, next, last)
}

// Clone is a copy that shares nothing with c.
func (c *Cursor) Clone() Cursor {
	topics := slices.Clone(c.Topics)
	for i := range topics {
		topics[i].Parts = slices.Clone(topics[i].Parts)
	}
	return Cursor{Topics: topics}
}

// Part is the position in one partition, and whether there is one.
func (t *CursorTopic) Part(p Partition) (CursorPart, bool) {
	i, found := slices.BinarySearchFunc(t.Parts, p, comparePart)
	if !found {
		return CursorPart{}, false
	}
	return t.Parts[i], true
}

// Advance sets the position in one partition, which it adds where it is new.
func (t *CursorTopic) Advance(p Partition, next Offset, last Epoch) {
	i, found := slices.BinarySearchFunc(t.Parts, p, comparePart)
	if !found {
		t.Parts = slices.Insert(t.Parts, i, CursorPart{})
	}
	t.Parts[i] = CursorPart{Partition: p, Next: next, LastEpoch: last}
}

// Remove drops the position in one partition, if there is one.
func (t *CursorTopic) Remove(p Partition) {
	if i, found := slices.BinarySearchFunc(t.Parts, p, comparePart); found {
		t.Parts = slices.Delete(t.Parts, i, i+1)
	}
}

func compareTopic(t CursorTopic, id ID) int { return slices.Compare(t.ID[:], id[:]) }

func comparePart(p CursorPart, number Partition) int { return cmp.Compare(p.Partition, number) }
