package gateway

import (
	"context"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// recordPage is the records of a page while they are written, be they of one partition or of several.
type recordPage struct {
	*pageBody
	limit   session.Limit
	options recordjson.Options
	start   int // where the records begin in the buffer
	records int
	gaps    []session.Gap
}

// place is where a page stands in a partition.
type place struct {
	path   topic.Path
	id     topic.ID
	next   topic.Offset
	last   topic.Epoch  // of the record before next; NoEpoch where it is not known
	bounds topic.Bounds // as last seen
}

// bytes is how much of the page the records take.
func (page *recordPage) bytes() int { return len(page.b) - page.start }

// The sizes by which a page guesses how much of the log it needs.
const (
	guessedRecord = 256
	leastFetch    = 64 << 10
	mostFetch     = 1 << 20 // at a time: a page of many megabytes does not hold its part of the log as well
)

// want is about how much of the log the rest of the page takes: as much a record as so far.
func (page *recordPage) want() int {
	each := guessedRecord
	if page.records > 0 {
		each = page.bytes() / page.records
	}
	left := page.limit.Bytes - page.bytes()
	return min(max(left, 1), max(leastFetch, (page.limit.Records-page.records)*each), mostFetch)
}

// read fetches once at a place, as f says about waiting, and takes what comes. full says that the page has
// no more room.
func (page *recordPage) read(ctx context.Context, node Fetcher, at *place, f topic.Fetch) (full bool, err error) {
	f.Topic, f.ID, f.Partition = at.path.Topic, at.id, at.path.Partition
	f.Offset, f.LastEpoch, f.MaxBytes = at.next, at.last, max(page.want(), f.MinBytes)
	fetched, err := node.Fetch(ctx, f)
	if err != nil {
		return false, err
	}
	at.bounds.LogStart, at.bounds.HighWatermark, at.bounds.LeaderEpoch = fetched.LogStart, fetched.HighWatermark, fetched.LeaderEpoch
	return page.take(at, &fetched)
}

// take writes what was fetched, as far as the page has room, and the node memory for it. full says that it
// has no more.
func (page *recordPage) take(at *place, f *topic.Fetched) (full bool, err error) {
	var r batch.Reader
	defer r.Close()
	r.Reset(f.Batches, at.next)
	for r.Next() {
		if r.Header().Attributes&batch.Control != 0 {
			continue
		}
		record := r.Record()
		if page.records == page.limit.Records {
			return true, nil
		}
		before := len(page.b)
		page.b = append(recordjson.Append(page.b, record, page.options), ',')
		over := page.records > 0 && page.bytes() > page.limit.Bytes
		if !over {
			if err := page.pay(); err != nil && page.records == 0 {
				return false, err
			} else if err != nil {
				over = true
			}
		}
		if over {
			page.b = page.b[:before]
			return true, nil
		}
		// A gap before the record was stepped over with it.
		page.addGaps(at, f, record.Offset)
		page.records++
		at.next, at.last = record.Offset+1, r.Header().LeaderEpoch
	}
	if err := r.Err(); err != nil {
		return false, err
	}
	page.addGaps(at, f, f.Next)
	if f.Next > at.next {
		// What lies behind the last record is gone. In which epoch the last of it was written is known where
		// its batch is still there.
		at.next = f.Next
		if len(f.Batches) == 0 || r.Header().Next() < f.Next {
			at.last = topic.NoEpoch
		} else {
			at.last = r.Header().LeaderEpoch
		}
	}
	return page.records == page.limit.Records, nil
}

// addGaps adds the gaps that lie between a place and an offset.
func (page *recordPage) addGaps(at *place, f *topic.Fetched, to topic.Offset) {
	for _, g := range f.Gaps {
		if g.Start >= at.next && g.Start < to || g.Start < at.next && g.End > at.next {
			page.gaps = append(page.gaps, session.Gap{
				Topic: at.path.Topic, Partition: g.Partition, From: g.Start, To: g.End, Reason: g.Reason,
			})
		}
	}
}
