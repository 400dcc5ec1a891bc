package storage

import (
	"errors"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// OffsetForTime finds the first record at or above the log's start and below an offset whose timestamp
// is at or after t, and returns its offset and timestamp. When there is none it returns below and
// NoTimestamp. Any goroutine.
func (l *Log) OffsetForTime(t topic.Millis, below topic.Offset) (topic.Offset, topic.Millis, error) {
	for {
		if err := l.Failed(); err != nil {
			return 0, 0, err
		}
		cuts := l.cuts.Load()
		offset, at, err := l.offsetForTime(t, below)
		if cuts != l.cuts.Load() || cuts%2 == 1 || errors.Is(err, errGone) {
			l.await()
			continue
		}
		if err != nil {
			return 0, 0, l.refuse("OffsetForTime", fault.Internal, err)
		}
		return offset, at, nil
	}
}

// errFound ends a scan that has what it looked for.
var errFound = errors.New("found")

func (l *Log) offsetForTime(t topic.Millis, below topic.Offset) (topic.Offset, topic.Millis, error) {
	v, start := l.view.Load(), l.Start()
	for i := max(0, v.find(start)); i < len(v.segments); i++ {
		s := v.segments[i]
		if s.base >= below {
			break
		}
		if i < len(v.segments)-1 {
			about, err := l.factsOf(s, v.limit(i, below))
			if err != nil {
				return 0, 0, err
			}
			if about.largest < t {
				continue
			}
		}
		offset, at, err := l.timeInSegment(v, i, t, start, below)
		if err != nil || at != topic.NoTimestamp {
			return offset, at, err
		}
	}
	return below, topic.NoTimestamp, nil
}

// timeInSegment looks in one segment; the timestamp is NoTimestamp when it has no such record.
func (l *Log) timeInSegment(v *view, i int, t topic.Millis, start, below topic.Offset) (topic.Offset, topic.Millis, error) {
	s := v.segments[i]
	if _, err := s.bytes(); err != nil { // before the end is read
		return 0, 0, err
	}
	limit := v.limit(i, l.End())
	made, err := l.indexOf(s, limit, false)
	if err != nil {
		return 0, 0, err
	}
	from := max(start, s.base+topic.Offset(made.before(t)))
	offset, at := below, topic.NoTimestamp
	var records batch.Reader
	defer records.Close()
	err = l.scan(s, limit, from, false, func(b found) error {
		if b.header.BaseOffset >= below {
			return errFound
		}
		if b.header.MaxTimestamp < t {
			return nil
		}
		records.Reset(b.raw, from)
		for records.Next() {
			r := records.Record()
			if r.Offset >= below {
				return errFound
			}
			if r.Timestamp >= t {
				offset, at = r.Offset, r.Timestamp
				return errFound
			}
		}
		return nil // what the records are is not the log's to judge: its checksum was right
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return offset, at, err
}
