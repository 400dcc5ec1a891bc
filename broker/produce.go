package broker

import (
	"context"
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Produce appends a.Records, each to its partition, and fills in a.Results. It encodes them before it
// waits for anything, so the records may be views of the caller's buffers for as long as the call lasts.
// An error refuses the call as a whole, and Results may be unset then.
//
// With AcksNone it returns when the records are queued, and an offset is not known. When ctx ends
// before the records are acknowledged, their results say Timeout, or Overloaded when they were still
// queued and so are not stored.
func (n *Node) Produce(ctx context.Context, a *topic.Append) error {
	begun := time.Now()
	if err := n.serving("broker.Produce"); err != nil {
		return err
	}
	t, err := n.appendable(ctx, a)
	if err != nil || t == nil {
		return err
	}
	p := n.takeProduction()
	p.topic, p.in = t, a
	p.now, p.settings = topic.Millis(begun.UnixMilli()), &t.topic.Load().Settings
	spread := p.spread()
	if err := p.place(*t.partitions.Load(), spread, &t.sticky); err != nil {
		return err
	}
	if err := p.reserve(); err != nil {
		return err
	}
	if err := p.encode(); err != nil {
		return err
	}
	p.send()
	if a.Acks == topic.AcksNone {
		p.queued()
		return nil
	}
	p.collect(p.call.wait(ctx, n))
	n.metrics.produced(a.Acks, time.Since(begun))
	p.release()
	return nil
}

// appendable finds the topic of an append, and makes it where that is allowed. No topic and no error
// mean that it was not made, because no record would be stored in it; the results say why.
func (n *Node) appendable(ctx context.Context, a *topic.Append) (*served, error) {
	if a.Topic.Internal() {
		return nil, ownTopic("broker.Produce", a.Topic)
	}
	t, err := n.hall.byName(a.Topic)
	if !fault.Is(err, fault.NoTopic) || !n.cfg.AutoCreate {
		return t, err
	}
	if worthwhile, err := n.rehearse(a); err != nil || !worthwhile {
		return nil, err
	}
	_, err = n.CreateTopic(ctx, topic.Creation{Name: a.Topic, Principal: a.Principal})
	if err != nil && !fault.Is(err, fault.TopicExists) {
		return nil, err
	}
	return n.hall.awaitTopic(ctx, a.Topic) // "exists" was perhaps said of a topic that this node has not heard of yet
}

// production is one Produce call at work on its caller's goroutine. It is used again for another call when
// no owner of a partition can have a part of it any more.
type production struct {
	node     *Node
	topic    *served
	in       *topic.Append
	now      topic.Millis
	settings *topic.Settings

	key      int64 // the producer id of the idempotency key; 0 without one
	accepted int   // records of the request so far, those of earlier calls included

	call     call
	parts    []*draft
	spare    []*draft                  // of earlier calls
	slots    map[topic.Partition]int32 // places in parts, but for the first
	where    []int32                   // of each record: its part, or -1 when it was refused
	reserved int                       // bytes of the node's budget
}

// draft is a part with what its caller alone needs of it.
type draft struct {
	part
	number topic.Partition
	bytes  int // that its batches take, at most

	builder batch.Builder
	weight  int // of the batch that is being built; 0 when there is none
	content contentHash
	next    int32 // sequence number of the next record

	failed   error            // what became of the part as a whole
	recalled [][]topic.Millis // of each batch that is a duplicate: the timestamps it is stored under
	reading  int              // the batch that the next result is of, and
	at       int32            // the record in it
}

// A record takes at most so many bytes in a batch beside those that limits count.
const (
	recordOverhead = 40
	headerOverhead = 10
)

// weight is what a record takes in a batch, at most. It depends on nothing but the record, so that a
// retry is cut into the same batches.
func weight(r *topic.Record) int {
	return batch.RecordBytes(r) + recordOverhead + headerOverhead*len(r.Headers)
}

// place checks each record and chooses its partition among those of the topic, a nil one too. Those without
// key are spread over the first of them.
func (p *production) place(partitions []*partition, spread int32, sticky *sticky) error {
	records := p.in.Records
	p.in.Results = slices.Grow(p.in.Results[:0], len(records))[:len(records)]
	p.where = slices.Grow(p.where[:0], len(records))[:len(records)]
	loose := topic.AnyPartition // where records without key and partition go
	for i := range records {
		r := &records[i]
		p.in.Results[i] = topic.Stored{Partition: r.Partition, Offset: topic.NoOffset, Timestamp: topic.NoTimestamp}
		p.where[i] = -1
		if p.in.Results[i].Err = p.check(r); p.in.Results[i].Err != nil {
			continue
		}
		number := p.choose(r, p.key, p.accepted, spread)
		if number == topic.AnyPartition {
			if loose == topic.AnyPartition {
				loose = sticky.pick(spread, p.looseBytes(i), time.Now())
			}
			number = loose
		}
		if number < 0 || int(number) >= len(partitions) {
			has := "the topic has"
			if p.topic == nil {
				has = "neither does the topic, which would get"
			}
			p.in.Results[i].Err = fault.Newf("broker.Produce", fault.NoPartition, p.in.Topic,
				"partition %d does not exist, %s %d", number, has, len(partitions))
			continue
		}
		p.in.Results[i].Partition = number
		p.accepted++
		p.where[i] = p.slot(number)
		d := p.parts[p.where[i]]
		d.to = partitions[number]
		d.bytes += weight(r)
	}
	if p.in.IfLast != nil && len(p.parts) > 1 {
		return fault.Newf("broker.Produce", fault.Validation, p.in.Topic, "the last offset can be asked of one partition only, the records are for %d", len(p.parts))
	}
	return nil
}

// choose is the partition of a record, or AnyPartition when it may go anywhere. key and index matter
// for idempotent requests: the record is the index-th of its request.
func (p *production) choose(r *topic.Record, key int64, index int, spread int32) topic.Partition {
	switch {
	case r.Partition != topic.AnyPartition:
		return r.Partition
	case r.Key != nil:
		return keyed(r.Key, spread)
	case key != 0:
		return looseKeyed(key, index, spread)
	default:
		return topic.AnyPartition
	}
}

// slot is the place of a partition's draft in parts.
func (p *production) slot(number topic.Partition) int32 {
	if len(p.parts) > 0 && p.parts[0].number == number { // most calls have one
		return 0
	}
	slot, ok := p.slots[number]
	if ok {
		return slot
	}
	slot = int32(len(p.parts))
	p.parts = append(p.parts, p.newDraft(number))
	if slot > 0 {
		if p.slots == nil {
			p.slots = map[topic.Partition]int32{}
		}
		p.slots[number] = slot
	}
	return slot
}

// check refuses a record for what it is.
func (p *production) check(r *topic.Record) error {
	size := batch.RecordBytes(r)
	if most := p.settings.MaxRecordBytes(); size > most {
		return fault.Newf("broker.Produce", fault.RecordTooLarge, p.in.Topic, "the record has %d bytes, at most %d are allowed", size, most)
	}
	if weight(r)+batch.HeaderBytes > p.settings.MaxMessageBytes {
		return fault.Newf("broker.Produce", fault.RecordTooLarge, p.in.Topic, "the record has %d headers, which do not fit in a batch of %d bytes",
			len(r.Headers), p.settings.MaxMessageBytes)
	}
	if p.settings.Compact && r.Key == nil {
		return fault.Newf("broker.Produce", fault.Validation, p.in.Topic, "the topic is compacted, so its records need a key")
	}
	if r.Timestamp < topic.NoTimestamp {
		return fault.Newf("broker.Produce", fault.Validation, p.in.Topic, "timestamp %d: must not be negative", r.Timestamp)
	}
	if r.Timestamp-p.now > topic.Millis(p.settings.TimestampMaxForward.Milliseconds()) && !p.settings.AppendTime {
		return fault.Newf("broker.Produce", fault.Validation, p.in.Topic, "timestamp %d is more than %v ahead of the node's clock, which says %d",
			r.Timestamp, p.settings.TimestampMaxForward, p.now)
	}
	return nil
}

// looseBytes is what the records from the i-th on take that have neither key nor partition.
func (p *production) looseBytes(i int) int {
	n := 0
	for ; i < len(p.in.Records); i++ {
		if r := &p.in.Records[i]; r.Key == nil && r.Partition == topic.AnyPartition {
			n += weight(r)
		}
	}
	return n
}

// reserve takes what the batches need of the node's budget.
func (p *production) reserve() error {
	for _, d := range p.parts {
		batches := 1 + d.bytes/max(p.settings.MaxMessageBytes/2, 1)
		d.bytes += batches * batch.HeaderBytes
		p.reserved += d.bytes
	}
	return p.node.inFlight.take(p.reserved)
}

// encode builds the batches of every part.
func (p *production) encode() error {
	for _, d := range p.parts {
		d.call, d.acks, d.ifLast, d.reserved = &p.call, p.in.Acks, p.in.IfLast, d.bytes
		d.buffer = takeBuffer(d.bytes)
		d.buf = d.buffer.b
		p.beginKeyed(d)
	}
	for i := range p.in.Records {
		if p.where[i] < 0 {
			continue
		}
		r, d := &p.in.Records[i], p.parts[p.where[i]]
		w := weight(r)
		if d.weight == 0 || d.weight+w > p.settings.MaxMessageBytes {
			if err := d.cut(); err != nil {
				return p.undo(err)
			}
			d.builder.Reset(d.buf, batch.Options{Codec: batch.CodecOf(p.settings.Compression)})
			d.weight = batch.HeaderBytes
		}
		timestamp := r.Timestamp
		if timestamp == topic.NoTimestamp {
			timestamp = p.now
		}
		d.builder.Append(r, timestamp)
		d.weight += w
		if d.key != 0 {
			d.content.add(r)
		}
	}
	for _, d := range p.parts {
		if err := d.cut(); err != nil {
			return p.undo(err)
		}
	}
	p.endKeyed()
	return nil
}

// cut finishes the batch that is being built, if there is one.
func (d *draft) cut() error {
	if d.weight == 0 {
		return nil
	}
	b := staged{start: len(d.buf), count: int32(d.builder.Count()), sequence: d.next, base: topic.NoOffset, timestamp: topic.NoTimestamp}
	buf, err := d.builder.Finish()
	if err != nil {
		return err
	}
	d.buf, d.weight = buf, 0
	b.stop = len(buf)
	if d.key != 0 {
		b.content = d.content.sum()
		batch.SetProducer(d.buf[b.start:b.stop], d.key, b.content, b.sequence)
		d.next += b.count
		d.content = contentHash{}
	}
	d.batches = append(d.batches, b)
	return nil
}

// undo gives back what a call holds that will not be sent.
func (p *production) undo(err error) error {
	for _, d := range p.parts {
		d.giveBuffer()
	}
	p.node.inFlight.give(p.reserved)
	return err
}

// send hands every part to its partition. A part that is not taken is refused at once.
func (p *production) send() {
	p.call.left.Store(int32(len(p.parts)) + 1) // and one, so that the call does not end before all were sent
	for _, d := range p.parts {
		if d.failed = p.put(d); d.failed != nil {
			p.node.inFlight.give(d.reserved)
			d.giveBuffer()
			p.call.finished()
		}
	}
	p.call.finished()
}

func (p *production) put(d *draft) error {
	if d.to == nil {
		return fault.Newf("broker.Produce", fault.NotLeader, topic.Path{Topic: p.in.Topic, Partition: d.number}, "the partition is not open on this node")
	}
	return d.to.inbox.put(&d.part)
}

// queued fills in the results of a call that does not wait: an error where a record was refused so far.
func (p *production) queued() {
	for i, slot := range p.where {
		if slot >= 0 {
			p.in.Results[i].Err = p.parts[slot].failed
		}
	}
}

// collect fills in the results. late is for the parts that are not finished.
func (p *production) collect(late tardy) {
	for _, d := range p.parts {
		if d.failed == nil {
			d.failed = d.outcome(late)
		}
		p.recall(d)
	}
	for i, slot := range p.where {
		if slot >= 0 {
			p.result(&p.in.Results[i], &p.in.Records[i], p.parts[slot])
		}
	}
}

// result is what became of the next record of a part.
func (p *production) result(out *topic.Stored, r *topic.Record, d *draft) {
	if out.Err = d.failed; out.Err != nil {
		return
	}
	b := &d.batches[d.reading]
	if out.Err = b.err; out.Err == nil {
		out.Offset, out.Duplicate = b.base+topic.Offset(d.at), b.duplicate
		switch {
		case b.duplicate:
			out.Timestamp = d.recalled[d.reading][d.at]
		case b.timestamp != topic.NoTimestamp:
			out.Timestamp = b.timestamp
		case r.Timestamp != topic.NoTimestamp:
			out.Timestamp = r.Timestamp
		default:
			out.Timestamp = p.now
		}
	}
	if d.at++; d.at == b.count {
		d.reading, d.at = d.reading+1, 0
	}
}
