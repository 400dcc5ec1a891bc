package topic

// Cursor is a reader's position: in each of its topics, and there in each partition that it has met,
// the offset to read next. For clients it is opaque text that begins with "c1."; docs/cursor.md has the bytes.
type Cursor struct {
	Topics []CursorTopic // by ID, ascending
}

// CursorTopic is the position in one topic.
type CursorTopic struct {
	ID ID
	// Whole says that the reader reads every partition of the topic, so a partition that is not in
	// Parts is new and is read from its beginning. Otherwise it reads those in Parts alone.
	Whole bool
	Parts []CursorPart // by partition, ascending
}

// CursorPart is the position in one partition.
type CursorPart struct {
	Partition Partition
	Next      Offset
	LastEpoch Epoch // of the last record read, NoEpoch when none; never used for fencing
}
