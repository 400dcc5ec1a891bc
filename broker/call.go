package broker

import (
	"context"
	"sync/atomic"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// call is one produce call on its way: a part per partition. It waits until every part is finished.
type call struct {
	left  atomic.Int32  // parts that are not finished
	done  chan struct{} // has room for the one ring at the end
	ended bool          // the ring was heard: nobody but the caller has anything of the call; the caller's
}

func (c *call) finished() {
	if c.left.Add(-1) == 0 {
		c.done <- struct{}{}
	}
}

// part is what a call appends to one partition. Its caller fills it in; from inbox.put on it is the
// owner's, until finish; a caller that gives up leaves it to the owner.
type part struct {
	call   *call
	to     *partition
	acks   topic.Acks
	ifLast *topic.Offset
	reign  *topic.Epoch // nil: any; else it is appended in this epoch or not at all
	key    int64        // the producer id that stands for the idempotency key; 0 without one

	buf      []byte  // the batches, one after the other
	buffer   *buffer // whose bytes buf are
	batches  []staged
	reserved int // bytes of the node's budget

	state atomic.Int32
	err   error // of the part as a whole; to be read when it is finished
}

// staged is a batch on its way to the log, and then what became of it.
type staged struct {
	start, stop int   // in the part's buffer
	count       int32 // records
	sequence    int32 // of the first record, where the part has a key
	content     int16 // the hash of its content, likewise

	base      topic.Offset
	timestamp topic.Millis // of all its records, or, for a duplicate, the greatest; else NoTimestamp
	duplicate bool
	err       error
}

// The states of a part.
const (
	queued    int32 = iota
	begun           // the owner is at it
	abandoned       // its caller gave up before the owner began: nothing of it is stored
	finished
)

// begin takes the part for the owner. It reports false for one that was abandoned.
func (p *part) begin() bool { return p.state.CompareAndSwap(queued, begun) }

// abandon takes the part back from the queue. It reports false when the owner has begun.
func (p *part) abandon() bool { return p.state.CompareAndSwap(queued, abandoned) }

// finish publishes the outcome. why, if not nil, is that of the whole part. Owner only.
func (p *part) finish(why error) {
	if why != nil {
		p.err = why
	}
	p.letGo()
	p.state.Store(finished)
	p.call.finished()
}

// letGo gives back the part's buffer. Owner only, when nobody needs the bytes any more.
func (p *part) letGo() {
	if p.buf == nil {
		return
	}
	p.to.node.inFlight.give(p.reserved)
	p.giveBuffer()
}

// giveBuffer lets the buffer be used again.
func (p *part) giveBuffer() {
	giveBuffer(p.buffer, p.buf)
	p.buf, p.buffer = nil, nil
}

// fail refuses the batches from the i-th on.
func (p *part) fail(i int, err error) {
	for ; i < len(p.batches); i++ {
		p.batches[i].err = err
	}
}

// takeBack refuses what was decided in the belief that a write would put batches behind an offset, which it
// did not: these batches, retries that were taken for their duplicates, and whoever was refused because of
// them. What duplicates a batch below the offset stays stored.
func (p *part) takeBack(end topic.Offset, why error) {
	for i := range p.batches {
		if b := &p.batches[i]; !b.duplicate || b.base >= end {
			b.base, b.duplicate, b.err = topic.NoOffset, false, why
		}
	}
}

// end is the offset behind the last record that is, or was, stored.
func (p *part) end() topic.Offset {
	var end topic.Offset
	for i := range p.batches {
		if b := &p.batches[i]; b.err == nil {
			end = max(end, b.base+topic.Offset(b.count))
		}
	}
	return end
}

// wait returns when every part is finished, or when ctx or the node ends. Then it returns what to say of
// the parts that are not: what the owner has begun with is of unknown outcome, and what still waits in a
// queue is refused.
func (c *call) wait(ctx context.Context, n *Node) (late tardy) {
	const op = "broker.Produce"
	select {
	case <-c.done:
		c.ended = true
		return tardy{}
	case <-ctx.Done():
		return tardy{
			unknown: fault.Newf(op, fault.Timeout, nil, "the records were not acknowledged in time, the outcome is unknown"),
			refused: fault.Newf(op, fault.Overloaded, nil, "the append waited in the queue for all its time, nothing was stored"),
		}
	case <-n.failed:
		return tardy{
			unknown: fault.Newf(op, fault.Timeout, nil, "the node's disk failed before the records were acknowledged, the outcome is unknown"),
			refused: n.refusal(),
		}
	}
}

// tardy is what to say of parts that nobody waits for any more.
type tardy struct{ unknown, refused error }

// outcome is what became of the part, as a whole.
func (p *part) outcome(late tardy) error {
	switch {
	case p.state.Load() == finished:
		return p.err
	case p.abandon():
		return late.refused
	case p.state.Load() == finished: // between the two looks
		return p.err
	default:
		return late.unknown
	}
}
