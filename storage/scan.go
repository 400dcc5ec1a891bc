package storage

import (
	"errors"
	"io"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// found is a batch that a scan came by.
type found struct {
	header batch.Header
	raw    []byte // valid until the next one; nil in a scan of headers
	at     int64  // the byte of the segment at which it begins
}

// scan visits the sound batches of a segment, from the one that holds an offset on, and steps over
// damage. limit is where the segment's offsets end.
func (l *Log) scan(s *segment, limit, from topic.Offset, headers bool, visit func(found) error) error {
	size, err := s.bytes()
	if err != nil {
		return err
	}
	if s == l.view.Load().active() {
		limit = l.End() // after size: the end of all that size covers, or more
	}
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	w := walk{file: f, size: size, expect: s.base, limit: limit, headers: headers}
	defer w.close()
	if from > s.base {
		r := reader{log: l, segment: s, limit: limit}
		if err := r.seek(&w, from, 0); err != nil {
			return err
		}
	}
	for {
		at := w.at
		h, raw, err := w.next()
		switch {
		case err == nil:
			if h.Next() <= from {
				continue
			}
			if err := visit(found{h, raw, at}); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		case isUnsound(err):
			if _, err := w.resync(); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// factsOf is what is known of a closed segment: from memory, from the head of its time index or, when
// that has nothing sound, from its batches.
func (l *Log) factsOf(s *segment, limit topic.Offset) (facts, error) {
	if about := s.facts.Load(); about != nil {
		return *about, nil
	}
	about, ok, err := readFacts(l.fsys, s.stem+timeIndex.suffix, timeIndex, s.base)
	if err != nil {
		return facts{}, err
	}
	if ok {
		size, err := s.bytes()
		if err != nil {
			return facts{}, err
		}
		ok = about.covers == size
	}
	if !ok {
		if _, err := l.indexOf(s, limit, false); err != nil {
			return facts{}, err
		}
		if known := s.facts.Load(); known != nil {
			return *known, nil
		}
		return noFacts(s.base), nil
	}
	s.facts.CompareAndSwap(nil, &about)
	return about, nil
}
