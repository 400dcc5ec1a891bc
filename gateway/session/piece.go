package session

import (
	"sync"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// piece is a run of records of one partition and one epoch, encoded. Once made it is not written to, so
// that many readers can hold it.
type piece struct {
	start topic.Offset // the position that it was made for: no record lies between it and the first one here
	next  topic.Offset // where to go on behind it
	last  topic.Epoch  // of the batch before next, which may have no record left; NoEpoch when there is none
	epoch topic.Epoch  // of the records
	first topic.Offset // of the first record
	data  []byte
	marks []mark // one a record
}

// mark says where a record of a piece is.
type mark struct {
	delta uint32 // of its offset to the first record's
	end   uint32 // of its bytes in data
}

func (p *piece) len() int { return len(p.marks) }

// begin is where record i begins in data.
func (p *piece) begin(i int) int {
	if i == 0 {
		return 0
	}
	return int(p.marks[i-1].end)
}

// bytes are the records from i on, up to but without j.
func (p *piece) bytes(i, j int) []byte { return p.data[p.begin(i):p.begin(j)] }

// memory is about what the piece holds.
func (p *piece) memory() int { return cap(p.data) + 8*cap(p.marks) + 128 }

// maxDelta is how far apart the offsets of one piece may be.
const maxDelta = 1 << 31

// offset is that of record i.
func (p *piece) offset(i int) topic.Offset { return p.first + topic.Offset(p.marks[i].delta) }

// pieces that one reader alone has seen are used again.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// mostPooled is the largest buffer that is kept for its next user.
const mostPooled = 256 << 10

func takePiece() *piece { return pieces.Get().(*piece) }

func (p *piece) give() {
	if p.memory() <= mostPooled {
		*p = piece{data: p.data[:0], marks: p.marks[:0]}
		pieces.Put(p)
	}
}

// chunk is a part of a log that was fetched and is being encoded.
type chunk struct {
	part    *part
	fetched topic.Fetched
	gaps    []topic.Gap // of fetched, still ahead
	records batch.Reader
	ready   bool // records stands on a record that has not been encoded
	end     bool // no record is left
}

// open begins with what was fetched from an offset on.
func (c *chunk) open(p *part, from topic.Offset, f topic.Fetched) {
	c.part, c.fetched, c.gaps, c.ready, c.end = p, f, f.Gaps, false, false
	c.records.Reset(f.Batches, from)
}

// close gives back what the chunk holds.
func (c *chunk) close() {
	c.records.Close()
	*c = chunk{}
}

// advance makes a record ready, unless there is none left.
func (c *chunk) advance() (bool, error) {
	for !c.ready && !c.end {
		if !c.records.Next() {
			c.end = true
			return false, c.records.Err()
		}
		c.ready = c.records.Header().Attributes&batch.Control == 0
	}
	return c.ready, nil
}

// lastEpoch is that of the last batch, once all records have been read.
func (c *chunk) lastEpoch() topic.Epoch {
	if len(c.fetched.Batches) == 0 {
		return topic.NoEpoch
	}
	return c.records.Header().LeaderEpoch
}

// gap is the next one that lies before the record at offset, or before the chunk's end when there is no
// record left.
func (c *chunk) gap(before topic.Offset) *topic.Gap {
	if len(c.gaps) > 0 && c.gaps[0].Start < before {
		return &c.gaps[0]
	}
	return nil
}

// encode fills one, which is empty, with the records from position next on, up to bytes of them and one
// more, the first gap, or the end of their epoch. It leaves one empty where there is no record before a gap or the
// chunk's end. one.next is set in every case: behind the last record, or behind the chunk.
func (c *chunk) encode(one *piece, f *Format, next topic.Offset, most int) error {
	one.start, one.next, one.last = next, next, topic.NoEpoch
	for len(one.data) < most {
		ready, err := c.advance()
		if err != nil {
			return err
		}
		if !ready {
			if c.gap(c.fetched.Next) == nil {
				one.next, one.last = max(one.next, c.fetched.Next), c.lastEpoch()
			}
			return nil
		}
		r := c.records.Record()
		epoch := c.records.Header().LeaderEpoch
		switch {
		case c.gap(r.Offset) != nil:
			return nil
		case len(one.marks) == 0:
			one.first, one.epoch = r.Offset, epoch
		case epoch != one.epoch || r.Offset-one.first > maxDelta:
			return nil
		}
		one.data = f.append(one.data, r, c.part.topic.name, c.part.number)
		one.marks = append(one.marks, mark{delta: uint32(r.Offset - one.first), end: uint32(len(one.data))})
		one.next, one.last = r.Offset+1, epoch
		c.ready = false
	}
	return nil
}
