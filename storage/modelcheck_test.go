package storage

import (
	"slices"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func (r *run) checkStart() {
	if start := r.log.Start(); start < r.model.start || start > r.model.startMax {
		r.fatalf("the log starts at %d, not in %d..%d", start, r.model.start, r.model.startMax)
	}
}

// check reads all of the log and compares it with the model.
func (r *run) check() {
	if r.log.Failed() != nil {
		r.fatalf("not reopened")
	}
	if end := r.log.End(); end != r.model.end() {
		r.fatalf("the log ends at %d, not at %d", end, r.model.end())
	}
	present := r.read()
	i := 0
	for _, b := range r.model.batches {
		for _, want := range b.records {
			if want.offset < r.log.Start() {
				continue
			}
			if i < len(present) && present[i].offset == want.offset {
				got := present[i]
				if got.key != want.key || got.value != want.value || got.timestamp != want.timestamp || got.epoch != want.epoch {
					r.fatalf("at %d is %v, want %v", want.offset, got, want)
				}
				if e := r.log.EpochAt(want.offset); e != want.epoch {
					r.fatalf("the epoch at %d is %d, the table says %d", want.offset, want.epoch, e)
				}
				i++
			} else if !want.mayGo {
				r.fatalf("%v is gone", want)
			}
		}
	}
	if i < len(present) {
		r.fatalf("%v was never appended, or is twice there", present[i])
	}
	r.checkTimes(present)
}

// read reads the log in pieces of random size.
func (r *run) read() (present []modelRecord) {
	var reader batch.Reader
	defer reader.Close()
	end := r.log.End()
	for from := r.log.Start(); from < end; {
		below := from + 1 + topic.Offset(r.Int64N(int64(end-from)))
		if r.IntN(3) > 0 {
			below = end
		}
		piece, err := r.log.Read(from, below, 1+r.IntN(20_000))
		switch {
		case err != nil:
			r.fatalf("read %d: %v", from, err)
		case len(piece.Gaps) > 0:
			r.fatalf("read %d: gaps %v", from, piece.Gaps)
		case piece.Next > below || piece.Next < from || piece.Next == from && below == end:
			r.fatalf("read %d below %d goes on at %d", from, below, piece.Next)
		}
		reader.Reset(piece.Batches, from)
		for reader.Next() {
			record := modelRecord{
				offset: reader.Record().Offset, timestamp: reader.Record().Timestamp, epoch: reader.Header().LeaderEpoch,
				key: string(reader.Record().Key), value: string(reader.Record().Value),
			}
			if record.offset >= below {
				r.fatalf("read %d below %d returned %v", from, below, record)
			}
			present = append(present, record)
		}
		if err := reader.Err(); err != nil {
			r.fatalf("read %d: %v", from, err)
		}
		from = piece.Next
	}
	return present
}

func (r *run) checkTimes(present []modelRecord) {
	t := 1_700_000_000_000 + topic.Millis(r.Int64N(max(1, int64(r.clock-1_700_000_000_000)+20))) - 10
	below := r.log.End()
	wantOffset, wantTime := below, topic.NoTimestamp
	if i := slices.IndexFunc(present, func(m modelRecord) bool { return m.timestamp >= t }); i >= 0 {
		wantOffset, wantTime = present[i].offset, present[i].timestamp
	}
	offset, at, err := r.log.OffsetForTime(t, below)
	if err != nil || offset != wantOffset || at != wantTime {
		r.fatalf("the first record at %d is %d (%d), %v; want %d (%d)", t, offset, at, err, wantOffset, wantTime)
	}
}

// checkProducers asks the table for the last batches of each producer.
func (r *run) checkProducers() {
	last := map[int64]int{}
	for _, b := range slices.Backward(r.model.batches) {
		id := b.sequenced.Producer
		if last[id]++; id < 0 || b.base < r.log.Start() || last[id] > lastBatches && !Keyed(id) {
			continue
		}
		v, err := r.log.producers.Check(b.sequenced, time.Now())
		if err != nil || !v.Duplicate || v.Base != b.base || v.Last != b.next-1 {
			r.fatalf("%+v is at %d, the table says %+v, %v", b.sequenced, b.base, v, err)
		}
	}
	for id, next := range r.next {
		s := Sequenced{Producer: id, First: next, Span: 1}
		if v, err := r.log.producers.Check(s, time.Now()); (err != nil || v.Duplicate) && !(Keyed(id) && fault.Is(err, fault.OutOfSequence)) {
			r.fatalf("%+v comes next, the table says %+v, %v", s, v, err)
		}
	}
}
