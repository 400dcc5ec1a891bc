package recordjson

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unsafe"

	"github.com/weirlog/weir/topic"
)

// members of a record object, as they stand in the input. The encodings may come after what they are of.
type members struct {
	key, keyEncoding, value, valueEncoding, timestamp, partition raw
	headers                                                      []topic.Header
}

// record reads the record object that begins at d.i and adds it to the records.
func (d *Decoder) record() {
	d.member = ""
	if !d.openObject() {
		if d.err == nil {
			d.skipValue()
			d.mistake("", "must be an object")
		}
		return
	}
	var m members
	const (
		sawKey = 1 << iota
		sawKeyEncoding
		sawValue
		sawValueEncoding
		sawHeaders
		sawTimestamp
		sawPartition
	)
	saw, from := 0, len(d.names)
	once := func(bit int) bool {
		twice := saw&bit != 0
		saw |= bit
		return !twice
	}
	for {
		name, ok := d.next()
		if !ok {
			break
		}
		known := true
		switch string(name) {
		case "key":
			d.member, known = "key", once(sawKey)
			m.key = d.value()
		case "key_encoding":
			d.member, known = "key_encoding", once(sawKeyEncoding)
			m.keyEncoding = d.value()
		case "value":
			d.member, known = "value", once(sawValue)
			m.value = d.value()
		case "value_encoding":
			d.member, known = "value_encoding", once(sawValueEncoding)
			m.valueEncoding = d.value()
		case "headers":
			d.member, known = "headers", once(sawHeaders)
			m.headers = d.readHeaders()
		case "timestamp":
			d.member, known = "timestamp", once(sawTimestamp)
			m.timestamp = d.value()
		case "partition":
			d.member, known = "partition", once(sawPartition)
			m.partition = d.value()
		default:
			d.names = append(d.names, name)
			d.skipValue()
		}
		d.member = ""
		if !known {
			d.duplicate(name)
		}
	}
	d.closeObject(from)
	if d.err == nil {
		d.records = append(d.records, d.resolve(&m))
	}
}

// resolve turns the members into a record, and notes what is wrong with them.
func (d *Decoder) resolve(m *members) topic.Record {
	r := topic.Record{Partition: topic.AnyPartition, Timestamp: topic.NoTimestamp, Headers: m.headers}
	keyEncoding := d.encoding(m.keyEncoding, "key_encoding", "string")
	if !m.key.absent() && !m.key.null() && keyEncoding != "" {
		r.Key = d.decoded(m.key, "key", keyEncoding)
	}
	valueEncoding := d.encoding(m.valueEncoding, "value_encoding", "json")
	switch {
	case m.value.absent():
		d.mistake("value", "is required")
	case !m.value.null() && valueEncoding != "":
		r.Value = d.decoded(m.value, "value", valueEncoding)
	}
	if !m.timestamp.absent() && !m.timestamp.null() {
		r.Timestamp = d.millis(m.timestamp)
	}
	if !m.partition.absent() && !m.partition.null() {
		n, ok := wholeNumber(m.partition.bytes)
		if !ok || n < 0 || n > math.MaxInt32 {
			d.mistake("partition", "must be a whole number from 0 on")
		}
		r.Partition = topic.Partition(n)
	}
	return r
}

// encoding reads one of the encodings, or returns "" when it is none.
func (d *Decoder) encoding(r raw, member, initial string) string {
	if r.absent() || r.null() {
		return initial
	}
	if r.isString() {
		switch string(d.text(r)) {
		case "string":
			return "string"
		case "json":
			return "json"
		case "base64":
			return "base64"
		}
	}
	d.mistake(member, "must be string, json or base64")
	return ""
}

// decoded is the bytes that a key or value stands for. It is never nil.
func (d *Decoder) decoded(r raw, member, encoding string) []byte {
	if encoding == "json" {
		return r.bytes
	}
	if !r.isString() {
		if encoding == "string" && member == "key" {
			d.mistake(member, "must be a string; with key_encoding json it can be any value")
		} else {
			d.mistake(member, "must be a string, because its encoding is "+encoding)
		}
		return nil
	}
	if encoding == "string" {
		return d.text(r)
	}
	b, ok := d.base64(r)
	if !ok {
		d.mistake(member, "is not base64 (the standard alphabet, with padding)")
	}
	return b
}

// base64 decodes a string. The result is not nil.
func (d *Decoder) base64(r raw) ([]byte, bool) {
	text := d.text(r)
	if len(text) == 0 {
		return text, true
	}
	if bytes.ContainsAny(text, "\r\n") { // the library would skip them
		return nil, false
	}
	start := len(d.arena)
	var err error
	d.arena, err = strictBase64.AppendDecode(d.arena, text)
	return d.arena[start:len(d.arena):len(d.arena)], err == nil
}

var strictBase64 = base64.StdEncoding.Strict()

// millis reads a timestamp.
func (d *Decoder) millis(r raw) topic.Millis {
	if r.isString() {
		var t time.Time
		if err := t.UnmarshalText(d.text(r)); err == nil && t.UnixMilli() >= 0 {
			return topic.Millis(t.UnixMilli())
		}
	} else if n, ok := wholeNumber(r.bytes); ok && n >= 0 && n <= int64(topic.LatestMillis) {
		return topic.Millis(n)
	}
	d.mistake("timestamp", "must be milliseconds since 1970 or an RFC 3339 time, from 1970 to 9999")
	return topic.NoTimestamp
}

// wholeNumber reads digits with or without a minus before them.
func wholeNumber(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(view(b), 10, 64)
	return n, err == nil
}

// view is b as a string that is valid as long as b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// readHeaders reads the headers that begin at d.i: an array of objects, or one object whose members
// are the headers.
func (d *Decoder) readHeaders() []topic.Header {
	start := len(d.headers)
	switch {
	case d.i >= len(d.b):
		d.malformed(d.i, flawEnd)
		return nil
	case d.b[d.i] == '[':
		d.i++
		for i := 0; d.nextElement(i == 0); i++ {
			d.header(i)
		}
	case d.openObject():
		d.shorthand()
	default:
		if r := d.value(); !r.absent() && !r.null() {
			d.mistake("headers", "must be an array of headers, or an object with a member for each")
		}
	}
	return d.headers[start:len(d.headers):len(d.headers)]
}

// header reads {"name":…,"value":…}, the i-th of its record.
func (d *Decoder) header(i int) {
	if !d.openObject() {
		if d.err == nil {
			d.skipValue()
			d.headerMistake(i, "", "must be an object with name and value")
		}
		return
	}
	name, value, value64 := d.headerObject()
	if d.err != nil {
		return
	}
	var h topic.Header
	switch {
	case name.isString():
		h.Name = view(d.text(name))
	case name.absent():
		d.headerMistake(i, "name", "is required")
	default:
		d.headerMistake(i, "name", "must be a string")
	}
	var why string
	if h.Value, why = d.textOrBase64(value, value64); why != "" {
		d.headerMistake(i, "value", why)
	}
	d.headers = append(d.headers, h)
}

// headerObject reads the rest of an object that is a header, or in the shorthand the value of one.
func (d *Decoder) headerObject() (name, value, value64 raw) {
	from := len(d.names)
	for {
		member, ok := d.next()
		if !ok {
			break
		}
		d.names = append(d.names, member)
		r := d.value()
		switch string(member) {
		case "name":
			name = r
		case "value":
			value = r
		case "value_base64":
			value64 = r
		}
	}
	d.closeObject(from)
	return name, value, value64
}

// shorthand reads the rest of {"trace":"abc","sig":{"value_base64":"AAE="}}.
func (d *Decoder) shorthand() {
	from := len(d.names)
	for {
		name, ok := d.next()
		if !ok {
			break
		}
		d.names = append(d.names, name)
		var value, value64 raw
		if !d.openObject() {
			value = d.value()
		} else {
			_, value, value64 = d.headerObject()
		}
		if d.err != nil {
			return
		}
		h := topic.Header{Name: view(name)}
		var why string
		if h.Value, why = d.textOrBase64(value, value64); why != "" {
			d.mistake("headers."+shorten(name), why)
		}
		d.headers = append(d.headers, h)
	}
	d.closeObject(from)
}

// textOrBase64 reads what is given as a string or in base64. null is nil.
func (d *Decoder) textOrBase64(plain, encoded raw) (b []byte, why string) {
	switch {
	case plain.absent() && encoded.absent():
		return nil, "is required"
	case !plain.absent() && !encoded.absent():
		return nil, "is given twice, as it is and in base64"
	case plain.null() || encoded.null():
		return nil, ""
	case plain.isString():
		return d.text(plain), ""
	case !plain.absent():
		return nil, "must be a string or null"
	case !encoded.isString():
		return nil, "must be a string in base64"
	}
	b, ok := d.base64(encoded)
	if !ok {
		return nil, "is not base64 (the standard alphabet, with padding)"
	}
	return b, ""
}

func (d *Decoder) headerMistake(i int, member, message string) {
	field := "headers[" + strconv.Itoa(i) + "]"
	if member != "" {
		field += "." + member
	}
	d.mistake(field, message)
}
