package session

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Format is how a reader wants its records written. Readers with equal formats share encodings.
type Format struct {
	Shape  Shape
	Values recordjson.Format
	// Bare is for Events: the value alone, without the object around it.
	Bare bool
	// Event is for Events: the record header that names the event; empty: none does.
	Event string
}

// Shape is what stands around and between records.
type Shape int8

// The shapes.
const (
	Objects Shape = iota // JSON objects, each with a comma behind it
	Lines                // a JSON object a line
	Events               // the lines of server-sent events, without the id and without the empty line at the end
)

// append writes one record.
func (f *Format) append(dst []byte, r *batch.Record, name topic.Name, p topic.Partition) []byte {
	options := recordjson.Options{Format: f.Values, Topic: name, Partition: p}
	switch f.Shape {
	case Lines:
		options.OneLine = true
		return append(recordjson.Append(dst, r, options), '\n')
	case Events:
		return f.appendEvent(dst, r, options)
	default:
		return append(recordjson.Append(dst, r, options), ',')
	}
}

func (f *Format) appendEvent(dst []byte, r *batch.Record, options recordjson.Options) []byte {
	if f.Event != "" {
		dst = appendEventName(dst, headerOf(r, f.Event))
	}
	switch {
	case !f.Bare:
		at := len(dst)
		dst = recordjson.Append(append(dst, "data: "...), r, options)
		return appendBroken(dst, at)
	case f.Values == recordjson.Auto && r.Value != nil:
		at := len(dst)
		dst = appendPlain(append(dst, "data: "...), r.Value)
		return appendBroken(dst, at)
	default:
		at := len(dst)
		dst, _ = recordjson.AppendValue(append(dst, "data: "...), r.Value, f.Values, false)
		return appendBroken(dst, at)
	}
}

// appendPlain writes a value as text: as it stands where it is UTF-8, else in base64.
func appendPlain(dst, value []byte) []byte {
	if utf8.Valid(value) {
		return append(dst, value...)
	}
	return base64.StdEncoding.AppendEncode(dst, value)
}

// appendBroken ends the data line that begins at dst[at], and begins another one with "data: " wherever
// the text has a line end of its own.
func appendBroken(dst []byte, at int) []byte {
	if bytes.IndexByte(dst[at:], '\n') < 0 && bytes.IndexByte(dst[at:], '\r') < 0 {
		return append(dst, '\n')
	}
	text := bytes.Clone(dst[at:])
	dst = dst[:at]
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\r', '\n':
			if c == '\r' && i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
			dst = append(dst, "\ndata: "...)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '\n')
}

// headerOf is the value of the last header of that name, or nil.
func headerOf(r *batch.Record, name string) []byte {
	var found []byte
	for n, value := range r.Headers.All() {
		if string(n) == name {
			found = value
		}
	}
	return found
}

// appendEventName names the event, when the name is one that a line can carry.
func appendEventName(dst, name []byte) []byte {
	if len(name) == 0 || !utf8.Valid(name) || bytes.ContainsAny(name, "\r\n\x00") {
		return dst
	}
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	return append(dst, '\n')
}
