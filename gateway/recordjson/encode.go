package recordjson

import (
	"errors"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Format is the value_format that a reader asks for: the most readable form that values are given in.
// A value that cannot be given so is given in the next one: JSON, then string, then base64.
type Format int8

// The formats.
const (
	Auto   Format = iota // as JSON
	JSON                 // strictly valid JSON is given as it stands
	String               // UTF-8 is given as a string
	Base64               // every value is given in base64
)

// ParseFormat reads "auto", "json", "string" or "base64"; "" is auto.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "", "auto":
		return Auto, nil
	case "json":
		return JSON, nil
	case "string":
		return String, nil
	case "base64":
		return Base64, nil
	default:
		return 0, fault.New("recordjson.ParseFormat", fault.Validation, nil, errors.New("value_format: must be auto, json, string or base64"))
	}
}

// String is the word that [ParseFormat] reads.
func (f Format) String() string { return [...]string{"auto", "json", "string", "base64"}[f&3] }

// Options of the output object of a record.
type Options struct {
	Format Format
	// OneLine replaces the line ends that a JSON value has between its tokens by spaces, for NDJSON.
	OneLine bool
	// Topic, when not empty, adds the members "topic" and "partition".
	Topic     topic.Name
	Partition topic.Partition
}

// Append appends r as a JSON object to dst.
func Append(dst []byte, r *batch.Record, o Options) []byte { return dst }

// AppendValue appends the value alone, as it would stand behind "value": in the object, and returns
// what value_encoding would be: "json", "string" or "base64". A tombstone is null and "json".
func AppendValue(dst, value []byte, f Format, oneLine bool) (out []byte, encoding string) {
	return dst, "json"
}

// AppendString appends s as a JSON string. What is not UTF-8 in it becomes U+FFFD.
func AppendString[T ~string | ~[]byte](dst []byte, s T) []byte { return dst }

// Valid says that b is one strictly valid JSON value, with white space around it or not: UTF-8, no
// lone surrogates, at most MaxDepth deep.
func Valid(b []byte) bool { return false }

// MaxDepth is how deep arrays and objects may nest in a value.
const MaxDepth = 128
