package gateway

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// headerContentType is the record header that a body's media type is kept in, as Kafka's clients write it.
const headerContentType = "content-type"

const recordHeaderPrefix = "Record-Header-"

// one makes the body the value of the only record.
func (k *call) one() *topic.Record {
	k.records = append(k.records[:0], topic.Record{
		Partition: topic.AnyPartition, Timestamp: topic.NoTimestamp, Key: k.key, Value: notNil(k.body.b),
	})
	return &k.records[0]
}

// readRaw makes the body one record. Header names come in lower case: HTTP does not tell their case apart.
func (k *call) readRaw(h *fasthttp.RequestHeader) error {
	r := k.one()
	k.contentType(h.ContentType())
	k.recordHeaders(h)
	r.Headers = k.headers
	k.a.Records = k.records
	return nil
}

func (k *call) contentType(value []byte) {
	if len(value) > 0 {
		k.headers = append(k.headers, topic.Header{Name: headerContentType, Value: value})
	}
}

func (k *call) recordHeaders(h *fasthttp.RequestHeader) {
	for name, value := range h.All() {
		if len(name) > len(recordHeaderPrefix) && string(name[:len(recordHeaderPrefix)]) == recordHeaderPrefix {
			k.headers = append(k.headers, topic.Header{Name: strings.ToLower(string(name[len(recordHeaderPrefix):])), Value: notNil(value)})
		}
	}
}

// CloudEvents 1.0. The attributes become record headers with "ce_" before their names, as the Kafka binding
// says: docs of both are at https://github.com/cloudevents/spec. An event in structured mode stays
// as it is, with its attributes in headers besides, so that readers can choose without reading it.
const (
	eventPrefix         = "Ce-"
	attributePrefix     = "ce_"
	structuredMediaType = "application/cloudevents+json"
)

// required are the attributes that every event has.
var required = [...]string{"id", "source", "specversion", "type"}

// readEvent reads an event in binary mode: attributes in HTTP headers, data in the body.
func (k *call) readEvent(h *fasthttp.RequestHeader) error {
	var seen attributes
	r := k.one()
	k.contentType(h.ContentType())
	for name, value := range h.All() {
		if len(name) <= len(eventPrefix) || string(name[:len(eventPrefix)]) != eventPrefix {
			continue
		}
		attribute := strings.ToLower(string(name[len(eventPrefix):]))
		if !isAttributeName(attribute) {
			return problem.FieldError("gateway.Event", "ce-"+shorten(attribute), "is no attribute's name: those have the letters a-z and digits alone")
		}
		// Header values are percent-encoded where they are more than printable ASCII.
		text, err := url.PathUnescape(string(value))
		if err != nil {
			return problem.FieldError("gateway.Event", "ce-"+attribute, "is not percent-encoded as it should be")
		}
		k.attribute(r, &seen, attribute, text)
	}
	if err := seen.check("ce-", ""); err != nil {
		return err
	}
	k.recordHeaders(h)
	r.Headers = k.headers
	k.a.Records = k.records
	return nil
}

// attribute takes one attribute of the event in r.
func (k *call) attribute(r *topic.Record, seen *attributes, name, value string) {
	seen.set(name, value)
	if name == "partitionkey" && r.Key == nil {
		r.Key = []byte(value)
	}
	k.headers = append(k.headers, topic.Header{Name: attributePrefix + name, Value: []byte(value)})
}

// readStructured reads one event in structured mode: the body is the event.
func (k *call) readStructured(h *fasthttp.RequestHeader) error {
	if err := validJSON(k.body.b); err != nil {
		return err
	}
	r := k.one()
	if err := k.structured(r, k.body.b, h.ContentType(), ""); err != nil {
		return err
	}
	r.Headers = k.headers
	k.a.Records = k.records
	return nil
}

// readEvents reads a batch: each of its events becomes a record in structured mode.
func (k *call) readEvents(most int) error {
	if err := validJSON(k.body.b); err != nil {
		return err
	}
	d := jsontext.NewDecoder(bytes.NewReader(k.body.b))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return fault.Newf("gateway.Event", fault.InvalidJSON, nil, "a batch of events must be a JSON array")
	}
	k.records = k.records[:0]
	var ends []int // of each event's headers in k.headers, which moves while it grows
	for d.PeekKind() != ']' {
		if len(k.records) == most {
			return fault.Newf("gateway.Event", fault.RequestTooLarge, nil, "a request may have %d records", most)
		}
		value, err := d.ReadValue()
		if err != nil {
			return jsonError(err)
		}
		end := int(d.InputOffset())
		event := k.body.b[end-len(value) : end]
		k.records = append(k.records, topic.Record{Partition: topic.AnyPartition, Timestamp: topic.NoTimestamp, Value: event})
		at := "[" + strconv.Itoa(len(k.records)-1) + "]."
		if err := k.structured(&k.records[len(k.records)-1], event, []byte(structuredMediaType), at); err != nil {
			return err
		}
		ends = append(ends, len(k.headers))
	}
	if len(k.records) == 0 {
		return problem.FieldError("gateway.Event", "", "a batch must have an event")
	}
	start := 0
	for i, end := range ends {
		k.records[i].Headers = k.headers[start:end:end]
		start = end
	}
	k.a.Records = k.records
	return nil
}

// structured reads the attributes of an event that is valid JSON into headers. at stands before field names.
func (k *call) structured(r *topic.Record, event, contentType []byte, at string) error {
	k.contentType(contentType)
	d := jsontext.NewDecoder(bytes.NewReader(event))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return problem.FieldError("gateway.Event", strings.TrimSuffix(at, "."), "must be a JSON object")
	}
	var seen attributes
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return jsonError(err)
		}
		name := t.String()
		switch kind := d.PeekKind(); {
		case name == "data" || name == "data_base64" || name == "datacontenttype":
			err = d.SkipValue()
		case kind == '{' || kind == '[':
			return problem.FieldError("gateway.Event", at+shorten(name), "must be a string, an integer or a boolean")
		case kind == 'n':
			err = d.SkipValue() // the same as an attribute that is missing
		case !isAttributeName(name):
			return problem.FieldError("gateway.Event", at+shorten(name), "is no attribute's name: those have the letters a-z and digits alone")
		default:
			t, err = d.ReadToken()
			if err == nil {
				k.attribute(r, &seen, name, t.String())
			}
		}
		if err != nil {
			return jsonError(err)
		}
	}
	return seen.check("", at)
}

// attributes notes which of the required ones an event has.
type attributes struct {
	seen    [len(required)]bool
	version string
}

func (a *attributes) set(name, value string) {
	if i := slices.Index(required[:], name); i >= 0 && value != "" {
		a.seen[i] = true
	}
	if name == "specversion" {
		a.version = value
	}
}

// check refuses an event without one of them, or of another version.
func (a *attributes) check(prefix, at string) error {
	var wrong []problem.Field
	for i, name := range required {
		if !a.seen[i] {
			wrong = append(wrong, problem.Field{Name: at + prefix + name, Message: "is required"})
		}
	}
	if a.version != "" && a.version != "1.0" {
		wrong = append(wrong, problem.Field{Name: at + prefix + "specversion", Message: "must be 1.0"})
	}
	if len(wrong) > 0 {
		return fault.New("gateway.Event", fault.Validation, nil, &problem.Invalid{Fields: wrong})
	}
	return nil
}

func isAttributeName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

func validJSON(b []byte) error {
	if !recordjson.Valid(b) {
		return fault.Newf("gateway.Event", fault.InvalidJSON, nil, "the body is not strictly valid JSON of at most %d levels", recordjson.MaxDepth)
	}
	return nil
}
