package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// A streamed body is stored in chunks. They are cut by the count and the bytes of the input alone, so that
// a repeat with the same idempotency key is cut alike. Without a key a chunk is also cut when the client
// is silent: who pipes a log file that grows slowly wants its lines stored now.
const (
	chunkRecords = 1000
	chunkBytes   = 512 << 10
	mostErrors   = 100 // that the answer lists
)

const typeNDJSON = "application/x-ndjson"

// lines is one streamed produce request, from its first byte to its answer.
type lines struct {
	s    *Server
	ctx  *fasthttp.RequestCtx
	call *call
	conn *conn // nil without a listener of ours

	unhalt func() bool // ends what wakes the reader when the drain begins
	in     io.Reader
	limit  int // of one line

	// buf.b[start:] is what was read and not yet cut into lines, up to scanned without a line end in it;
	// before it stand the lines of the chunk, which records are views of.
	buf     body
	start   int
	scanned int
	skipped int  // bytes of the line at start that were dropped, since it is too long
	tooLong bool // the line that was cut last
	eof     bool

	numbers []int // the line that each record of the chunk stood in
	bytes   int   // of the chunk's lines

	line     int // the last that was cut, from 1
	taken    int // the last that is in the chunk, or was refused
	handled  int // the last whose outcome is known
	stored   int
	again    int // of the stored: by an earlier request with the same key
	accepted int // with acks=none
	failed   int
	spans    []span
	errors   []lineError
	fatal    error // ended the request early
	broken   bool  // by the body and not by the node

	receipts []byte // not yet sent
	direct   bool   // they may be written to the connection; see push
}

// span is what was stored in one partition.
type span struct {
	partition   topic.Partition
	first, last topic.Offset
}

type lineError struct {
	line int
	err  error
}

// produceLines answers a body of NDJSON.
func (s *Server) produceLines(c *fiber.Ctx, k *call) error {
	st, err := s.openLines(c.Context(), k)
	if err != nil {
		return err
	}
	if !k.receipt {
		defer st.close()
		for st.step() {
		}
		return st.answer()
	}
	// From here on the answer is written while the body is read, on the connection's own goroutine, after
	// this handler has returned. The call goes along.
	own := *k
	*k = call{}
	st.call = &own
	resp := &c.Context().Response
	resp.ImmediateHeaderFlush = true
	resp.Header.SetContentType(typeNDJSON)
	resp.SetBodyStream(&receiptStream{st: st}, -1)
	return nil
}

func (s *Server) openLines(ctx *fasthttp.RequestCtx, k *call) (*lines, error) {
	st := &lines{s: s, ctx: ctx, call: k, limit: s.recordLimit(k.a.Topic), buf: body{buffer: takeBuffer(), s: s}}
	if k.a.IdempotencyKey != "" {
		k.a.Keyed = new(topic.KeyedStream)
	}
	st.in = ctx.RequestBodyStream()
	if st.in == nil {
		st.in = bytes.NewReader(nil)
	}
	if coding := ctx.Request.Header.ContentEncoding(); !isIdentity(coding) {
		u, err := unpack(coding, st.in, unlimited)
		if err != nil {
			st.buf.release()
			return nil, s.brokenBody(err)
		}
		st.in = u
	}
	k.decoder = recordjson.TakeDecoder()
	if c, ok := ctx.Conn().(*conn); ok {
		st.conn = c
		c.idleMost = s.cfg.StreamIdle
		c.idle = st.silent
		c.halt = s.waits
		st.unhalt = context.AfterFunc(s.waits, func() { _ = c.TCPConn.SetReadDeadline(time.Unix(1, 0)) })
	}
	return st, nil
}

// close gives everything back. It is called once.
func (st *lines) close() {
	if st.conn != nil {
		st.conn.idle = nil
		st.unhalt()
	}
	if u, ok := st.in.(*unpacker); ok {
		u.release()
	}
	st.call.decoder.Release()
	st.call.decoder = nil
	st.buf.release()
}

// silent is called when the client sends nothing for a moment, from within a read.
func (st *lines) silent() {
	if st.call.a.Keyed == nil && st.fatal == nil {
		st.store()
		st.push()
	}
}

// step takes one line, and says whether there is more to do.
func (st *lines) step() bool {
	line, more := st.next()
	if more && st.fatal == nil {
		st.take(line)
		return true
	}
	// The end, or a body that broke off. What came whole is stored, except under a key: there the repeat
	// must find the chunks as they were cut.
	if st.fatal == nil || st.call.a.Keyed == nil && st.broken {
		st.store()
	}
	return false
}

// take adds a line to the chunk, after storing the chunk where this line would be too much for it.
func (st *lines) take(line []byte) {
	defer func() { st.taken = st.line }()
	if st.tooLong {
		st.fail(st.line, fault.Newf("gateway.Lines", fault.RecordTooLarge, nil,
			"the line is longer than the %d bytes that the largest record of this topic can take", st.limit))
		return
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	if n := len(st.call.a.Records); n > 0 && (n == chunkRecords || st.bytes+len(line) > chunkBytes) {
		if st.store(); st.fatal != nil {
			st.line-- // this one was not looked at
			return
		}
	}
	r, err := st.call.decoder.More(line)
	if err == nil && st.call.to != topic.AnyPartition {
		if r.Partition != topic.AnyPartition && r.Partition != st.call.to {
			err = problem.FieldError("gateway.Lines", "partition", "is %d, but the request is for partition %d", r.Partition, st.call.to)
		}
		r.Partition = st.call.to
	}
	if err != nil {
		st.fail(st.line, err)
		return
	}
	st.call.a.Records = append(st.call.a.Records, r)
	st.numbers = append(st.numbers, st.line)
	st.bytes += len(line)
}

// store hands the chunk to the node.
func (st *lines) store() {
	k := st.call
	defer func() { st.handled = st.taken }()
	if len(k.a.Records) == 0 {
		return
	}
	st.s.metrics.bytes.Add(float64(st.bytes))
	if err := st.s.append(k); err != nil {
		for _, line := range st.numbers {
			st.fail(line, err)
		}
		st.fatal = err
	} else if k.a.Acks == topic.AcksNone {
		st.accepted += len(k.a.Records)
		st.s.metrics.records.WithLabelValues("accepted").Add(float64(len(k.a.Records)))
	} else {
		st.settle()
	}
	clear(k.a.Records)
	k.decoder.Reset()
	k.a.Records, st.numbers, st.bytes = k.a.Records[:0], st.numbers[:0], 0
}

// settle reads the results of a chunk.
func (st *lines) settle() {
	results := st.call.a.Results
	stored := 0
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			st.fail(st.numbers[i], r.Err)
			if st.call.a.Keyed != nil && st.fatal == nil {
				// Going on would leave a hole in the sequence of this partition that no repeat could fill.
				st.fatal = r.Err
			}
			continue
		}
		stored++
		if r.Duplicate {
			st.again++
		}
		st.span(r)
		if st.call.receipt {
			st.receipt(st.numbers[i], r)
		}
	}
	st.stored += stored
	st.s.metrics.stored(stored, 0) // the failed ones are counted by fail
}

func (st *lines) span(r *topic.Stored) {
	i, found := slices.BinarySearchFunc(st.spans, r.Partition, func(s span, p topic.Partition) int { return int(s.partition) - int(p) })
	if !found {
		st.spans = slices.Insert(st.spans, i, span{r.Partition, r.Offset, r.Offset})
		return
	}
	s := &st.spans[i]
	s.first, s.last = min(s.first, r.Offset), max(s.last, r.Offset)
}

func (st *lines) fail(line int, err error) {
	st.failed++
	st.s.metrics.stored(0, 1)
	if len(st.errors) < mostErrors {
		st.errors = append(st.errors, lineError{line, err})
	}
	if st.call.receipt {
		st.receipt(line, &topic.Stored{Partition: topic.AnyPartition, Err: err})
	}
}

func (st *lines) receipt(line int, r *topic.Stored) {
	st.receipts = append(st.receipts, `{"line":`...)
	st.receipts = strconv.AppendInt(st.receipts, int64(line), 10)
	st.receipts = append(st.receipts, ',')
	st.receipts = appendStored(st.receipts, r)
	st.receipts = append(st.receipts, "}\n"...)
}

// next cuts the next line, without its end. It is false at the end of the body and when the body is
// broken, which sets fatal.
func (st *lines) next() ([]byte, bool) {
	for {
		if i := bytes.IndexByte(st.buf.b[st.scanned:], '\n'); i >= 0 {
			end := st.scanned + i
			return st.cut(end, end+1), true
		}
		st.scanned = len(st.buf.b)
		switch {
		case st.eof && (st.start < len(st.buf.b) || st.skipped > 0):
			return st.cut(len(st.buf.b), len(st.buf.b)), true
		case st.eof:
			return nil, false
		case len(st.buf.b)-st.start > st.limit:
			// Nothing of a line that is too long is kept; where it ends is still looked for.
			st.skipped += len(st.buf.b) - st.start
			st.buf.b = st.buf.b[:st.start]
			st.scanned = st.start
		}
		if err := st.more(); err != nil {
			st.broken, st.fatal = true, err
			return nil, false
		}
	}
}

func (st *lines) cut(end, next int) []byte {
	line := st.buf.b[st.start:end]
	st.start, st.scanned = next, next
	st.line++
	st.tooLong = st.skipped+len(line) > st.limit
	st.skipped = 0
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// more reads on, behind what is in the buffer.
func (st *lines) more() error {
	if st.s.waits.Err() != nil {
		return st.stopping()
	}
	b := &st.buf
	if len(st.call.a.Records) == 0 && st.start > 0 {
		// Nothing is a view of the lines before start any more. This is the only place where bytes move:
		// a read that stores while it waits (see silent) must find its own place again.
		n := copy(b.b, b.b[st.start:])
		b.b, st.scanned, st.start = b.b[:n], st.scanned-st.start, 0
	}
	if cap(b.b)-len(b.b) < readPiece/2 {
		if err := b.grow(max(readPiece, len(b.b)-st.start)); err != nil {
			return err
		}
	}
	for {
		n, err := st.in.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		var netErr net.Error
		switch {
		case err == io.EOF:
			st.eof = true
			return nil
		case err != nil && st.s.waits.Err() != nil:
			return st.stopping()
		case errors.As(err, &netErr) && netErr.Timeout():
			return &slowBody{limit: st.s.cfg.StreamIdle.String()}
		case err != nil:
			return st.s.brokenBody(err)
		case n > 0:
			return nil
		}
	}
}

func (st *lines) stopping() error {
	return fault.Newf("gateway.Lines", fault.Stopping, nil, "the node is stopping")
}
