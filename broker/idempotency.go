package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// An idempotency key stands in the log as a producer id of a range of its own. The sequence numbers of
// its batches count the request's records for the partition, so a retry finds what it had stored, and
// goes on behind it. The producer epoch of a batch is a hash of its content.

// looseBlock is how many records without key and partition, in a row, go to one partition.
const looseBlock = 1000

// keyID is the producer id of an idempotency key. It covers the number of partitions that records are
// spread over: after a topic has grown, an id that is known under the old number proves that the key
// was first used with it.
func keyID(principal string, id topic.ID, key string, partitions int32) int64 {
	h := make([]byte, 0, 256)
	for _, field := range []string{principal, string(id[:]), key} {
		h = binary.BigEndian.AppendUint64(h, uint64(len(field)))
		h = append(h, field...)
	}
	h = binary.BigEndian.AppendUint32(h, uint32(partitions))
	sum := sha256.Sum256(h)
	return int64(binary.BigEndian.Uint64(sum[:])&(1<<62-1)) | storage.KeyedBit
}

// spread is the number of partitions that the call's records are spread over.
func (p *production) spread() int32 {
	t := p.topic.topic.Load()
	now := int32(len(t.Partitions))
	if p.in.IdempotencyKey == "" {
		return now
	}
	stream := p.in.Keyed
	if stream != nil && stream.Partitions != 0 { // a later call of the same request
		for _, n := range stream.Sequences {
			p.accepted += int(n)
		}
		p.key = keyID(p.in.Principal, t.ID, p.in.IdempotencyKey, stream.Partitions)
		return stream.Partitions
	}
	chosen := now
	forgotten := p.now - topic.Millis(p.node.cfg.IdempotencyWindow.Milliseconds())
	for i := len(t.Growth) - 1; i > 0 && t.Growth[i].Since >= forgotten; i-- {
		if before := int32(t.Growth[i-1].Partitions); p.knownAt(t.ID, before) {
			chosen = before
			break
		}
	}
	p.key = keyID(p.in.Principal, t.ID, p.in.IdempotencyKey, chosen)
	if stream != nil {
		stream.Partitions = chosen
	}
	return chosen
}

// knownAt says whether the call's key was used when the topic had a number of partitions.
func (p *production) knownAt(id topic.ID, spread int32) bool {
	key := keyID(p.in.Principal, id, p.in.IdempotencyKey, spread)
	partitions := *p.topic.partitions.Load()
	asked := make([]bool, len(partitions))
	for i := range p.in.Records {
		number := p.choose(&p.in.Records[i], key, i, spread)
		if number < 0 || int(number) >= len(partitions) || asked[number] || partitions[number] == nil {
			continue
		}
		asked[number] = true
		// A batch of all possible records is new only to a log that has no record of the key.
		all := storage.Sequenced{Producer: key, Span: math.MaxInt32}
		if verdict, err := partitions[number].log.Producers().Check(all, time.Now()); err != nil || verdict.Duplicate {
			return true
		}
	}
	return false
}

// looseKeyed is the partition of the index-th record of a request with an idempotency key, when the
// record names neither key nor partition.
func looseKeyed(key int64, index int, spread int32) topic.Partition {
	return topic.Partition((uint64(key)>>32 + uint64(index/looseBlock)) % uint64(spread))
}

// beginKeyed gives a draft its place in the idempotent request.
func (p *production) beginKeyed(d *draft) {
	d.key = p.key
	if p.in.Keyed != nil {
		d.next = p.in.Keyed.Sequences[d.number]
	}
}

// endKeyed remembers where the next call of the request goes on.
func (p *production) endKeyed() {
	stream := p.in.Keyed
	if p.key == 0 || stream == nil {
		return
	}
	if stream.Sequences == nil {
		stream.Sequences = map[topic.Partition]int32{}
	}
	for _, d := range p.parts {
		stream.Sequences[d.number] = d.next
	}
}

// contentHash is a running hash of the keys, values and headers of records.
type contentHash struct {
	crc     uint32
	scratch [8]byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h *contentHash) add(r *topic.Record) {
	h.bytes(r.Key)
	h.bytes(r.Value)
	h.number(len(r.Headers))
	for i := range r.Headers {
		h.bytes([]byte(r.Headers[i].Name))
		h.bytes(r.Headers[i].Value)
	}
}

func (h *contentHash) number(n int) {
	binary.BigEndian.PutUint64(h.scratch[:], uint64(n))
	h.crc = crc32.Update(h.crc, castagnoli, h.scratch[:])
}

func (h *contentHash) bytes(b []byte) {
	if b == nil {
		h.number(-1)
		return
	}
	h.number(len(b))
	h.crc = crc32.Update(h.crc, castagnoli, b)
}

// sum is 15 bits of the hash, which fit a producer epoch.
func (h *contentHash) sum() int16 { return int16((h.crc ^ h.crc>>15) & math.MaxInt16) }

// recall finds the timestamps under which the duplicates of a draft were stored. Their records had the
// clock of the earlier try where they have none of their own.
func (p *production) recall(d *draft) {
	for i := range d.batches {
		b := &d.batches[i]
		if d.failed != nil || b.err != nil || !b.duplicate {
			continue
		}
		if d.recalled == nil {
			d.recalled = make([][]topic.Millis, len(d.batches))
		}
		d.recalled[i] = d.to.timestamps(b.base, b.count)
	}
}

// timestamps of count records from an offset on; NoTimestamp for what is not there any more.
func (p *partition) timestamps(from topic.Offset, count int32) []topic.Millis {
	found := make([]topic.Millis, count)
	for i := range found {
		found[i] = topic.NoTimestamp
	}
	end := from + topic.Offset(count)
	var reader batch.Reader
	defer reader.Close()
	for at := from; at < end; {
		batches, next, _, err := p.read(at, end, 1) // a batch is returned whole, however little is asked for
		if err != nil || next <= at {
			return found // retention took it meanwhile; that it is stored was true when it was said
		}
		for reader.Reset(batches, at); reader.Next(); {
			if r := reader.Record(); r.Offset < end {
				found[r.Offset-from] = r.Timestamp
			}
		}
		at = next
	}
	return found
}
