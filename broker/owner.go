package broker

import (
	"context"
	"runtime"
	"time"

	"github.com/weirlog/weir/broker/replica"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// mostGroupBytes ends a group of appends: one write of more would keep those behind it waiting.
const mostGroupBytes = 8 << 20

// own is the owner's loop. It returns when the partition was stopped and nothing waits any more, or
// when the node has no more time for that, or with a final error of the disk.
func (p *partition) own(ctx context.Context) error {
	stopping := p.life.Done()
	var patience <-chan struct{}
	for {
		if stopping == nil && len(p.waiting) == 0 && p.inbox.empty() {
			return nil
		}
		select {
		case <-p.inbox.wake:
			runtime.Gosched() // those who are about to append share the write
			if err := p.appendAll(); err != nil {
				return err
			}
		case end := <-p.synced:
			p.apply(p.machine.Step(replica.Synced{End: end}))
		case order := <-p.orders:
			order()
		case <-stopping:
			stopping, patience = nil, p.node.patience(p.whyGone())
		case <-patience:
			return nil
		case <-ctx.Done(): // the syncer has failed
			return nil
		}
	}
}

// appendAll appends everything that waits, in as few writes as possible.
func (p *partition) appendAll() error {
	all := p.inbox.take(p.room)
	defer func() {
		clear(all)
		p.room = all
	}()
	next, size := p.log.End(), 0
	group := all[:0]
	for i, part := range all {
		if !part.begin() { // its caller has given up: nothing of it is stored
			part.letGo()
			continue
		}
		group = append(group, part)
		if part.err = p.admit(part); part.err != nil {
			continue
		}
		next = p.stage(part, next)
		if size += len(part.buf); size < mostGroupBytes {
			continue
		}
		if err := p.write(group); err != nil {
			p.refuse(all[i+1:], err)
			return err
		}
		next, size, group = p.log.End(), 0, all[i+1:i+1]
	}
	return p.write(group)
}

// admit says whether an append may begin now, and whether it is still meant.
func (p *partition) admit(a *part) error {
	if a.reign != nil && *a.reign != p.machine.Epoch() {
		return fault.Newf("broker.Produce", fault.Fenced, p.path, "epoch %d is over, the leader is now in %d", *a.reign, p.machine.Epoch())
	}
	return p.machine.Admit(a.acks)
}

// stage gives the batches of a part their places from offset next on, and returns the one behind them.
// What is a duplicate or refused gets none.
func (p *partition) stage(part *part, next topic.Offset) topic.Offset {
	now := time.Now()
	appendTime := p.settings.Load().AppendTime
	expect := part.ifLast // nil when no batch has to look at the log's last offset any more
	for i := range part.batches {
		b := &part.batches[i]
		sequence := storage.Sequenced{Producer: part.key, Epoch: b.content, First: b.sequence, Span: b.count}
		if part.key != 0 {
			verdict, err := p.log.Producers().Check(sequence, now)
			if err != nil {
				part.fail(i, err) // what comes behind it does not slip in front of a retry
				return next
			}
			if verdict.Duplicate {
				b.base, b.duplicate, b.timestamp = verdict.Base, true, verdict.Timestamp
				if expect != nil {
					expect = &verdict.Last // the retry goes on where the earlier try ended
				}
				continue
			}
		}
		if expect != nil && *expect != next-1 {
			part.fail(i, lastIsNot(p.path, *expect, next-1))
			return next
		}
		expect = nil
		bytes := part.buf[b.start:b.stop]
		if appendTime {
			b.timestamp = topic.Millis(now.UnixMilli())
			batch.SetAppendTime(bytes, b.timestamp)
		}
		b.base = next
		batch.Stamp(bytes, next, p.machine.Epoch())
		if part.key != 0 {
			p.log.Producers().Stage(sequence, next, b.timestamp, now)
		}
		next += topic.Offset(b.count)
		p.batches = append(p.batches, bytes)
		p.group = append(p.group, b)
	}
	return next
}

// write appends what was staged for parts, tells the machine and answers those who need not wait.
func (p *partition) write(parts []*part) error {
	defer func() {
		clear(p.batches)
		clear(p.group)
		p.batches, p.group = p.batches[:0], p.group[:0]
	}()
	if len(p.batches) > 0 {
		err := p.log.Append(p.batches)
		switch {
		case storage.Final(err):
			for _, part := range parts {
				part.finish(fault.Newf("broker.Produce", fault.Timeout, p.path, "the disk failed, the outcome is unknown: %w", err))
			}
			return err
		case err != nil: // refused, and nothing of it is in the log
			for _, part := range parts {
				part.takeBack(p.log.End(), err)
			}
		default:
			p.appended()
		}
	}
	hw := topic.Offset(p.hw.Load())
	for _, part := range parts {
		if part.acks == topic.AcksAll && part.err == nil && part.end() > hw {
			part.letGo()
			p.waiting = append(p.waiting, part)
		} else {
			part.finish(nil)
		}
	}
	return nil
}

// appended follows a write: readers at the tail find the batches in memory, the machine learns of the
// new end, the syncer of its work.
func (p *partition) appended() {
	limit := p.node.tailLimit()
	bytes := 0
	for i, b := range p.group {
		p.tail.add(p.batches[i], b.base, b.base+topic.Offset(b.count), limit)
		bytes += len(p.batches[i])
	}
	p.appends.Add(1)
	p.node.metrics.appended(len(p.batches), bytes)
	end := p.log.End()
	p.apply(p.machine.Step(replica.Appended{End: end}))
	if p.settings.Load().FlushMessages == 0 {
		p.apply(p.machine.Step(replica.Synced{End: end})) // replication is this topic's safety: written counts
	}
	ring(p.dirty)
}

// apply carries out the machine's effects, in order.
func (p *partition) apply(effects []replica.Effect) {
	for _, e := range effects {
		switch e.Do {
		case replica.Commit:
			p.hw.Store(int64(e.Offset))
			p.answer(e.Offset)
			p.bells.ring()
		case replica.Settle:
			p.settled.Store(true)
			p.bells.ring() // a coordinator of groups waits for it
		case replica.End:
			p.settled.Store(false)
			p.forget()
		case replica.Fence, replica.Later:
			// Only a follower's fetch has these effects, and its caller gets them.
		}
	}
}

// answer tells those whose records are now below the high watermark. They wait in the order of the
// log; a duplicate may wait for one in front of it, which is a sync at most.
func (p *partition) answer(hw topic.Offset) {
	n := 0
	for n < len(p.waiting) && p.waiting[n].end() <= hw {
		p.waiting[n].finish(nil)
		n++
	}
	rest := copy(p.waiting, p.waiting[n:])
	clear(p.waiting[rest:])
	p.waiting = p.waiting[:rest]
}

// forget tells those who wait that a reign has ended: whether their records stay is the next leader's
// to say.
func (p *partition) forget() {
	for _, part := range p.waiting {
		part.finish(fault.Newf("broker.Produce", fault.Timeout, p.path, "the leader changed before the records were committed, the outcome is unknown"))
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
}

// refuse answers parts that were never begun.
func (p *partition) refuse(parts []*part, why error) {
	for _, part := range parts {
		if part.begin() {
			part.finish(why)
		} else {
			part.letGo() // abandoned
		}
	}
}

// ring leaves a ring in a channel that has room for one.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
