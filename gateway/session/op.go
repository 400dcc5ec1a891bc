package session

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// opFrame is a frame of a client: one JSON object, by the members that any op has. They are views of the
// frame, still as JSON; nil where a member is not there.
type opFrame struct {
	id, op, sub                       []byte
	topic, topics, partitions         []byte
	from, to, credit, onGap, format   []byte
	records, bytes, key, acks, millis []byte
	group, memberName, prefix         []byte
	pattern, ack, start, cursor       []byte
}

// The longest names that a client may choose.
const (
	mostID  = 64 // as JSON
	mostSub = 64
)

// parseFrame takes a frame apart. An error is one about the frame as a whole: it is no JSON object, has a
// member twice, or is not UTF-8. Members that nobody knows are left alone, and so are names that are repeated
// inside the values of records, which are kept as they come.
func parseFrame(raw []byte) (opFrame, error) {
	var f opFrame
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil {
		return f, badFrame(err)
	} else if t.Kind() != '{' {
		return f, badFrame(errors.New("it is not an object"))
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return f, badFrame(err)
		}
		member := f.member(name.String())
		if member != nil && *member != nil {
			return f, badFrame(fmt.Errorf("it has the member %q twice", name.String()))
		}
		value, err := d.ReadValue()
		if err != nil {
			return f, badFrame(err)
		}
		if member != nil {
			end := int(d.InputOffset())
			*member = raw[end-len(value) : end : end]
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return f, badFrame(err)
	}
	if len(bytes.TrimLeft(raw[d.InputOffset():], " \t\r\n")) > 0 {
		return f, badFrame(errors.New("something follows the object"))
	}
	return f, nil
}

func badFrame(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		err = errors.New(strings.TrimPrefix(syntax.Error(), "jsontext: "))
	}
	return fault.Newf("session.Frame", fault.InvalidJSON, nil, "the frame must be one JSON object: %w", err)
}

func (f *opFrame) member(name string) *[]byte {
	switch name {
	case "id":
		return &f.id
	case "op":
		return &f.op
	case "sub":
		return &f.sub
	case "topic":
		return &f.topic
	case "topics":
		return &f.topics
	case "partitions":
		return &f.partitions
	case "from":
		return &f.from
	case "to":
		return &f.to
	case "credit":
		return &f.credit
	case "on_gap":
		return &f.onGap
	case "value_format":
		return &f.format
	case "records":
		return &f.records
	case "bytes":
		return &f.bytes
	case "idempotency_key":
		return &f.key
	case "acks":
		return &f.acks
	case "timeout_ms":
		return &f.millis
	case "group":
		return &f.group
	case "member":
		return &f.memberName
	case "topic_prefix":
		return &f.prefix
	case "topic_pattern":
		return &f.pattern
	case "ack":
		return &f.ack
	case "start":
		return &f.start
	case "cursor":
		return &f.cursor
	default:
		return nil
	}
}

// given says that a member is there and not null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// read reads a member that may be missing.
func read(raw []byte, name string, into any, what string) error {
	if !given(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return invalid("%s must be %s", name, what)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fault.Newf("session.Op", fault.Validation, nil, format, args...)
}

// command is what a client asks for, understood.
type command struct {
	id     []byte // as JSON; nil: none
	op     string
	sub    string
	spec   Spec
	join   *Join             // of subscribe with a group, in place of spec
	cursor topic.GroupCursor // of ack
	credit *credit           // of subscribe and credit
	err    error             // what is wrong with it; nothing else is to be done then
}

// credit is how much a client is ready to take.
type credit struct{ records, bytes int64 }

// plenty stands for credit without a limit; far from overflowing when more is added.
const plenty = 1 << 60

// opProduce is handled apart from all others.
const opProduce = "produce"

// command understands a frame, but for the records of produce.
func (f *opFrame) command() *command {
	c := &command{}
	if c.err = f.readID(c); c.err != nil {
		return c
	}
	if c.err = read(f.op, "op", &c.op, "a string"); c.err != nil {
		return c
	}
	if c.err = read(f.sub, "sub", &c.sub, "a string"); c.err != nil {
		return c
	}
	if len(c.sub) > mostSub {
		c.sub, c.err = "", invalid("sub may have %d bytes", mostSub)
		return c
	}
	switch c.op {
	case "subscribe":
		c.err = f.readSubscribe(c)
	case "ack":
		c.err = f.readAck(c)
	case "seek":
		c.spec.From, c.err = readFrom(f.to, "to")
		if c.err == nil && !given(f.to) {
			c.err = invalid("to is required")
		}
	case "credit":
		c.credit, c.err = readCredit(f.records, f.bytes, 0)
	case "unsubscribe", "pause", "resume", "ping", opProduce:
	case "":
		c.err = fault.Newf("session.Op", fault.BadRequest, nil, "op is required")
	case "auth":
		c.err = fault.Newf("session.Op", fault.BadRequest, nil, `this node asks nobody who they are; its hello said "auth":"none"`)
	default:
		c.err = fault.Newf("session.Op", fault.BadRequest, nil, "op %s is not known; known are ack, credit, pause, ping, produce, resume, seek, subscribe and unsubscribe", short(c.op))
	}
	if c.err == nil && c.sub == "" && c.op != "ping" && c.op != opProduce {
		c.err = invalid("sub is required")
	}
	return c
}

func short(s string) string {
	if len(s) > 64 {
		return strconv.Quote(s[:64]) + "…"
	}
	return strconv.Quote(s)
}

func (f *opFrame) readID(c *command) error {
	if !given(f.id) {
		return nil
	}
	if k := jsontext.Value(f.id).Kind(); len(f.id) > mostID || k != '"' && k != '0' {
		return invalid("id must be a string or a number of at most %d bytes", mostID)
	}
	c.id = bytes.Clone(f.id)
	return nil
}

func (f *opFrame) readSubscribe(c *command) error {
	if given(f.group) {
		return f.readJoin(c)
	}
	if err := f.groupless(); err != nil {
		return err
	}
	var err error
	if c.spec.Topics, err = f.readTopics(); err != nil {
		return err
	}
	if len(c.spec.Topics) == 0 {
		if given(f.topics) {
			return invalid("topics must name at least one")
		}
		return invalid("topic is required, or topics")
	}
	if err := read(f.partitions, "partitions", &c.spec.Partitions, "a list of numbers"); err != nil {
		return err
	}
	if c.spec.Partitions != nil && len(c.spec.Partitions) == 0 {
		return invalid("partitions must name at least one")
	}
	if c.spec.From, err = readFrom(f.from, "from"); err != nil {
		return err
	}
	if c.credit, err = f.readCredit(); err != nil {
		return err
	}
	var policy string
	if err := read(f.onGap, "on_gap", &policy, "a string"); err != nil {
		return err
	}
	if c.spec.OnGap, err = ParseOnGap(policy); err != nil {
		return err
	}
	c.spec.Format.Values, err = f.readFormat()
	return err
}

// readTopics reads topic and topics, which may both be there.
func (f *opFrame) readTopics() ([]topic.Name, error) {
	var words []string
	if err := read(f.topics, "topics", &words, "a list of strings"); err != nil {
		return nil, err
	}
	listed := len(words)
	if given(f.topic) {
		var one string
		if err := read(f.topic, "topic", &one, "a string"); err != nil {
			return nil, err
		}
		words = append(words, one)
	}
	var names []topic.Name
	for i, word := range words {
		name, err := topic.ParseName(word)
		if err != nil && i < listed {
			return nil, invalid("topics[%d]: %s", i, fault.Sentence(err))
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func (f *opFrame) readFormat() (recordjson.Format, error) {
	var word string
	if err := read(f.format, "value_format", &word, "a string"); err != nil {
		return 0, err
	}
	return recordjson.ParseFormat(word)
}

// readCredit reads the credit of a subscribe; nil when it has none.
func (f *opFrame) readCredit() (*credit, error) {
	if !given(f.credit) {
		return nil, nil
	}
	var members struct {
		Records jsontext.Value `json:"records"`
		Bytes   jsontext.Value `json:"bytes"`
	}
	if err := read(f.credit, "credit", &members, "an object"); err != nil {
		return nil, err
	}
	return readCredit(members.Records, members.Bytes, plenty)
}

// readFrom reads a position: a word as in a query, or an object with one member.
func readFrom(raw []byte, name string) (From, error) {
	if !given(raw) {
		return From{}, nil
	}
	if raw[0] == '"' {
		var word string
		if err := read(raw, name, &word, "a string"); err != nil {
			return From{}, err
		}
		return ParseFrom(word)
	}
	var members struct {
		Timestamp jsontext.Value   `json:"timestamp"`
		Offsets   map[string]int64 `json:"offsets"`
		Cursor    *string          `json:"cursor"`
	}
	const what = `"earliest", "latest", or an object with timestamp, offsets or cursor`
	if err := read(raw, name, &members, what); err != nil {
		return From{}, err
	}
	switch {
	case members.Cursor != nil && !given(members.Timestamp) && members.Offsets == nil:
		return ParseCursor(*members.Cursor)
	case given(members.Timestamp) && members.Cursor == nil && members.Offsets == nil:
		return readTime(members.Timestamp, name+".timestamp")
	case len(members.Offsets) > 0 && members.Cursor == nil && !given(members.Timestamp):
		from := From{Kind: Offsets, Offsets: make(map[topic.Partition]topic.Offset, len(members.Offsets))}
		for p, at := range members.Offsets {
			n, err := strconv.ParseUint(p, 10, 31)
			if err != nil || at < 0 || strconv.FormatUint(n, 10) != p {
				return From{}, invalid("%s.offsets must give an offset from 0 on for numbers of partitions", name)
			}
			from.Offsets[topic.Partition(n)] = topic.Offset(at)
		}
		return from, nil
	default:
		return From{}, invalid("%s must be %s", name, what)
	}
}

// readTime reads the position of a time: a number or a string.
func readTime(raw []byte, name string) (From, error) {
	text := string(raw)
	if raw[0] == '"' {
		if err := read(raw, name, &text, "a string"); err != nil {
			return From{}, err
		}
	}
	at, err := topic.ParseMillis(text)
	if err != nil {
		return From{}, invalid("%s %w", name, err)
	}
	return From{Kind: Time, Time: at}, nil
}

// readCredit reads credit; missing is what stands where one of the two is not given.
func readCredit(records, size []byte, missing int64) (*credit, error) {
	c := &credit{records: missing, bytes: missing}
	for _, f := range []struct {
		raw  []byte
		name string
		to   *int64
	}{{records, "records", &c.records}, {size, "bytes", &c.bytes}} {
		if err := read(f.raw, f.name, f.to, "a number"); err != nil {
			return nil, err
		}
		if *f.to < 0 {
			return nil, invalid("%s must not be negative", f.name)
		}
		*f.to = min(*f.to, plenty)
	}
	return c, nil
}

// appendID begins an answer, with the id that it answers to where there is one.
func appendReply(dst, id []byte, op string) []byte {
	dst = append(dst, '{')
	if id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"op":"`...)
	dst = append(dst, op...)
	return append(dst, '"')
}
