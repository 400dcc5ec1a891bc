package session

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Spec says what a reader reads.
type Spec struct {
	Topics []topic.Name // at least one; at most one when Partitions is set
	// Partitions, when not nil, are the only ones that are read. Otherwise a reader follows all, and those
	// that are added later.
	Partitions []topic.Partition
	From       From
	OnGap      OnGap
	UntilEnd   bool // end at the high watermarks of the moment of opening
	Format     Format
}

// Reader reads partitions of one or several topics. It is for one goroutine at a time.
type Reader struct {
	log     Log
	cache   *cache
	tails   *tails
	metrics *metrics
	format  Format
	onGap   OnGap

	topics  []*following
	parts   []*part
	turn    int          // of parts: whose turn it is, so that none starves another
	until   bool         // the reader ends; see Spec.UntilEnd
	cursor  topic.Cursor // behind what was passed; not of a group's reader
	group   *grouped     // of a group's reader; else nil
	notices []Notice     // not yet given

	chunk chunk  // what was fetched for one part and is not all encoded
	held  piecer // a piece of which a part of the records was given
	page  Page
	ahead int // bytes of the log to fetch at a time

	bell  chan<- struct{} // nil until Listen
	serve func() bool     // see member; may be nil
}

// piecer is a reader's place in a piece.
type piecer struct {
	part  *part
	piece *piece
	at    int // the next record
}

// following is one topic that is read.
type following struct {
	name  topic.Name
	id    topic.ID
	whole bool
	count int                // partitions that were there when last looked at
	known *topic.Description // as last seen; another one when the topic has changed
	place int                // in Reader.cursor.Topics
}

// part is one partition that is read.
type part struct {
	topic  *following
	number topic.Partition
	ref    topic.Ref
	next   topic.Offset // the position; NoOffset: the log's start, wherever that is
	high   topic.Offset // the high watermark as last seen
	until  topic.Offset // the reader's end; NoOffset: none
	last   topic.Epoch  // of the last record read
	leader topic.Epoch  // under which next and last are known to lie in the log; NoEpoch: not known
	place  int          // in its topic's Parts of Reader.cursor
	stop   func()       // of Listen

	assigned topic.GroupEpoch // of a group's reader: when the partition was assigned
}

// pieceBytes is how much of a log is encoded at a time.
const pieceBytes = 64 << 10

// fetchBytes is how much of a log is fetched at a time, at most. A page of few records fetches what these
// take if they are as large as guessedRecord.
const (
	fetchBytes    = 256 << 10
	guessedRecord = 256
)

// tailRecords is how near to the end of a partition readers share what they read.
const tailRecords = 1 << 16

var (
	errNotMade  = fault.Newf("session.cache", fault.Internal, nil, "an encoding was given up")
	errUnshared = errors.New("what was fetched is not the same for every reader")
)

// Open makes a reader that stands where spec says. The errors are those of a request: a topic or
// partition that does not exist, a cursor that does not fit, an offset that is out of range.
func (h *Hub) Open(ctx context.Context, spec Spec) (*Reader, error) {
	r := &Reader{log: h.log, cache: h.cache, tails: &h.tails, metrics: h.metrics, format: spec.Format, onGap: spec.OnGap, until: spec.UntilEnd}
	if err := r.place(ctx, spec, h.cfg.MaxPartitions); err != nil {
		return nil, err
	}
	if spec.UntilEnd {
		for _, p := range r.parts {
			bounds, err := r.bounds(p)
			if err != nil {
				return nil, err
			}
			p.until = bounds.HighWatermark
		}
	}
	return r, nil
}

// Listen rings bell whenever there may be something new to read. Call it before the first Next that may
// be followed by a wait.
func (r *Reader) Listen(bell chan<- struct{}) error {
	r.bell = bell
	for _, p := range r.parts {
		if err := r.listen(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) listen(p *part) error {
	stop, err := r.tails.listen(p.ref, &member{bell: r.bell, serve: r.serve})
	if err != nil {
		return Gone(p.topic.name, err)
	}
	p.stop = stop
	return nil
}

// Close ends listening and gives back what the reader holds. It may be called more than once.
func (r *Reader) Close() {
	for _, p := range r.parts {
		r.unlisten(p)
	}
	r.drop()
	r.parts, r.bell = nil, nil
}

func (r *Reader) unlisten(p *part) {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// drop forgets what was fetched and encoded ahead.
func (r *Reader) drop() {
	r.chunk.close()
	r.held = piecer{}
}

// Seek moves the reader, as if it had been opened there. Listening goes on. After an error the reader
// stands where it stood.
func (r *Reader) Seek(ctx context.Context, from From) error {
	to := &Reader{log: r.log, cache: r.cache, tails: r.tails, metrics: r.metrics, format: r.format, onGap: r.onGap}
	spec := Spec{From: from}
	for _, f := range r.topics {
		spec.Topics = append(spec.Topics, f.name)
		if !f.whole {
			spec.Partitions = make([]topic.Partition, 0, len(r.parts))
			for _, p := range r.parts {
				spec.Partitions = append(spec.Partitions, p.number)
			}
		}
	}
	if err := to.place(ctx, spec, len(r.parts)+topicPartitionsSlack); err != nil {
		return err
	}
	if r.bell != nil {
		to.serve = r.serve
		if err := to.Listen(r.bell); err != nil {
			to.Close()
			return err
		}
	}
	r.Close()
	*r = *to
	return nil
}

// topicPartitionsSlack is how many partitions may have been added without the reader's knowing.
const topicPartitionsSlack = 10_000

// Passed moves the cursor behind the first n records of a run, and behind the run's end when n is all.
func (r *Reader) Passed(run *Run, n int) {
	switch {
	case n < run.Len():
		r.moved(run.part, run.piece.offset(run.from+n-1)+1, run.piece.epoch)
	case run.to < run.piece.len():
		r.moved(run.part, run.next, run.piece.epoch)
	default:
		r.moved(run.part, run.next, run.piece.last)
	}
}

// moved sets the cursor's position in a part.
func (r *Reader) moved(p *part, next topic.Offset, last topic.Epoch) {
	if r.group != nil {
		r.group.cursor.Advance(p.ref, next, last, p.assigned)
		return
	}
	at := &r.cursor.Topics[p.topic.place].Parts[p.place]
	at.Next, at.LastEpoch = next, last
}

// PassedAll moves the cursor behind a page.
func (r *Reader) PassedAll(page *Page) {
	for i := range page.Runs {
		r.Passed(&page.Runs[i], page.Runs[i].Len())
	}
}

// Cursor is where a reader goes on that has had everything passed. It is valid until the next call of a
// method. A group's reader has a [Reader.GroupCursor] instead.
func (r *Reader) Cursor() *topic.Cursor { return &r.cursor }

// appendCursor appends the text of the reader's cursor, of whichever kind it is.
func (r *Reader) appendCursor(dst []byte) []byte {
	if r.group != nil {
		return r.group.cursor.Append(dst)
	}
	return r.cursor.Append(dst)
}

// Gone gives an error that says that a topic is not there the name that its reader knows: the log was
// asked for an id. Every other error, and nil, stays what it is.
func Gone(name topic.Name, err error) error {
	if !fault.Is(err, fault.NoTopic) {
		return err
	}
	return fault.Newf("session.Reader", fault.NoTopic, name, "topic %q was deleted", name)
}

// bounds are those of a part.
func (r *Reader) bounds(p *part) (topic.Bounds, error) {
	bounds, err := r.log.Bounds(p.ref)
	return bounds, Gone(p.topic.name, err)
}

// Partitions is how many are read.
func (r *Reader) Partitions() int { return len(r.parts) }

// Next returns what is there, without waiting for more. An error ends the reader, unless its kind is
// retryable: then a later call may succeed.
func (r *Reader) Next(ctx context.Context, limit Limit) (*Page, error) {
	page := &r.page
	page.reset(r.held.piece)
	trouble, err := r.follow()
	if err != nil {
		return nil, err
	}
	r.check()
	ended := 0
	for range len(r.parts) {
		if len(r.notices) > 0 || page.full(limit) {
			break
		}
		end, err := r.fill(ctx, r.parts[r.turn], limit, page)
		switch {
		case err != nil && fault.KindOf(err).Retryable():
			trouble = err
		case r.group != nil && fault.Is(err, fault.NoTopic):
			trouble = errDeleted // the next call sets the part aside, and its group will have heard of it
		case err != nil && page.Records == 0:
			return nil, err
		case err != nil:
			return page, nil // what was read before it is given first; the next call meets it again
		case end:
			ended++
		}
		if len(r.notices) == 0 {
			r.turn = (r.turn + 1) % len(r.parts)
		}
	}
	if page.Records == 0 && len(r.notices) > 0 {
		// Records come before the gap behind them, and notices before the records behind those.
		r.notify(page)
		return page, nil
	}
	if page.Records == 0 && trouble != nil {
		return nil, trouble
	}
	page.AtEnd = ended == len(r.parts) && len(r.notices) == 0
	page.Done = page.AtEnd && r.until && r.done()
	return page, nil
}

// check drops what was fetched ahead when it may not be in the log any more: when its partition has
// another leader, or lost records below its log start.
func (r *Reader) check() {
	for _, p := range []*part{r.held.part, r.chunk.part} {
		if p == nil {
			continue
		}
		bounds, err := r.bounds(p)
		if err != nil || bounds.LeaderEpoch != p.leader || p.next < bounds.LogStart {
			r.drop()
			return
		}
	}
}

// notify puts the notices into the page. The cursor moves over a gap when it is told, and not sooner:
// who goes on from an older cursor meets it again.
func (r *Reader) notify(page *Page) {
	for _, n := range r.notices {
		if g := n.Gap; g != nil {
			r.moved(g.part, g.To, topic.NoEpoch)
		}
		page.Notices = append(page.Notices, n)
	}
	clear(r.notices)
	r.notices = r.notices[:0]
}

func (p *Page) full(limit Limit) bool { return p.Records >= limit.Records || p.Bytes >= limit.Bytes }

// done says that every part stands at the end that was asked for.
func (r *Reader) done() bool {
	return !slices.ContainsFunc(r.parts, func(p *part) bool { return p.until == topic.NoOffset || p.next < p.until })
}

// follow looks at the topics for changes. What cannot be read for now is the trouble, an err ends the reader.
func (r *Reader) follow() (trouble, err error) {
	if r.group != nil {
		return r.followGroup()
	}
	return nil, r.followTopics()
}

// followTopics looks at topics that are read for their own sake: one that is gone ends the reader,
// partitions that were added are read from their beginning.
func (r *Reader) followTopics() error {
	for _, f := range r.topics {
		d, err := r.log.TopicByID(f.id)
		if err != nil {
			return Gone(f.name, err)
		}
		if d == f.known {
			continue
		}
		if f.whole && f.count < len(d.Partitions) {
			news := &Partitions{Topic: f.name, Count: len(d.Partitions)}
			for f.count < len(d.Partitions) {
				n := topic.Partition(f.count)
				if err := r.addPart(f, n, topic.NoOffset, topic.NoEpoch); err != nil {
					return err
				}
				f.count++
				news.Added = append(news.Added, n)
			}
			r.notices = append(r.notices, Notice{Partitions: news})
		}
		f.known = d
	}
	return nil
}

// addPart adds a partition behind those of its topic that are read already.
func (r *Reader) addPart(f *following, n topic.Partition, next topic.Offset, last topic.Epoch) error {
	at := &r.cursor.Topics[f.place]
	p := &part{
		topic: f, number: n, ref: topic.Ref{ID: f.id, Partition: n}, next: next, last: last,
		until: topic.NoOffset, leader: topic.NoEpoch, place: len(at.Parts),
	}
	if r.bell != nil {
		if err := r.listen(p); err != nil {
			return err
		}
		if r.until {
			p.until = 0 // it is younger than the end that was asked for
		}
	}
	at.Parts = append(at.Parts, topic.CursorPart{Partition: n, Next: max(next, 0), LastEpoch: last})
	r.parts = append(r.parts, p)
	return nil
}
