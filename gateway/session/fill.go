package session

import (
	"context"
	"errors"
	"sort"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// fill adds records of one part to the page until the page is full, the part has no more, or a gap is
// met. end says that the part has no more.
func (r *Reader) fill(ctx context.Context, p *part, limit Limit, page *Page) (end bool, err error) {
	for !page.full(limit) {
		if p.until != topic.NoOffset && p.next >= p.until {
			return true, nil
		}
		ok, err := r.hold(ctx, p, limit, page)
		if err != nil || len(r.notices) > 0 {
			return false, err
		}
		if !ok {
			return true, nil
		}
		if !r.take(p, limit, page) {
			return false, nil // the next record is larger than what is left of the page
		}
		if p.next == p.high && r.held.piece == nil {
			return true, nil // what has come since rings the bell
		}
	}
	return false, nil
}

// take moves records from the held piece to the page, as many as fit. It returns false when one more
// was there and did not fit.
func (r *Reader) take(p *part, limit Limit, page *Page) bool {
	h := &r.held
	one := h.piece
	most := min(one.len(), h.at+limit.Records-page.Records)
	if p.until != topic.NoOffset {
		most = min(most, h.at+sort.Search(one.len()-h.at, func(i int) bool { return one.offset(h.at+i) >= p.until }))
	}
	room := limit.Bytes - page.Bytes
	begin := one.begin(h.at)
	to := h.at + sort.Search(most-h.at, func(i int) bool { return int(one.marks[h.at+i].end)-begin > room })
	if to == h.at && most > h.at && page.Records == 0 {
		to++ // the first record is taken whatever its size
	}
	fits := to == most
	if to > h.at {
		next, last := one.next, one.last
		if to < one.len() {
			next, last = one.offset(to-1)+1, one.epoch
		}
		page.Runs = append(page.Runs, Run{
			Topic: p.topic.name, Partition: p.number, part: p, piece: one, from: h.at, to: to, next: next,
		})
		page.Records += to - h.at
		page.Bytes += int(one.marks[to-1].end) - begin
		p.next, p.last = next, last
		h.at = to
	}
	if fits && p.until != topic.NoOffset && (h.at == one.len() || one.offset(h.at) >= p.until) && one.next >= p.until {
		p.next = max(p.next, p.until)
	}
	if h.at == one.len() {
		p.next = max(p.next, one.next)
		r.held = piecer{}
	}
	return fits
}

// hold makes the reader hold a piece with the part's next record. It returns false when there is none.
func (r *Reader) hold(ctx context.Context, p *part, limit Limit, page *Page) (bool, error) {
	if r.held.part == p && r.held.piece != nil {
		return true, nil
	}
	for {
		bounds, err := r.bounds(p)
		if err != nil {
			return false, err
		}
		p.high = bounds.HighWatermark
		if p.next == topic.NoOffset {
			p.next, p.leader = bounds.LogStart, bounds.LeaderEpoch
		}
		if p.next == bounds.HighWatermark && p.leader == bounds.LeaderEpoch {
			return false, nil
		}
		r.ahead = min(max(pieceBytes, limit.Records*guessedRecord), fetchBytes)
		one, owned, err := r.read(ctx, p, bounds, max(pieceBytes, min(limit.Bytes-page.Bytes, mostPiece)))
		if err != nil {
			return false, r.misplaced(ctx, p, err)
		}
		if len(r.notices) > 0 {
			return false, nil
		}
		if one == nil {
			return false, nil
		}
		if owned {
			page.owned = append(page.owned, one)
		}
		if one.len() > 0 {
			if r.held.piece != nil && r.held.part == r.chunk.part {
				// Another part's rest is dropped, and read again when its turn comes. Its chunk stands behind that rest.
				r.chunk.close()
			}
			r.held = piecer{part: p, piece: one}
			return true, nil
		}
		if one.next > p.next {
			p.next, p.last = one.next, one.last
		}
	}
}

// mostPiece is the most that is encoded ahead of what a page can take.
const mostPiece = 1 << 20

// read returns the piece at the part's position: one that is shared where the part stands at the tail
// with others, else one of the reader's own. It returns nil when there is nothing there, or a gap, which
// is then among the notices.
func (r *Reader) read(ctx context.Context, p *part, bounds topic.Bounds, most int) (one *piece, owned bool, err error) {
	known := p.leader == bounds.LeaderEpoch && p.next >= bounds.LogStart
	if known && !(r.chunk.part == p) {
		key := pieceKey{ref: p.ref, leader: bounds.LeaderEpoch, rewrites: bounds.Rewrites, start: p.next, format: r.format}
		one := r.cache.get(key)
		if one == nil && r.tails.crowd(p.ref) > 1 && bounds.HighWatermark-p.next <= tailRecords {
			one, err = r.cache.load(ctx, key, func() ([]*piece, error) { return r.encodeAll(ctx, p) })
			if err != nil && !errors.Is(err, errUnshared) && !errors.Is(err, errNotMade) {
				return nil, false, err
			}
		}
		if one != nil {
			r.metrics.shared.Inc()
			return one, false, nil
		}
	}
	if r.chunk.part != p {
		r.chunk.close()
		fetched, err := r.fetch(ctx, p)
		if err != nil {
			return nil, false, err
		}
		p.leader = fetched.LeaderEpoch
		if fetched.Next <= p.next && len(fetched.Batches) == 0 {
			return nil, false, nil
		}
		r.chunk.open(p, p.next, fetched)
	}
	return r.encodeNext(p, most)
}

// encodeNext makes the next piece of the reader's chunk, or announces the gap that it stands before.
func (r *Reader) encodeNext(p *part, most int) (*piece, bool, error) {
	c := &r.chunk
	one := takePiece()
	if err := c.encode(one, &r.format, p.next, most); err != nil {
		one.give()
		c.close()
		return nil, false, err
	}
	r.metrics.encoded.Inc()
	if one.len() == 0 {
		if g := c.gap(c.fetched.Next); g != nil && (!c.ready || g.Start < c.records.Record().Offset) {
			one.give()
			r.announce(p, max(p.next, g.Start), g.End, g.Reason)
			c.gaps = c.gaps[1:]
			return nil, false, nil
		}
	}
	if c.end && len(c.gaps) == 0 {
		one.next = max(one.next, c.fetched.Next)
		c.close()
	}
	return one, true, nil
}

// encodeAll fetches and encodes what lies at the part's position, for everyone.
func (r *Reader) encodeAll(ctx context.Context, p *part) ([]*piece, error) {
	// Others wait for this, so it does not end when its caller's client goes away.
	fetched, err := r.fetch(context.WithoutCancel(ctx), p)
	switch {
	case err != nil:
		return nil, err
	case len(fetched.Gaps) > 0 || fetched.Next <= p.next || fetched.LeaderEpoch != p.leader:
		return nil, errUnshared
	}
	var c chunk
	defer c.close()
	c.open(p, p.next, fetched)
	var all []*piece
	for next := p.next; next < fetched.Next; {
		one := new(piece)
		if err := c.encode(one, &r.format, next, pieceBytes); err != nil {
			return nil, err
		}
		next = one.next
		all = append(all, one)
		r.metrics.encoded.Inc()
	}
	return all, nil
}

func (r *Reader) fetch(ctx context.Context, p *part) (topic.Fetched, error) {
	fetched, err := r.log.Fetch(ctx, topic.Fetch{
		Topic: p.topic.name, ID: p.topic.id, Partition: p.number,
		Offset: p.next, LastEpoch: p.last, MaxBytes: r.ahead,
	})
	return fetched, Gone(p.topic.name, err)
}

// outOfRange turns an error about the part's position into a gap and a new position, where the reader's
// policy is to go on. Every other error is returned.
func (r *Reader) outOfRange(p *part, err error) error {
	var out *topic.RangeError
	if r.onGap == GapError || !fault.Is(err, fault.OffsetRange) || !errors.As(err, &out) {
		return err
	}
	to := out.ResumeAt
	if r.onGap == GapLatest {
		to = out.Bounds.HighWatermark
	}
	r.skip(p, out, to)
	return nil
}

// skip goes on at an offset that is there, in place of one that is not.
func (r *Reader) skip(p *part, out *topic.RangeError, to topic.Offset) {
	r.chunk.close()
	r.announce(p, p.next, to, out.Reason)
	p.leader = out.Bounds.LeaderEpoch
}

// announce moves a part over a gap.
func (r *Reader) announce(p *part, from, to topic.Offset, reason topic.GapReason) {
	r.notices = append(r.notices, Notice{Gap: &Gap{
		Topic: p.topic.name, Partition: p.number, From: from, To: to, Reason: reason, part: p,
	}})
	r.metrics.gaps.Inc()
	p.next, p.last = to, topic.NoEpoch
}
