package session

import (
	"strconv"
	"time"

	"github.com/weirlog/weir/gateway/problem"
)

// SSE is the mouth for server-sent events. The reader's Format has the shape Events.
type SSE struct{}

// manyPartitions is the number from which on a cursor is long, so that only the last record of a flush has one.
const manyPartitions = 32

func (SSE) name() string { return mouthSSE }

func (SSE) hello(dst []byte, r *Reader) []byte {
	dst = append(dst, "retry: 2000\nevent: ready\n"...)
	dst = appendID(dst, r)
	dst = append(dst, `data: {"cursor":"`...)
	dst = r.appendCursor(dst)
	return append(dst, "\"}\n\n"...)
}

// appendID writes the line that a browser sends back as Last-Event-ID.
func appendID(dst []byte, r *Reader) []byte {
	dst = append(dst, "id: "...)
	dst = r.appendCursor(dst)
	return append(dst, '\n')
}

// Page appends a page: an event for each notice and each record.
func (SSE) Page(dst []byte, r *Reader, p *Page) []byte {
	for i := range p.Notices {
		dst = appendID(dst, r)
		switch n := &p.Notices[i]; {
		case n.Gap != nil:
			dst = append(dst, "event: gap\ndata: "...)
			dst = n.Gap.append(dst)
		case n.Partitions != nil:
			dst = append(dst, "event: partitions\ndata: "...)
			dst = n.Partitions.append(dst)
		}
		dst = append(dst, "\n\n"...)
	}
	each := r.Partitions() < manyPartitions
	for i := range p.Runs {
		run := &p.Runs[i]
		for k := range run.Len() {
			if last := i == len(p.Runs)-1 && k == run.Len()-1; each || last {
				r.Passed(run, k+1)
				dst = appendID(dst, r)
			}
			dst = append(dst, run.Record(k)...)
			dst = append(dst, '\n')
		}
		r.Passed(run, run.Len())
	}
	return dst
}

func (SSE) caughtUp(dst []byte) []byte { return append(dst, "event: caught_up\ndata: {}\n\n"...) }

func (SSE) heartbeat(dst []byte) []byte { return append(dst, ":\n\n"...) }

func (SSE) end(dst []byte, r *Reader) []byte {
	dst = append(dst, `event: end`+"\n"+`data: {"cursor":"`...)
	dst = r.appendCursor(dst)
	return append(dst, "\"}\n\n"...)
}

func (SSE) failure(dst []byte, r *Reader, err error) []byte {
	dst = append(dst, "event: error\ndata: "...)
	p := problem.Of(err)
	return append(p.AppendShort(dst), "\n\n"...)
}

func (SSE) closing(dst []byte, r *Reader, reconnectAfter time.Duration) []byte {
	ms := reconnectAfter.Milliseconds()
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, ms, 10)
	dst = append(dst, "\nevent: closing\ndata: "...)
	dst = appendClosing(dst, ms)
	return append(dst, "\n\n"...)
}

// appendClosing writes the goodbye of a node that shuts down, without the op.
func appendClosing(dst []byte, ms int64) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, problem.CloseShutdown, 10)
	dst = append(dst, `,"reconnect_after_ms":`...)
	dst = strconv.AppendInt(dst, ms, 10)
	return append(dst, '}')
}

// members writes the members of a gap, without braces.
func (g *Gap) members(dst []byte) []byte {
	dst = append(dst, `"topic":"`...)
	dst = append(dst, g.Topic...)
	dst = append(dst, `","partition":`...)
	dst = strconv.AppendInt(dst, int64(g.Partition), 10)
	dst = append(dst, `,"from":`...)
	dst = strconv.AppendInt(dst, int64(g.From), 10)
	dst = append(dst, `,"to":`...)
	dst = strconv.AppendInt(dst, int64(g.To), 10)
	dst = append(dst, `,"reason":"`...)
	dst = append(dst, g.Reason...)
	return append(dst, '"')
}

func (g *Gap) append(dst []byte) []byte { return append(g.members(append(dst, '{')), '}') }

func (p *Partitions) members(dst []byte) []byte {
	dst = append(dst, `"topic":"`...)
	dst = append(dst, p.Topic...)
	dst = append(dst, `","count":`...)
	dst = strconv.AppendInt(dst, int64(p.Count), 10)
	dst = append(dst, `,"added":[`...)
	for i, n := range p.Added {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}

func (p *Partitions) append(dst []byte) []byte { return append(p.members(append(dst, '{')), '}') }

// AppendGap writes a gap as a JSON object.
func AppendGap(dst []byte, g *Gap) []byte { return g.append(dst) }
