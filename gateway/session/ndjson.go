package session

import (
	"time"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// NDJSON is the mouth for a JSON object a line. The reader's Format has the shape Lines. An empty line is
// a sign of life; every stream that the node ends has a last line that says why.
type NDJSON struct{}

func (NDJSON) name() string { return mouthNDJSON }

func (NDJSON) hello(dst []byte, _ *Reader) []byte { return dst }

// Page appends a page: a line for each notice and each record, and for the member of a group one with the
// cursor to acknowledge.
func (NDJSON) Page(dst []byte, r *Reader, p *Page) []byte {
	for i := range p.Notices {
		switch n := &p.Notices[i]; {
		case n.Gap != nil:
			dst = append(dst, `{"gap":`...)
			dst = n.Gap.append(dst)
		case n.Partitions != nil:
			dst = append(dst, `{"partitions":`...)
			dst = n.Partitions.append(dst)
		}
		dst = append(dst, "}\n"...)
	}
	for i := range p.Runs {
		dst = append(dst, p.Runs[i].Bytes()...)
	}
	r.PassedAll(p)
	if r.group != nil && !p.Empty() {
		dst = append(dst, `{"cursor":"`...)
		dst = r.appendCursor(dst)
		dst = append(dst, "\"}\n"...)
	}
	return dst
}

func (NDJSON) caughtUp(dst []byte) []byte { return dst }

func (NDJSON) heartbeat(dst []byte) []byte { return append(dst, '\n') }

func (NDJSON) end(dst []byte, r *Reader) []byte {
	dst = append(dst, `{"end":true,"cursor":"`...)
	dst = r.appendCursor(dst)
	return append(dst, "\"}\n"...)
}

func (NDJSON) failure(dst []byte, r *Reader, err error) []byte {
	p := problem.Of(err)
	dst = append(dst, `{"error":`...)
	dst = p.AppendShort(dst)
	dst = append(dst, `,"cursor":"`...)
	dst = r.appendCursor(dst)
	return append(dst, "\"}\n"...)
}

func (m NDJSON) closing(dst []byte, r *Reader, _ time.Duration) []byte {
	return m.failure(dst, r, fault.Newf("session.Drain", fault.Stopping, nil, "the node is shutting down; connect again and go on from the cursor"))
}
