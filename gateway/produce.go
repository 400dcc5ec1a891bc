package gateway

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Producer is what the produce handlers need of the node.
type Producer interface {
	// Produce appends a.Records and fills in a.Results. The records are views of buffers that the next
	// request reuses: nothing of a is used after the call has returned. An error refuses the call as a
	// whole.
	Produce(ctx context.Context, a *topic.Append) error
}

func (s *Server) mountProduce(r routes) {
	r.Post("/v1/topics/:topic/records", func(c *fiber.Ctx) error { return s.produce(c, false) })
	r.Post("/v1/topics/:topic/partitions/:partition/records", func(c *fiber.Ctx) error { return s.produce(c, true) })
}

// produce answers both endpoints. The order of checks: name, parameters, body, node.
func (s *Server) produce(c *fiber.Ctx, toPartition bool) error {
	call := takeCall()
	defer call.release()
	call.limit = deadlineOf(c.Context())
	if err := s.readTarget(c, call, toPartition); err != nil {
		return err
	}
	if err := s.readOptions(c, call); err != nil {
		return err
	}
	ctx := c.Context()
	call.form = formOf(&ctx.Request.Header, call.raw)
	if err := call.checkForm(&ctx.Request.Header); err != nil {
		return err
	}
	if call.form == formLines {
		return s.produceLines(c, call)
	}
	if err := s.readRecords(ctx, call); err != nil {
		return err
	}
	if err := s.append(call); err != nil {
		s.metrics.records.WithLabelValues("refused").Add(float64(len(call.a.Records)))
		return err
	}
	return s.answerProduced(ctx, call)
}

// call is one produce request. It is used again for the next one.
type call struct {
	a       topic.Append
	to      topic.Partition // that the endpoint or a parameter names; else AnyPartition
	timeout time.Duration
	limit   *deadline // the context of calls to the node
	byQuery bool      // to came from the query
	raw     bool
	key     []byte // of a raw record; nil: none
	form    form
	receipt bool // NDJSON: a line a record

	body    body
	decoder *recordjson.Decoder
	records []topic.Record
	headers []topic.Header
	results []topic.Stored
	out     []byte
	ifLast  topic.Offset
}

var calls = sync.Pool{New: func() any { return new(call) }}

func takeCall() *call { return calls.Get().(*call) }

func (k *call) release() {
	if k.body.buffer != nil {
		k.body.release()
	}
	if k.decoder != nil {
		k.decoder.Release()
	}
	if cap(k.out) > mostKept || cap(k.results) > 16<<10 {
		return
	}
	clear(k.records)
	clear(k.headers)
	clear(k.results)
	*k = call{records: k.records[:0], headers: k.headers[:0], results: k.results[:0], out: k.out[:0]}
	calls.Put(k)
}

// readTarget reads where to: the names are parsed here, once.
func (s *Server) readTarget(c *fiber.Ctx, k *call, toPartition bool) error {
	name, err := topicParam(c)
	if err != nil {
		return err
	}
	if err := writable(name, "produce to"); err != nil {
		return err
	}
	k.a.Topic, k.a.Principal, k.to = name, principal(c), topic.AnyPartition
	if toPartition {
		if k.to, err = partitionParam(c); err != nil {
			return err
		}
	}
	ifLast := c.Request().Header.PeekCanonical(headerIfLastOffset)
	if len(ifLast) == 0 {
		return nil
	}
	if !toPartition {
		return problem.FieldError("gateway.Produce", "If-Last-Offset", "names an offset of one partition: it is taken at /v1/topics/{topic}/partitions/{partition}/records")
	}
	n, err := strconv.ParseInt(string(ifLast), 10, 64)
	if err != nil || n < -1 {
		return problem.FieldError("gateway.Produce", "If-Last-Offset", "must be an offset, or -1 for an empty log")
	}
	k.ifLast = topic.Offset(n)
	k.a.IfLast = &k.ifLast
	return nil
}

var (
	headerIfLastOffset   = []byte("If-Last-Offset")
	headerIdempotencyKey = []byte("Idempotency-Key")
	headerRecordKey      = []byte("Record-Key")
	headerCESpecVersion  = []byte("Ce-Specversion")
)

const mostIdempotencyKey = 255

// readOptions reads the parameters of the query and the headers that every form has.
func (s *Server) readOptions(c *fiber.Ctx, k *call) error {
	k.timeout = s.cfg.ProduceTimeout
	k.a.Acks = topic.AcksAll
	if key := c.Request().Header.PeekCanonical(headerIdempotencyKey); key != nil {
		if !saneKey(key) {
			return problem.FieldError("gateway.Produce", "Idempotency-Key", "must be 1 to %d visible ASCII characters", mostIdempotencyKey)
		}
		k.a.IdempotencyKey = string(key)
	}
	k.key = c.Request().Header.PeekCanonical(headerRecordKey)
	if len(c.Context().URI().QueryString()) == 0 {
		return nil
	}
	args := c.Context().QueryArgs()
	var err error
	if v := args.Peek("acks"); v != nil {
		if k.a.Acks, err = parseAcks(v); err != nil {
			return err
		}
	}
	if v := args.Peek("timeout_ms"); v != nil {
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n < 1 || n > mostTimeout.Milliseconds() {
			return problem.FieldError("gateway.Produce", "timeout_ms", "must be from 1 to %d", mostTimeout.Milliseconds())
		}
		k.timeout = time.Duration(n) * time.Millisecond
	}
	if v := args.Peek("raw"); v != nil {
		if k.raw, err = parseBool("raw", v); err != nil {
			return err
		}
	}
	if args.Has("key") {
		k.key = notNil(args.Peek("key"))
	}
	if v := args.Peek("partition"); v != nil {
		if k.to, err = parsePartition(string(v)); err != nil {
			return err
		}
		k.byQuery = true
	}
	switch v := args.Peek("receipts"); string(v) {
	case "", "end":
	case "record":
		k.receipt = true
	default:
		return problem.FieldError("gateway.Produce", "receipts", "must be end or record")
	}
	return nil
}

func parseAcks(v []byte) (topic.Acks, error) {
	acks, err := topic.ParseAcks(string(v))
	if err != nil {
		return 0, problem.FieldError("gateway.Produce", "acks", "must be all, leader or none")
	}
	return acks, nil
}

func parsePartition(s string) (topic.Partition, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, problem.FieldError("gateway.Produce", "partition", "must be a number from 0 on")
	}
	return topic.Partition(n), nil
}

func parseBool(name string, v []byte) (bool, error) {
	switch string(v) {
	case "", "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	default:
		return false, problem.FieldError("gateway.Produce", name, "must be true or false")
	}
}

func saneKey(key []byte) bool {
	if len(key) == 0 || len(key) > mostIdempotencyKey {
		return false
	}
	for _, c := range key {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// notNil keeps an empty key apart from none.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// form is what a produce body is.
type form int8

const (
	formEnvelope   form = iota // {"records":[…]}
	formLines                  // NDJSON
	formRaw                    // one record with the body as its value
	formEvent                  // a CloudEvent in binary mode
	formStructured             // a CloudEvent in structured mode
	formEvents                 // CloudEvents in batched mode
)

// formOf reads the content type. What it does not know is one raw record, so that anything can be posted.
func formOf(h *fasthttp.RequestHeader, raw bool) form {
	if raw {
		return formRaw
	}
	switch mediaType(h.ContentType()) {
	case "application/x-ndjson":
		return formLines
	case "application/cloudevents+json":
		return formStructured
	case "application/cloudevents-batch+json":
		return formEvents
	case typeJSON:
		if len(h.PeekCanonical(headerCESpecVersion)) == 0 {
			return formEnvelope
		}
		return formEvent
	default:
		if len(h.PeekCanonical(headerCESpecVersion)) == 0 {
			return formRaw
		}
		return formEvent
	}
}

// checkForm refuses parameters that do not go together, which would otherwise be ignored in silence.
func (k *call) checkForm(h *fasthttp.RequestHeader) error {
	many := k.form == formEnvelope || k.form == formLines || k.form == formEvents
	switch {
	case many && k.key != nil:
		return problem.FieldError("gateway.Produce", "key", "is for a body that is one record; here each record has its own%s", k.form.hint())
	case many && k.byQuery:
		return problem.FieldError("gateway.Produce", "partition", "is for a body that is one record; here each record has its own%s", k.form.hint())
	case k.receipt && k.form != formLines:
		return problem.FieldError("gateway.Produce", "receipts", "are for NDJSON")
	case k.form == formLines && k.a.IfLast != nil:
		return problem.FieldError("gateway.Produce", "If-Last-Offset", "cannot be kept by a stream, which is several appends")
	}
	return nil
}

// hint says what to do with a body that is one record and not what its content type says.
func (f form) hint() string {
	if f == formEnvelope {
		return "; add raw=true to the query to store the body as one record"
	}
	return ""
}

// isNDJSON says whether a body is a stream of lines.
func isNDJSON(contentType []byte) bool { return mediaType(contentType) == "application/x-ndjson" }

// mediaType is the type of a Content-Type without its parameters, in lower case.
func mediaType(contentType []byte) string {
	if i := bytes.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	contentType = bytes.TrimSpace(contentType)
	if string(contentType) == typeJSON {
		return typeJSON
	}
	return strings.ToLower(string(contentType))
}

// readRecords reads the body into records, which are views of it.
func (s *Server) readRecords(ctx *fasthttp.RequestCtx, k *call) (err error) {
	if k.body, err = s.readBody(ctx, s.bodyLimit(ctx, k.a.Topic)); err != nil {
		return err
	}
	s.metrics.bytes.Add(float64(len(k.body.b)))
	switch k.form {
	case formEnvelope:
		k.decoder = recordjson.TakeDecoder()
		if k.a.Records, err = k.decoder.Body(k.body.b, s.cfg.RequestRecords); err != nil {
			return hintAtRaw(err)
		}
	case formRaw:
		if err = k.checkEmpty(&ctx.Request.Header); err == nil {
			err = k.readRaw(&ctx.Request.Header)
		}
	case formEvent:
		err = k.readEvent(&ctx.Request.Header)
	case formStructured:
		err = k.readStructured(&ctx.Request.Header)
	case formEvents:
		err = k.readEvents(s.cfg.RequestRecords)
	}
	if err != nil {
		return err
	}
	return k.aim(k.a.Records, "records")
}

// hintAtRaw says to who sends any other JSON, as a webhook does, how it can be stored.
func hintAtRaw(err error) error {
	var wrong *recordjson.Errors
	if !errors.As(err, &wrong) || !wrong.Foreign {
		return err
	}
	first := wrong.Fields[0]
	return problem.FieldError("gateway.Produce", first.Field, "%s: send {\"records\":[…]}, or add raw=true to the query to store the body as one record", first.Message)
}

// checkEmpty refuses a request that has neither a body nor a word about one: it is more often a mistake,
// such as a curl without -d, than an empty record.
func (k *call) checkEmpty(h *fasthttp.RequestHeader) error {
	if len(k.body.b) > 0 || k.raw || len(h.ContentType()) > 0 {
		return nil
	}
	return fault.Newf("gateway.Produce", fault.BadRequest, nil,
		"the request has no body; an empty record is stored with a Content-Type, or with raw=true in the query")
}

// bodyLimit is the longest body for a topic: a request, or one of its largest records in its worst encoding.
func (s *Server) bodyLimit(ctx *fasthttp.RequestCtx, name topic.Name) int {
	if n := ctx.Request.Header.ContentLength(); n >= 0 && n <= s.cfg.RequestBytes && len(ctx.Request.Header.ContentEncoding()) == 0 {
		return s.cfg.RequestBytes
	}
	return max(s.cfg.RequestBytes, s.recordLimit(name))
}

// recordLimit is the longest JSON of a record of a topic.
func (s *Server) recordLimit(name topic.Name) int {
	most := topic.DefaultMaxMessageBytes / 2
	if d, err := s.node.Topic(name); err == nil {
		most = d.Settings.MaxRecordBytes()
	}
	return worstEncoding*most + recordOverhead
}

// aim gives the records the partition that the request names. A record that names another is a mistake.
func (k *call) aim(records []topic.Record, at string) error {
	if k.to == topic.AnyPartition {
		return nil
	}
	for i := range records {
		r := &records[i]
		if r.Partition != topic.AnyPartition && r.Partition != k.to {
			return problem.FieldError("gateway.Produce", at+"["+strconv.Itoa(i)+"].partition", "is %d, but the request is for partition %d", r.Partition, k.to)
		}
		r.Partition = k.to
	}
	return nil
}

// append hands the records to the node.
func (s *Server) append(k *call) error {
	n := len(k.a.Records)
	if cap(k.results) < n {
		k.results = make([]topic.Stored, n)
	}
	k.results = k.results[:n]
	clear(k.results)
	k.a.Results = k.results
	ctx := k.limit.begin(s.works, k.timeout)
	defer k.limit.end()
	begun := now()
	err := s.node.Produce(ctx, &k.a)
	s.metrics.produceSeconds.Observe(now().Sub(begun).Seconds())
	return err
}
