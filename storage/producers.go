package storage

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// KeyedBit is set in the producer ids that weir makes from idempotency keys, and in no other.
const KeyedBit = int64(1) << 62

// Keyed says that a producer id stands for an idempotency key.
func Keyed(producer int64) bool { return producer >= 0 && producer&KeyedBit != 0 }

// Sequenced is what a batch of a producer with an id says of itself in its header.
type Sequenced struct {
	Producer int64
	Epoch    int16 // of an idempotency key: 15 bits of a hash of the batch's content
	First    int32 // the sequence number of the first record
	Span     int32 // sequence numbers that it takes: the last offset delta plus one, also after compaction
}

// next is the sequence number behind the batch. They wrap around after 2^31-1.
func (s Sequenced) next() int32 { return int32((int64(s.First) + int64(s.Span)) & math.MaxInt32) } //nolint:gosec // masked

// Verdict is what the table knows of a batch.
type Verdict struct {
	Duplicate bool
	// Of the batch that was stored before. It may lie above the high watermark: then the answer waits
	// until it is committed.
	Base      topic.Offset
	Last      topic.Offset
	Timestamp topic.Millis // the greatest in that batch
}

// ProducerConfig bounds a producer table. Start from [DefaultProducers].
type ProducerConfig struct {
	Window     time.Duration // an idempotency key is kept this long from when its last batch was appended here
	KeyBatches int           // batches of one idempotency key
	Silence    time.Duration // an ordinary producer is kept this long from when its last batch was appended here
	Producers  int           // ordinary producers; the one that was silent longest goes first
	Keys       *KeyBudget    // shared by the tables of a node; nil sets no limit
}

// DefaultProducers keeps keys for 10 minutes and 1,024 batches of one, and 10,000 ordinary producers
// for a day.
func DefaultProducers() ProducerConfig {
	return ProducerConfig{Window: 10 * time.Minute, KeyBatches: 1024, Silence: 24 * time.Hour, Producers: 10_000}
}

// KeyBudget bounds the idempotency keys that the tables of a node hold together. When it is used up,
// a table that takes a key gives up its own oldest.
type KeyBudget struct {
	most    int64
	used    atomic.Int64
	evicted atomic.Int64
}

// NewKeyBudget returns a budget of most keys.
func NewKeyBudget(most int64) *KeyBudget { return &KeyBudget{most: most} }

// Used is how many keys are held.
func (b *KeyBudget) Used() int64 { return b.used.Load() }

// EvictedTotal is how many keys had to go before their window ended.
func (b *KeyBudget) EvictedTotal() int64 { return b.evicted.Load() }

// lastBatches is how many batches of an ordinary producer are remembered, as in Kafka: its clients
// have at most this many in flight.
const lastBatches = 5

// Producers is the producer table of a log: which batches of which producers are in it, so that a
// retry finds what it had stored. It is derived from the batch headers and cut with the log.
//
// The owner of the log asks [Producers.Check] for each batch in the order of the offsets they get, and
// tells the table of those it lets in with [Producers.Stage], so that the next Check sees them already.
// Log.Append then makes the table say what the log does: the batches that were written, and nothing else.
//
// Any goroutine may call its methods; only the owner's Check and Stage make sense together.
type Producers struct {
	cfg ProducerConfig

	mu     sync.Mutex // guards all below
	plain  producerEntries
	keyed  producerEntries
	staged []undo // what to take back, oldest first
}

// producer is an entry of the table.
type producer struct {
	epoch int16
	next  int32  // the sequence number that follows the newest batch
	at    int64  // when the newest batch was appended here, in Unix milliseconds
	first stored // the oldest batch known; most idempotency keys have one batch, and need no slice
	more  []stored
}

// stored is a batch that is in the log.
type stored struct {
	base      topic.Offset
	timestamp topic.Millis
	first     int32
	span      int32
	epoch     int16 // of a key: the content's hash; of a producer: the epoch of its entry
}

func (b stored) last() topic.Offset { return b.base + topic.Offset(b.span) - 1 }

func (b stored) is(s Sequenced) bool { return b.first == s.First && b.span == s.Span }

func (p producer) batches() int { return 1 + len(p.more) }

func (p producer) find(match func(stored) bool) (stored, bool) {
	if match(p.first) {
		return p.first, true
	}
	if i := slices.IndexFunc(p.more, match); i >= 0 {
		return p.more[i], true
	}
	return stored{}, false
}

// undo is an entry as it was before something was staged.
type undo struct {
	id    int64
	was   producer
	known bool
}

// NewProducers returns an empty table.
func NewProducers(cfg ProducerConfig) *Producers {
	p := &Producers{cfg: cfg}
	p.plain, p.keyed = p.empty()
	return p
}

// empty returns two tables that hold nothing, with their bounds.
func (p *Producers) empty() (plain, keyed producerEntries) {
	plain = producerEntries{byID: map[int64]producer{}, keep: p.cfg.Silence, most: p.cfg.Producers}
	keyed = producerEntries{byID: map[int64]producer{}, keep: p.cfg.Window, budget: p.cfg.Keys}
	return plain, keyed
}

func (p *Producers) of(id int64) *producerEntries {
	if Keyed(id) {
		return &p.keyed
	}
	return &p.plain
}

// Check says whether a batch is new to the log. It may be a duplicate of one that is appended but not
// committed yet. The errors are Fenced for an epoch that is over, OutOfSequence for a batch that does
// not follow its producer's last, KeyReused for another content at a known place of an idempotency
// key, and Limit for a key with too many batches. A refused batch leaves no trace.
func (p *Producers) Check(s Sequenced, now time.Time) (Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Producer < 0 {
		return Verdict{}, nil
	}
	if s.First < 0 || s.Span < 1 {
		return Verdict{}, refuse(fault.BadRequest, s, "sequence %d with %d records makes no sense", s.First, s.Span)
	}
	if len(p.staged) == 0 { // what is staged is not to be forgotten before it is taken back
		p.of(s.Producer).expire(now)
	}
	if Keyed(s.Producer) {
		return p.checkKeyed(s)
	}
	return p.checkPlain(s)
}

func refuse(kind fault.Kind, s Sequenced, format string, args ...any) error {
	where := fmt.Sprintf("producer %d", s.Producer)
	if Keyed(s.Producer) {
		where = ""
	}
	return fault.Newf("storage.Producers", kind, where, format, args...)
}

func (p *Producers) checkPlain(s Sequenced) (Verdict, error) {
	entry, known := p.plain.byID[s.Producer]
	switch {
	case !known:
		// Its entry may have gone with old segments, so any sequence is a beginning, as in Kafka.
		return Verdict{}, nil
	case s.Epoch < entry.epoch:
		return Verdict{}, refuse(fault.Fenced, s, "its epoch %d is over, it is now in %d", s.Epoch, entry.epoch)
	case s.Epoch > entry.epoch && s.First != 0:
		return Verdict{}, refuse(fault.OutOfSequence, s, "epoch %d begins with sequence %d, not with 0", s.Epoch, s.First)
	case s.Epoch > entry.epoch:
		return Verdict{}, nil
	}
	if b, ok := entry.find(func(b stored) bool { return b.is(s) }); ok {
		return b.duplicate(), nil
	}
	if s.First != entry.next {
		return Verdict{}, refuse(fault.OutOfSequence, s, "sequence %d does not follow the last, %d is next", s.First, entry.next)
	}
	return Verdict{}, nil
}

func (p *Producers) checkKeyed(s Sequenced) (Verdict, error) {
	entry, known := p.keyed.byID[s.Producer]
	switch {
	case !known && s.First == 0:
		return Verdict{}, nil
	case !known:
		return Verdict{}, refuse(fault.OutOfSequence, s, "record %d of an idempotency key whose first records are not known (any more)", s.First)
	}
	start, end := int64(s.First), int64(s.First)+int64(s.Span)
	b, overlaps := entry.find(func(b stored) bool { return int64(b.first) < end && start < int64(b.first)+int64(b.span) })
	switch {
	case overlaps && b.is(s) && b.epoch == s.Epoch:
		return b.duplicate(), nil
	case overlaps:
		return Verdict{}, refuse(fault.KeyReused, s, "this idempotency key was used with other records")
	case s.First != entry.next:
		return Verdict{}, refuse(fault.OutOfSequence, s, "record %d of an idempotency key does not follow the last, %d is next", s.First, entry.next)
	case entry.batches() >= p.cfg.KeyBatches:
		return Verdict{}, refuse(fault.Limit, s, "an idempotency key may have at most %d batches in a partition", p.cfg.KeyBatches)
	}
	return Verdict{}, nil
}

func (b stored) duplicate() Verdict {
	return Verdict{Duplicate: true, Base: b.base, Last: b.last(), Timestamp: b.timestamp}
}

// Stage lets later Checks see a batch that Check found new and that gets its place in the log with the
// next append. Log.Append, or [Producers.Unstage] when there is none, takes it back.
func (p *Producers) Stage(s Sequenced, base topic.Offset, timestamp topic.Millis, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Producer < 0 {
		return
	}
	byID := p.of(s.Producer).byID
	was, known := byID[s.Producer]
	p.staged = append(p.staged, undo{s.Producer, was, known})
	byID[s.Producer] = was.with(s, base, timestamp, now.UnixMilli(), known)
}

// Unstage takes back what was staged.
func (p *Producers) Unstage() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstage()
}

func (p *Producers) unstage() {
	for _, u := range slices.Backward(p.staged) {
		if u.known {
			p.of(u.id).byID[u.id] = u.was
		} else {
			delete(p.of(u.id).byID, u.id)
		}
	}
	clear(p.staged)
	p.staged = p.staged[:0]
}

// with is the entry after one more batch. The old entry stays as it was: what both share is only appended to.
func (e producer) with(s Sequenced, base topic.Offset, timestamp topic.Millis, at int64, known bool) producer {
	b := stored{base: base, timestamp: timestamp, first: s.First, span: s.Span, epoch: s.Epoch}
	after := producer{epoch: s.Epoch, next: s.next(), at: at, first: b}
	if !known || !Keyed(s.Producer) && s.Epoch != e.epoch {
		return after
	}
	after.first, after.more = e.first, append(e.more, b)
	if !Keyed(s.Producer) && after.batches() > lastBatches {
		after.first, after.more = after.more[0], after.more[1:]
	}
	return after
}

// Apply adds a batch that is in the log. What was staged is taken back before.
func (p *Producers) Apply(s Sequenced, base topic.Offset, timestamp topic.Millis, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstage()
	if s.Producer < 0 || s.First < 0 || s.Span < 1 {
		return
	}
	table := p.of(s.Producer)
	was, known := table.byID[s.Producer]
	table.put(s.Producer, was.with(s, base, timestamp, now.UnixMilli(), known))
	table.expire(now)
}

// Expire forgets what is out of its window. Check and Apply do so too; a log that nobody writes to
// needs it to give its keys back to the budget.
func (p *Producers) Expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.staged) == 0 {
		p.plain.expire(now)
		p.keyed.expire(now)
	}
}

// Holds says whether the table knows the batch of a producer that begins at an offset. Compaction
// keeps the header of such a batch although none of its records is left, so that a replay of the log
// still finds its sequence numbers.
func (p *Producers) Holds(id int64, base topic.Offset) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry, known := p.of(id).byID[id]
	if !known {
		return false
	}
	_, ok := entry.find(func(b stored) bool { return b.base == base })
	return ok
}

// Len is how many ordinary producers and idempotency keys the table holds.
func (p *Producers) Len() (producers, keys int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.plain.byID), len(p.keyed.byID)
}

// Become takes over the content of a table that was rebuilt from a cut log; rebuilt is not used any
// more. Batches that both know keep the time at which they were appended first.
func (p *Producers) Become(rebuilt *Producers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstage()
	rebuilt.mu.Lock()
	defer rebuilt.mu.Unlock()
	plain, keyed := p.empty()
	for _, move := range []struct{ from, was, to *producerEntries }{
		{&rebuilt.plain, &p.plain, &plain}, {&rebuilt.keyed, &p.keyed, &keyed},
	} {
		for id, entry := range move.from.byID {
			if was, ok := move.was.byID[id]; ok {
				entry.at = min(entry.at, was.at)
				move.from.byID[id] = entry
			}
		}
		move.was.clear()
		move.to.fill(move.from.byID)
		move.from.clear()
	}
	p.plain, p.keyed = plain, keyed
}

// Clear empties the table and gives its keys back to the budget. A log does so when it is closed.
func (p *Producers) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstage()
	p.plain.clear()
	p.keyed.clear()
}
