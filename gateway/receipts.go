package gateway

import (
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// answer ends a request whose receipts were not asked for.
func (st *lines) answer() error {
	resp := &st.ctx.Response
	none := st.stored == 0 && st.accepted == 0
	if none && st.fatal != nil && st.failed == 0 {
		return st.fatal
	}
	if none && st.failed > 0 {
		return st.refused()
	}
	switch {
	case st.call.a.Acks == topic.AcksNone:
		resp.SetStatusCode(http.StatusAccepted)
	case st.failed > 0 || st.fatal != nil:
		resp.SetStatusCode(http.StatusMultiStatus)
	}
	resp.Header.SetContentType(typeJSON)
	resp.SetBodyRaw(append(st.end(nil), lineEnd))
	return nil
}

// refused answers when not one line was stored, with the lines that say why as the fields of the problem.
func (st *lines) refused() error {
	results := make([]topic.Stored, len(st.errors))
	for i, e := range st.errors {
		results[i].Err = e.err
	}
	p := st.s.worst(st.ctx, results)
	p.Detail = "no line is stored: " + p.Detail
	p.Fields = nil
	for _, e := range st.errors {
		one := problem.Of(e.err)
		p.Fields = append(p.Fields, problem.Field{Name: "line " + strconv.Itoa(e.line), Message: one.Detail})
	}
	st.s.answerProblem(st.ctx, &p, nil)
	return nil
}

// end appends the last line, or the only one.
func (st *lines) end(dst []byte) []byte {
	dst = append(dst, `{"end":true`...)
	if st.call.a.Acks == topic.AcksNone {
		dst = append(dst, `,"topic":"`...)
		dst = append(dst, st.call.a.Topic...)
		dst = append(dst, `","accepted":`...)
		dst = strconv.AppendInt(dst, int64(st.accepted), 10)
	}
	dst = append(dst, `,"stored":`...)
	dst = strconv.AppendInt(dst, int64(st.stored), 10)
	dst = append(dst, `,"failed":`...)
	dst = strconv.AppendInt(dst, int64(st.failed), 10)
	if st.again > 0 {
		dst = append(dst, `,"duplicates":`...)
		dst = strconv.AppendInt(dst, int64(st.again), 10)
	}
	dst = append(dst, `,"last_line":`...)
	dst = strconv.AppendInt(dst, int64(st.handled), 10)
	dst = append(dst, `,"partitions":[`...)
	for i, s := range st.spans {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"partition":`...)
		dst = strconv.AppendInt(dst, int64(s.partition), 10)
		dst = append(dst, `,"first_offset":`...)
		dst = strconv.AppendInt(dst, int64(s.first), 10)
		dst = append(dst, `,"last_offset":`...)
		dst = strconv.AppendInt(dst, int64(s.last), 10)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"errors":[`...)
	for i, e := range st.errors {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := st.s.problemOf(st.ctx, e.err)
		dst = append(dst, `{"line":`...)
		dst = strconv.AppendInt(dst, int64(e.line), 10)
		dst = append(dst, `,"error":`...)
		dst = p.AppendShort(dst)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if st.fatal != nil {
		p := st.s.problemOf(st.ctx, st.fatal)
		st.s.logProblem(st.ctx, &p, st.fatal)
		dst = append(dst, `,"error":`...)
		dst = p.AppendShort(dst)
	}
	return append(dst, '}')
}

// receiptStream is the answer of a request that asked for receipts: each Read takes lines of the body until
// there are receipts to give. It runs on the connection's own goroutine, which thus reads and writes in turn.
type receiptStream struct {
	st   *lines
	done bool
	once sync.Once
}

// Read gives receipts, then the last line, then io.EOF.
func (r *receiptStream) Read(p []byte) (int, error) {
	st := r.st
	st.direct = st.conn != nil && st.ctx.Request.Header.IsHTTP11()
	for len(st.receipts) == 0 && !r.done {
		if err := run.Safely("gateway.lines", r.advance); err != nil {
			return 0, err
		}
	}
	if len(st.receipts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, st.receipts)
	st.receipts = append(st.receipts[:0], st.receipts[n:]...)
	return n, nil
}

func (r *receiptStream) advance() error {
	if r.st.step() {
		return nil
	}
	r.done = true
	r.st.receipts = append(r.st.end(r.st.receipts), '\n')
	return nil
}

// Close gives the buffers back; the engine calls it in every case.
func (r *receiptStream) Close() error {
	r.once.Do(r.st.close)
	return nil
}

// push sends the receipts of a chunk that was stored while the client was silent. The engine is waiting in
// a read of ours then and has flushed all it had, so the chunk of the transfer coding is written here.
func (st *lines) push() {
	if !st.direct || len(st.receipts) == 0 {
		return
	}
	chunk := strconv.AppendInt(nil, int64(len(st.receipts)), 16)
	chunk = append(chunk, "\r\n"...)
	chunk = append(chunk, st.receipts...)
	chunk = append(chunk, "\r\n"...)
	st.receipts = st.receipts[:0]
	if _, err := st.conn.Write(chunk); err != nil && st.fatal == nil {
		st.fatal = err
	}
}
