package recordjson

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Decoder reads records from JSON. The records that a method returns, and all their bytes and names,
// are views of the input and of the Decoder: they are valid until its next call and while the input
// does not change. A Decoder is for one goroutine at a time; the zero Decoder is ready.
//
// Records without a partition have AnyPartition, without a timestamp NoTimestamp. Errors are faults
// of kind InvalidJSON, Validation, or RequestTooLarge for too many records, and all have an [Errors]
// in their chain. With an error there are no records.
type Decoder struct {
	b []byte
	i int // where to read on in b

	records []topic.Record
	headers []topic.Header // of all records
	arena   []byte         // what is not in the input as it is: unescaped strings, decoded base64
	names   [][]byte       // member names of the objects that are open, to find those that are there twice

	index    int    // of the record in its array, or alone
	member   string // of the record that is being read, for errors
	mistakes []FieldError
	more     int
	foreign  bool  // see Errors.Foreign
	err      error // what ended the reading: no record counts any more
}

// alone is the index of a record that is not in an array.
const alone = -1

// What a pooled Decoder may keep.
const (
	keptArenaBytes = 1 << 20
	keptRecords    = 10_000
)

var decoders = sync.Pool{New: func() any { return new(Decoder) }}

// TakeDecoder returns a Decoder that has been used before, where there is one.
func TakeDecoder() *Decoder { return decoders.Get().(*Decoder) }

// Release gives the Decoder back. It and the records that it returned must not be used any more.
func (d *Decoder) Release() {
	if cap(d.arena) > keptArenaBytes || cap(d.records) > keptRecords || cap(d.headers) > keptRecords || cap(d.names) > keptRecords {
		return
	}
	d.Reset()
	clear(d.names[:cap(d.names)])
	decoders.Put(d)
}

// Reset ends the life of all records that were returned. Only who calls [Decoder.More] needs it.
func (d *Decoder) Reset() {
	clear(d.headers)
	d.headers, d.arena = d.headers[:0], d.arena[:0]
	d.read(nil)
}

// read begins with an input.
func (d *Decoder) read(b []byte) {
	clear(d.records)
	*d = Decoder{b: b, records: d.records[:0], headers: d.headers, arena: d.arena, names: d.names[:0], index: alone}
}

// Body reads {"records":[…]} with 1 to most records.
func (d *Decoder) Body(body []byte, most int) ([]topic.Record, error) {
	d.Reset()
	d.read(body)
	d.i = skipSpace(body, 0)
	if d.i < len(body) && body[d.i] != '{' {
		d.skipValue()
		d.foreign = true
		return d.finish("the body must be an object with \"records\"")
	}
	found := false
	if d.openObject() {
		for {
			name, ok := d.next()
			if !ok {
				break
			}
			switch {
			case string(name) != "records":
				d.names = append(d.names, name)
				d.skipValue()
			case found:
				d.duplicate(name)
			default:
				found = true
				d.array(most)
			}
		}
		d.closeObject(0)
	}
	if !found && d.err == nil {
		d.foreign = true
		d.add("records", "is required")
	}
	return d.finish("")
}

// Array reads […], the value of "records" in a frame, with 1 to most records. Errors name fields as
// Body does: "records[2].value".
func (d *Decoder) Array(raw []byte, most int) ([]topic.Record, error) {
	d.Reset()
	d.read(raw)
	d.i = skipSpace(raw, 0)
	d.array(most)
	return d.finish("")
}

// Record reads one record object, as a line of NDJSON has it. The line end may be there or not.
// Errors name fields as "value".
func (d *Decoder) Record(line []byte) (topic.Record, error) {
	d.Reset()
	return d.More(line)
}

// More is Record, but the records that earlier calls of More returned stay valid too, until the next
// Reset or call of another method. So one Decoder reads many lines.
func (d *Decoder) More(line []byte) (topic.Record, error) {
	headers, arena := len(d.headers), len(d.arena)
	d.read(line)
	d.i = skipSpace(line, 0)
	d.record()
	records, err := d.finish("")
	if err != nil {
		// Nobody has views of these; refused lines must not pile up.
		clear(d.headers[headers:])
		d.headers, d.arena = d.headers[:headers], d.arena[:arena]
		return topic.Record{}, err
	}
	return records[0], nil
}

// finish checks that nothing follows, and turns mistakes into an error. instead, when not empty, is a
// mistake of the input as a whole.
func (d *Decoder) finish(instead string) ([]topic.Record, error) {
	if d.err == nil {
		if d.i = skipSpace(d.b, d.i); d.i < len(d.b) {
			d.index, d.member = alone, ""
			d.malformed(d.i, flawTrailing)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if instead != "" {
		d.add("", instead)
	}
	if len(d.mistakes) > 0 {
		return nil, fault.New("recordjson.Decoder", fault.Validation, nil, &Errors{Fields: d.mistakes, More: d.more, Foreign: d.foreign})
	}
	return d.records, nil
}

// array reads the array of records that begins at d.i.
func (d *Decoder) array(most int) {
	if d.i >= len(d.b) {
		d.malformed(d.i, flawEnd)
		return
	}
	if d.b[d.i] != '[' {
		d.skipValue()
		d.foreign = true
		d.add("records", "must be an array")
		return
	}
	d.i++
	for d.index = 0; d.nextElement(d.index == 0); d.index++ {
		if d.index == most {
			d.err = fault.New("recordjson.Decoder", fault.RequestTooLarge, nil,
				&Errors{Fields: []FieldError{{"records", fmt.Sprintf("has more than %d records", most)}}})
			return
		}
		d.record()
	}
	none := d.index == 0
	d.index = alone
	if none && d.err == nil {
		d.add("records", "must have at least one record")
	}
}

// nextElement steps to the next element of the array that is open. It returns false behind its end.
func (d *Decoder) nextElement(first bool) bool {
	if d.err != nil {
		return false
	}
	d.i = skipSpace(d.b, d.i)
	switch {
	case d.i >= len(d.b):
		return d.malformed(d.i, flawEnd)
	case d.b[d.i] == ']':
		d.i++
		return false
	case first:
		return true
	case d.b[d.i] != ',':
		return d.malformed(d.i, flawComma)
	}
	d.i = skipSpace(d.b, d.i+1)
	return true
}

// openObject passes the brace that d.i is at. It returns false when there is none.
func (d *Decoder) openObject() bool {
	if d.i >= len(d.b) {
		return d.malformed(d.i, flawEnd)
	}
	if d.b[d.i] != '{' {
		return false
	}
	d.i++
	return true
}

// next steps to the next member of the object that is open, and returns its name, with d.i at its
// value. It returns false behind the object's end. The comma before the member is told from its
// absence by what stands before d.i.
func (d *Decoder) next() (name []byte, ok bool) {
	if d.err != nil {
		return nil, false
	}
	first := d.b[d.i-1] == '{' // d.i is behind the opening brace, or behind a value, which never ends in one
	d.i = skipSpace(d.b, d.i)
	if d.i >= len(d.b) {
		return nil, d.malformed(d.i, flawEnd)
	}
	if d.b[d.i] == '}' {
		d.i++
		return nil, false
	}
	if !first {
		if d.b[d.i] != ',' {
			return nil, d.malformed(d.i, flawComma)
		}
		if d.i = skipSpace(d.b, d.i+1); d.i >= len(d.b) {
			return nil, d.malformed(d.i, flawEnd)
		}
	}
	if d.b[d.i] != '"' {
		return nil, d.malformed(d.i, flawName)
	}
	start := d.i
	end, escaped, why := scanString(d.b, start+1)
	if why != sound {
		return nil, d.malformed(end, why)
	}
	name = d.unquote(d.b[start:end], escaped)
	if d.i, why = scanColon(d.b, end); why != sound {
		return nil, d.malformed(d.i, why)
	}
	return name, true
}

// closeObject refuses the object whose names begin at d.names[from] when one is there twice.
func (d *Decoder) closeObject(from int) {
	names := d.names[from:]
	d.names = d.names[:from]
	if len(names) < 2 || d.err != nil {
		return
	}
	if len(names) > 16 {
		slices.SortFunc(names, compareNames)
		for i, name := range names[1:] {
			if bytes.Equal(name, names[i]) {
				d.duplicate(name)
				return
			}
		}
		return
	}
	for i, name := range names {
		for _, other := range names[:i] {
			if bytes.Equal(name, other) {
				d.duplicate(name)
				return
			}
		}
	}
}

func compareNames(a, b []byte) int {
	if n := cmp.Compare(len(a), len(b)); n != 0 {
		return n
	}
	return bytes.Compare(a, b)
}

// raw is a value as it stands in the input; the zero raw is none.
type raw struct {
	bytes   []byte
	escaped bool // it is a string with escapes
}

func (r raw) absent() bool   { return r.bytes == nil }
func (r raw) null() bool     { return r.bytes != nil && r.bytes[0] == 'n' }
func (r raw) isString() bool { return r.bytes != nil && r.bytes[0] == '"' }

// value passes the value at d.i.
func (d *Decoder) value() raw {
	var end int
	var why flaw
	var r raw
	if d.i < len(d.b) && d.b[d.i] == '"' {
		end, r.escaped, why = scanString(d.b, d.i+1)
	} else {
		end, why = scanValue(d.b, d.i)
	}
	if why != sound {
		d.malformed(end, why)
		return raw{}
	}
	r.bytes = d.b[d.i:end:end]
	d.i = end
	return r
}

func (d *Decoder) skipValue() { d.value() }

// unquote is the meaning of a string, which is a view of the input where that has no escapes.
func (d *Decoder) unquote(quoted []byte, escaped bool) []byte {
	content := quoted[1 : len(quoted)-1 : len(quoted)-1]
	if !escaped {
		return content
	}
	start := len(d.arena)
	d.arena = appendUnescaped(d.arena, content)
	return d.arena[start:len(d.arena):len(d.arena)]
}

func (d *Decoder) text(r raw) []byte { return d.unquote(r.bytes, r.escaped) }

// malformed ends the reading: the input is no JSON. It returns false.
func (d *Decoder) malformed(at int, why flaw) bool {
	d.end(fmt.Sprintf("%s (at byte %d)", flawTexts[why], at))
	return false
}

func (d *Decoder) duplicate(name []byte) {
	d.end(fmt.Sprintf("the member %s is there twice", shorten(name)))
}

func (d *Decoder) end(message string) {
	if d.err == nil {
		d.err = fault.New("recordjson.Decoder", fault.InvalidJSON, nil, &Errors{Fields: []FieldError{{d.field(d.member), message}}})
	}
}

// mistake notes what is wrong with a member of the current record; "" is the record itself.
func (d *Decoder) mistake(member, message string) { d.add(d.field(member), message) }

func (d *Decoder) add(field, message string) {
	if len(d.mistakes) >= MostErrors {
		d.more++
		return
	}
	d.mistakes = append(d.mistakes, FieldError{field, message})
}

// field is the full name of a member of the current record.
func (d *Decoder) field(member string) string {
	switch {
	case d.index == alone:
		return member
	case member == "":
		return "records[" + strconv.Itoa(d.index) + "]"
	default:
		return "records[" + strconv.Itoa(d.index) + "]." + member
	}
}

// shorten quotes what somebody sent, so that an error never echoes a whole body.
func shorten(b []byte) string {
	const most = 64
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + "…"
	}
	return strconv.Quote(string(b))
}
