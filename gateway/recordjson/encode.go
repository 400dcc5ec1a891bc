package recordjson

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Format is the value_format that a reader asks for: the most readable form that values are given in.
// A value that cannot be given so is given in the next one: JSON, then string, then base64.
type Format int8

// The formats. Auto chooses as JSON does.
const (
	Auto   Format = iota
	JSON          // strictly valid JSON is given as it stands
	String        // UTF-8 is given as a string
	Base64        // every value is given in base64
)

var formatNames = [...]string{Auto: "auto", JSON: "json", String: "string", Base64: "base64"}

// ParseFormat reads "auto", "json", "string" or "base64"; "" is auto.
func ParseFormat(s string) (Format, error) {
	if s == "" {
		return Auto, nil
	}
	for f, name := range formatNames {
		if s == name {
			return Format(f), nil
		}
	}
	return 0, fault.New("recordjson.ParseFormat", fault.Validation, nil, errors.New("value_format: must be auto, json, string or base64"))
}

// String is the word that [ParseFormat] reads.
func (f Format) String() string {
	if f < 0 || int(f) >= len(formatNames) {
		return "format(" + strconv.Itoa(int(f)) + ")"
	}
	return formatNames[f]
}

// Options of the output object of a record.
type Options struct {
	Format Format
	// OneLine replaces the line ends that a JSON value has between its tokens by spaces, for NDJSON.
	OneLine bool
	// Topic, when not empty, adds the members "topic" and "partition".
	Topic     topic.Name
	Partition topic.Partition
}

// Append appends r as a JSON object to dst:
//
//	{"offset":10422,"timestamp":1762077600123,"key":"user-42","value":{"total":12.50},"headers":[{"name":"trace","value":"abc"}]}
//
// A record without key has no "key", one without headers no "headers". "key_encoding" is there when
// it is not string, "value_encoding" when it is not json. A header value that is not UTF-8 is in
// "value_base64". Header names are UTF-8; should one not be, it has U+FFFD in its place.
func Append(dst []byte, r *batch.Record, o Options) []byte {
	dst = append(dst, '{')
	if o.Topic != "" {
		dst = append(dst, `"topic":`...)
		dst = AppendString(dst, string(o.Topic))
		dst = append(dst, `,"partition":`...)
		dst = strconv.AppendInt(dst, int64(o.Partition), 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"offset":`...)
	dst = strconv.AppendInt(dst, int64(r.Offset), 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, int64(r.Timestamp), 10)
	if r.Key != nil {
		dst = append(dst, `,"key":`...)
		if utf8.Valid(r.Key) {
			dst = appendText(dst, r.Key)
		} else {
			dst = appendBase64(dst, r.Key)
			dst = append(dst, `,"key_encoding":"base64"`...)
		}
	}
	dst = append(dst, `,"value":`...)
	dst, encoding := AppendValue(dst, r.Value, o.Format, o.OneLine)
	if encoding != JSON.String() {
		dst = append(dst, `,"value_encoding":"`...)
		dst = append(dst, encoding...)
		dst = append(dst, '"')
	}
	if r.Headers.Len() > 0 {
		dst = append(dst, `,"headers":`...)
		dst = appendHeaders(dst, r.Headers)
	}
	return append(dst, '}')
}

// AppendValue appends the value alone, as it stands behind "value": in the object, and returns its
// value_encoding: "json", "string" or "base64". A tombstone is null in json.
func AppendValue(dst, value []byte, f Format, oneLine bool) (out []byte, encoding string) {
	if value == nil {
		return append(dst, "null"...), JSON.String()
	}
	if f <= JSON && isJSON(value) {
		start := len(dst)
		dst = append(dst, value...)
		if oneLine {
			joinLines(dst[start:])
		}
		return dst, JSON.String()
	}
	if f <= String && utf8.Valid(value) {
		return appendText(dst, value), String.String()
	}
	return appendBase64(dst, value), Base64.String()
}

// isJSON says that a value can be given as the JSON that it is. The bare text null is not: it would
// be taken for a tombstone.
func isJSON(value []byte) bool {
	i := skipSpace(value, 0)
	end, why := scanValue(value, i)
	return why == sound && skipSpace(value, end) == len(value) && value[i] != 'n'
}

// joinLines replaces line ends by spaces. In valid JSON they only stand between tokens.
func joinLines(b []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for rest := b; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

func appendHeaders(dst []byte, headers batch.Headers) []byte {
	separator := byte('[')
	for name, value := range headers.All() {
		dst = append(dst, separator)
		separator = ','
		dst = append(dst, `{"name":`...)
		dst = AppendString(dst, view(name))
		switch {
		case value == nil:
			dst = append(dst, `,"value":null}`...)
		case utf8.Valid(value):
			dst = append(dst, `,"value":`...)
			dst = append(appendText(dst, value), '}')
		default:
			dst = append(dst, `,"value_base64":`...)
			dst = append(appendBase64(dst, value), '}')
		}
	}
	return append(dst, ']')
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// AppendString appends s as a JSON string. What is not UTF-8 in it becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return appendText(dst, bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")))
	}
	return appendText(dst, unsafe.Slice(unsafe.StringData(s), len(s)))
}

// appendText appends text, which is UTF-8, as a JSON string, with as few escapes as JSON allows.
func appendText(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := plain(text, 0); i < len(text); i = plain(text, 0) {
		dst = append(dst, text[:i]...)
		switch c := text[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		text = text[i+1:]
	}
	dst = append(dst, text...)
	return append(dst, '"')
}

// plain returns the first place from i on that needs an escape, or the length of the text.
func plain(text []byte, i int) int {
	for ; len(text)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		if marks := special(w); marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}
