package session

import (
	"github.com/weirlog/weir/gateway/problem"
)

// subscription is one reader of a WebSocket.
type subscription struct {
	name   string
	head   []byte // of a records frame, up to the cursor
	reader *Reader
	manual bool // the client gives credit; otherwise what fits into the window leaves at once
	credit credit
	group  *groupSub // nil: the subscription reads for itself
	paused bool
	caught bool // caught_up was said
	ended  bool
}

func newSubscription(name string, r *Reader, given *credit) *subscription {
	s := &subscription{name: name, reader: r}
	s.head = append(s.open(nil, "records"), `,"cursor":"`...)
	if given != nil {
		s.manual, s.credit = true, *given
	}
	return s
}

// open begins a message about the subscription.
func (s *subscription) open(dst []byte, op string) []byte { return s.openReply(dst, nil, op) }

// openReply is open for an answer to a frame with an id.
func (s *subscription) openReply(dst, id []byte, op string) []byte {
	dst = appendReply(dst, id, op)
	dst = append(dst, `,"sub":`...)
	return problem.AppendString(dst, s.name)
}

// add gives credit. From then on the client's credit is all there is.
func (s *subscription) add(c credit) {
	if !s.manual {
		s.manual, s.credit = true, credit{}
	}
	s.credit.records = min(s.credit.records+c.records, plenty)
	s.credit.bytes = min(s.credit.bytes+c.bytes, plenty)
}

// limit is what the subscription may take in one frame; ok false: nothing.
func (s *subscription) limit(window Limit) (_ Limit, ok bool) {
	switch {
	case s.ended || s.paused || s.group != nil && (s.group.joining || s.group.parting):
		return Limit{}, false
	case !s.manual:
		return window, true
	case s.credit.records <= 0 || s.credit.bytes <= 0:
		return Limit{}, false
	}
	return Limit{
		Records: int(min(int64(window.Records), s.credit.records)),
		Bytes:   int(min(int64(window.Bytes), s.credit.bytes)),
	}, true
}

// append appends the frames of a page, and moves cursor and credit on.
func (s *subscription) append(dst []byte, page *Page) []byte {
	var at int
	if s.group != nil && !page.Empty() {
		s.group.unflushed = true
	}
	for i := range page.Notices {
		dst, at = beginFrame(dst)
		switch n := &page.Notices[i]; {
		case n.Gap != nil:
			dst = append(s.open(dst, "gap"), ',')
			dst = n.Gap.members(dst)
		case n.Partitions != nil:
			dst = append(s.open(dst, "partitions"), ',')
			dst = n.Partitions.members(dst)
		}
		dst = endFrame(append(dst, '}'), at, frameText)
	}
	if page.Records == 0 {
		return dst
	}
	s.reader.PassedAll(page)
	dst, at = beginFrame(dst)
	dst = append(dst, s.head...)
	dst = s.reader.appendCursor(dst)
	dst = append(dst, `","records":[`...)
	for i := range page.Runs {
		dst = append(dst, page.Runs[i].Bytes()...)
	}
	dst[len(dst)-1] = ']' // in place of the last record's comma
	dst = endFrame(append(dst, '}'), at, frameText)
	if s.manual {
		s.credit.records -= int64(page.Records)
		s.credit.bytes -= int64(page.Bytes)
	}
	return dst
}

// appendCaughtUp says that the end was reached.
func (s *subscription) appendCaughtUp(dst []byte) []byte {
	dst, at := beginFrame(dst)
	return endFrame(append(s.open(dst, "caught_up"), '}'), at, frameText)
}
