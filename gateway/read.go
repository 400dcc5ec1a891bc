package gateway

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Fetcher is what the read handlers need of the node.
type Fetcher interface {
	// Fetch returns whole batches of one partition, and waits for some where there are none. The end of
	// ctx ends the wait with what there is.
	Fetch(ctx context.Context, f topic.Fetch) (topic.Fetched, error)
	// Listen rings bell when there may be more to read in a partition, until stop is called.
	Listen(ref topic.Ref, bell chan<- struct{}) (stop func(), err error)
}

// The limits of a page, and of the wait for one.
const (
	defaultPageRecords = 500
	mostPageRecords    = 10_000
	defaultPageBytes   = 1 << 20
	mostPageBytes      = 64 << 20
	defaultWait        = time.Second
	mostWait           = time.Minute
)

// reading is what the query of a read asks for.
type reading struct {
	limit    session.Limit
	minBytes int
	wait     time.Duration
	values   recordjson.Format
}

func readReading(c *fiber.Ctx) (reading, error) {
	var q reading
	var err error
	if q.limit.Records, err = queryInt(c, "max_records", defaultPageRecords, 1, mostPageRecords); err != nil {
		return q, err
	}
	if q.limit.Bytes, err = queryInt(c, "max_bytes", defaultPageBytes, 1, mostPageBytes); err != nil {
		return q, err
	}
	if q.minBytes, err = queryInt(c, "min_bytes", 1, 0, mostPageBytes); err != nil {
		return q, err
	}
	ms, err := queryInt(c, "wait_ms", int(defaultWait.Milliseconds()), 0, int(mostWait.Milliseconds()))
	if err != nil {
		return q, err
	}
	q.wait = time.Duration(ms) * time.Millisecond
	if c.Context().IsHead() {
		q.wait = 0
	}
	q.values, err = readFormat(c)
	return q, err
}

func readFormat(c *fiber.Ctx) (recordjson.Format, error) {
	f, err := recordjson.ParseFormat(c.Query("value_format"))
	if err != nil {
		return f, problem.FieldError("gateway.Read", "value_format", "must be auto, json, string or base64")
	}
	return f, nil
}

// queryInt reads a whole number of the query.
func queryInt(c *fiber.Ctx, name string, initial, least, most int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return initial, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, problem.FieldError("gateway.Read", name, "must be a whole number from %d to %d", least, most)
	}
	return n, nil
}

func queryBool(c *fiber.Ctx, name string) (bool, error) {
	switch c.Query(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, problem.FieldError("gateway.Read", name, "must be true or false")
	}
}

// readPartition answers a read of one partition by offset.
func (s *Server) readPartition(c *fiber.Ctx) error {
	name, err := topicParam(c)
	if err != nil {
		return err
	}
	p, err := partitionParam(c)
	if err != nil {
		return err
	}
	q, err := readReading(c)
	if err != nil {
		return err
	}
	d, err := s.node.Topic(name)
	if err != nil {
		return err
	}
	if int(p) >= len(d.Partitions) {
		return fault.Newf("gateway.Read", fault.NoPartition, nil, "topic %q has no partition %d, it has %d from 0 on", name, p, len(d.Partitions))
	}
	at, err := s.offsetOf(c, d, p)
	if err != nil {
		return err
	}
	page := offsetPage{
		recordPage: recordPage{pageBody: s.newPage(), limit: q.limit, options: recordjson.Options{Format: q.values}},
		at:         place{path: topic.Path{Topic: name, Partition: p}, id: d.ID, next: at, last: topic.NoEpoch},
	}
	defer page.drop()
	if err := s.fillPage(&page, &q, deadlineOf(c.Context()), connOf(c.Context())); err != nil {
		return session.Gone(name, err)
	}
	page.b = page.end(page.b)
	return page.answer(c, typeJSON)
}

// offsetOf reads the parameter offset: a number, or a word for one.
func (s *Server) offsetOf(c *fiber.Ctx, d *topic.Description, p topic.Partition) (topic.Offset, error) {
	text := strings.Clone(c.Query("offset"))
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return topic.Offset(n), nil
	}
	from, err := session.ParseFrom(text)
	if err != nil || from.Kind == session.Cursor {
		return 0, problem.FieldError("gateway.Read", "offset", "must be an offset, earliest, latest, ts:<milliseconds since 1970, or RFC 3339>, or -<n> for the last n")
	}
	if from.Kind == session.Time {
		return s.offsetAt(d.Name, p, from.Time)
	}
	bounds, err := s.node.Bounds(topic.Ref{ID: d.ID, Partition: p})
	if err != nil {
		return 0, session.Gone(d.Name, err)
	}
	switch from.Kind {
	case session.Latest:
		return bounds.HighWatermark, nil
	case session.Last:
		return max(bounds.LogStart, bounds.HighWatermark-topic.Offset(min(from.Last, int64(bounds.HighWatermark)))), nil
	default:
		return bounds.LogStart, nil
	}
}

func (s *Server) offsetAt(name topic.Name, p topic.Partition, ms topic.Millis) (topic.Offset, error) {
	ctx, cancel := s.control()
	defer cancel()
	found, err := s.node.Offsets(ctx, name, topic.At{Kind: topic.AtTime, Time: ms})
	if err != nil {
		return 0, err
	}
	for _, at := range found {
		if at.Partition == p {
			return at.Offset, nil
		}
	}
	return 0, fault.Newf("gateway.Read", fault.NoPartition, topic.Path{Topic: name, Partition: p}, "the partition has no offset for that time")
}

// offsetPage is a page of one partition while it is written.
type offsetPage struct {
	recordPage
	at place
}

// fillPage writes records to the page: what there is at once, or after a wait where there is nothing.
func (s *Server) fillPage(page *offsetPage, q *reading, wait *deadline, client *conn) error {
	page.b = page.begin(page.b[:0])
	page.start = len(page.b)
	ctx := wait.beginWait(s.waits, q.wait, client)
	defer wait.end()
	f := topic.Fetch{MinBytes: q.minBytes}
	begun := now()
	for full := false; !full; {
		before := page.at.next
		if f.Wait = 0; page.records == 0 {
			f.Wait = max(0, q.wait-now().Sub(begun))
		}
		var err error
		switch full, err = page.read(ctx, s.node, &page.at, f); {
		case err != nil && page.records > 0:
			return nil // what was read stands; the next page meets the error
		case err != nil:
			return err
		}
		f.MinBytes = 0
		// What was compacted away is stepped over, and is no reason for an empty page.
		if len(page.gaps) > 0 || page.at.next == before || page.records > 0 && page.at.next >= page.at.bounds.HighWatermark {
			return nil
		}
	}
	return nil
}

func (page *offsetPage) begin(dst []byte) []byte {
	dst = append(dst, `{"topic":"`...)
	dst = append(dst, page.at.path.Topic...)
	dst = append(dst, `","partition":`...)
	dst = strconv.AppendInt(dst, int64(page.at.path.Partition), 10)
	return append(dst, `,"records":[`...)
}

func (page *offsetPage) end(dst []byte) []byte {
	dst = endList(dst)
	dst = appendOffset(dst, "next_offset", page.at.next)
	dst = appendOffset(dst, "log_start_offset", page.at.bounds.LogStart)
	dst = appendOffset(dst, "high_watermark", page.at.bounds.HighWatermark)
	dst = append(dst, `,"leader_epoch":`...)
	dst = strconv.AppendInt(dst, int64(page.at.bounds.LeaderEpoch), 10)
	return append(appendGaps(dst, page.gaps), '}', lineEnd)
}

// endList ends a list whose items have each a comma behind them.
func endList(dst []byte) []byte {
	if n := len(dst) - 1; dst[n] == ',' {
		dst[n] = ']'
		return dst
	}
	return append(dst, ']')
}

func appendOffset(dst []byte, name string, o topic.Offset) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, int64(o), 10)
}

func appendGaps(dst []byte, gaps []session.Gap) []byte {
	if len(gaps) == 0 {
		return dst
	}
	dst = append(dst, `,"gaps":[`...)
	for i := range gaps {
		dst = append(session.AppendGap(dst, &gaps[i]), ',')
	}
	return endList(dst)
}

// wantsLines says that the client asks for NDJSON.
func wantsLines(c *fiber.Ctx) bool {
	return bytes.Contains(c.Request().Header.Peek(fiber.HeaderAccept), []byte(typeNDJSON))
}

// readTopic answers a read of a whole topic by cursor: a page, or a stream of lines.
func (s *Server) readTopic(c *fiber.Ctx) error {
	q, err := readReading(c)
	if err != nil {
		return err
	}
	follow, err := queryBool(c, "follow")
	if err != nil {
		return err
	}
	lines := wantsLines(c)
	if follow && !lines {
		return problem.FieldError("gateway.Read", "follow", "needs the header Accept: application/x-ndjson")
	}
	spec, err := readSpec(c, string(c.Request().Header.Peek("Weir-Cursor")))
	if err != nil {
		return err
	}
	spec.Format.Values = q.values
	switch until := c.Query("until"); until {
	case "":
	case "end":
		spec.UntilEnd = true
	default:
		return problem.FieldError("gateway.Read", "until", "must be end")
	}
	if lines {
		spec.Format.Shape = session.Lines
	}
	if lines && (follow || spec.UntilEnd) {
		return s.stream(c, spec, session.NDJSON{}, typeNDJSON)
	}
	return s.topicPage(c, spec, q)
}

// readSpec reads what to read: topic, partitions and position, from the path, the query and a cursor
// that came in a header.
func readSpec(c *fiber.Ctx, cursor string) (session.Spec, error) {
	var spec session.Spec
	name, err := topicParam(c)
	if err != nil {
		return spec, err
	}
	spec.Topics = []topic.Name{name}
	if text := c.Query("partitions"); text != "" {
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.ParseUint(part, 10, 31)
			if err != nil {
				return spec, problem.FieldError("gateway.Read", "partitions", "must be numbers of partitions with commas between them")
			}
			spec.Partitions = append(spec.Partitions, topic.Partition(n))
		}
	}
	return spec, readPosition(c, cursor, &spec)
}

// readPosition reads where to begin and what to do about gaps. A cursor in a header wins over the
// query: a browser that connects again sends the old query with it.
func readPosition(c *fiber.Ctx, cursor string, spec *session.Spec) error {
	if cursor == "" {
		cursor = strings.Clone(c.Query("cursor"))
	}
	var err error
	if cursor != "" {
		spec.From, err = session.ParseCursor(cursor)
	} else if spec.From, err = session.ParseFrom(strings.Clone(c.Query("from"))); fault.Is(err, fault.Validation) {
		err = problem.FieldError("gateway.Read", "from", "must be earliest, latest, ts:<milliseconds since 1970, or RFC 3339>, or -<n> for the last n of each partition")
	}
	if err != nil {
		return err
	}
	if spec.OnGap, err = session.ParseOnGap(c.Query("on_gap")); err != nil {
		return problem.FieldError("gateway.Read", "on_gap", "must be earliest, latest or error")
	}
	return nil
}

// topicPage answers with one page.
func (s *Server) topicPage(c *fiber.Ctx, spec session.Spec, q reading) error {
	r, err := s.deps.Hub.Open(s.works, spec)
	if err != nil {
		return err
	}
	defer r.Close()
	wait := deadlineOf(c.Context())
	ctx := wait.beginWait(s.waits, q.wait, connOf(c.Context()))
	defer wait.end()
	page := cursorPage{pageBody: s.newPage(), lines: spec.Format.Shape == session.Lines}
	defer page.drop()
	page.begin(spec.Topics[0])
	if err := s.fillTopicPage(ctx, r, &page, q); err != nil {
		return err
	}
	cursor := r.Cursor().String()
	page.end(cursor)
	c.Response().Header.Set("Weir-Cursor", cursor)
	if page.lines {
		return page.answer(c, typeNDJSON)
	}
	return page.answer(c, typeJSON)
}

// cursorPage is a page of a topic while it is written.
type cursorPage struct {
	*pageBody
	lines    bool
	records  int
	bytes    int
	gaps     []session.Gap
	caughtUp bool
}

// fillStep is how much of a large page of a topic is read at a time.
const fillStep = 1 << 20

// fillTopicPage writes records until there are enough of them, the node has no more memory for them, or
// the wait ends.
func (s *Server) fillTopicPage(ctx context.Context, r *session.Reader, page *cursorPage, q reading) error {
	bell := make(chan struct{}, 1)
	if q.wait > 0 {
		if err := r.Listen(bell); err != nil {
			return err
		}
	}
	for {
		if err := s.pages.look(); err != nil {
			if page.records > 0 {
				return nil
			}
			return err
		}
		limit := session.Limit{Records: q.limit.Records - page.records, Bytes: q.limit.Bytes - page.bytes}
		whole := limit.Bytes < 2*fillStep
		if !whole {
			limit.Bytes = fillStep
		}
		got, err := r.Next(s.works, limit)
		if err != nil {
			return err
		}
		page.add(r, got)
		page.settle()
		// What is left of a page once it is less than a step is left: a record is given whatever its size
		// when nothing else was read with it.
		whole = whole || got.Empty() || q.limit.Bytes-page.bytes < fillStep
		switch {
		case got.Done, page.records >= q.limit.Records, page.bytes >= q.limit.Bytes:
			return nil
		case page.records > 0 && !got.AtEnd && whole:
			return nil // the next record does not fit, or a gap lies before it
		case !got.AtEnd && !got.Empty():
			continue
		case len(page.gaps) > 0, page.records > 0 && page.bytes >= q.minBytes:
			return nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return nil
		}
	}
}

func (page *cursorPage) begin(name topic.Name) {
	if page.lines {
		return
	}
	page.b = append(page.b, `{"topic":"`...)
	page.b = append(page.b, name...)
	page.b = append(page.b, `","records":[`...)
}

func (page *cursorPage) add(r *session.Reader, got *session.Page) {
	page.caughtUp = got.AtEnd
	if page.lines {
		page.b = session.NDJSON{}.Page(page.b, r, got)
	} else {
		for _, n := range got.Notices {
			if n.Gap != nil {
				page.gaps = append(page.gaps, *n.Gap)
			}
		}
		for i := range got.Runs {
			page.b = append(page.b, got.Runs[i].Bytes()...)
		}
		r.PassedAll(got)
	}
	page.records += got.Records
	page.bytes += got.Bytes
}

func (page *cursorPage) end(cursor string) {
	if page.lines {
		page.b = append(page.b, `{"end":true,"cursor":"`...)
		page.b = append(page.b, cursor...)
		page.b = append(page.b, "\"}\n"...)
		return
	}
	page.b = endList(page.b)
	page.b = append(page.b, `,"cursor":"`...)
	page.b = append(page.b, cursor...)
	page.b = append(page.b, '"')
	page.b = appendGaps(page.b, page.gaps)
	page.b = append(page.b, `,"caught_up":`...)
	page.b = strconv.AppendBool(page.b, page.caughtUp)
	page.b = append(page.b, '}', lineEnd)
}
