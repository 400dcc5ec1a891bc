package session

import (
	"github.com/weirlog/weir/topic"
)

// Limit of one page. Both must be 1 at least. The first record of a page is taken whatever its size.
type Limit struct {
	Records int
	Bytes   int // as encoded
}

// Page is what [Reader.Next] returns: notices, or records, or nothing at all. It is the reader's, and
// valid until its next call of Next, Seek or Close.
type Page struct {
	Notices []Notice // to be told before anything else
	Runs    []Run
	Records int
	Bytes   int
	AtEnd   bool // behind this page, nothing is left to read for now
	Done    bool // behind this page, the end that was asked for is reached; nothing will follow

	owned []*piece
}

// Empty says that there was nothing to read.
func (p *Page) Empty() bool { return len(p.Notices) == 0 && p.Records == 0 }

// Run is records of one partition in a row, encoded.
type Run struct {
	Topic     topic.Name
	Partition topic.Partition

	part     *part
	piece    *piece
	from, to int
	next     topic.Offset // where to go on behind it
}

// Bytes are all records of the run, as the reader's Format writes them.
func (r *Run) Bytes() []byte { return r.piece.bytes(r.from, r.to) }

// Len is the number of records.
func (r *Run) Len() int { return r.to - r.from }

// Record is record i alone.
func (r *Run) Record(i int) []byte { return r.piece.bytes(r.from+i, r.from+i+1) }

// Notice is something that a reader has to be told. Exactly one of its fields is set.
type Notice struct {
	Gap        *Gap
	Partitions *Partitions
}

// Gap says that a partition's records are not what the reader could expect: From was the offset it
// would have read next, and To is the one that it goes on at. To lies below From where the log was cut or made anew.
type Gap struct {
	Topic     topic.Name
	Partition topic.Partition
	From, To  topic.Offset
	Reason    topic.GapReason

	part *part // where the reader moves to To
}

// Partitions says that partitions were added to a topic. They are read from their beginning.
type Partitions struct {
	Topic topic.Name
	Count int // how many the topic has now
	Added []topic.Partition
}

// reset empties the page. Pieces that only this reader has seen go back, but the one that it still reads.
func (p *Page) reset(keep *piece) {
	clear(p.Notices)
	clear(p.Runs)
	owned := p.owned
	*p = Page{Notices: p.Notices[:0], Runs: p.Runs[:0], owned: owned[:0]}
	for _, one := range owned {
		if one == keep {
			p.owned = append(p.owned, one)
		} else {
			one.give()
		}
	}
}
