package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/weirlog/weir/topic"
)

const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer appends values in the format of docs/group-records.md. One value has one form.
type writer struct{ b []byte }

func (w *writer) byte(v byte)              { w.b = append(w.b, v) }
func (w *writer) uint(v uint64)            { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)              { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) string(v string)          { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) id(v topic.ID)            { w.b = append(w.b, v[:]...) }
func (w *writer) epoch(v topic.GroupEpoch) { w.uint(uint64(v)) }
func (w *writer) millis(v topic.Millis)    { w.int(int64(v)) }
func (w *writer) checksum(key []byte)      { w.b = binary.LittleEndian.AppendUint32(w.b, sum(key, w.b)) }

func sum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// checked cuts the checksum off the end of a value and verifies it.
func checked(key, value []byte) ([]byte, error) {
	if len(value) < sumBytes {
		return nil, errShort
	}
	body, want := value[:len(value)-sumBytes], binary.LittleEndian.Uint32(value[len(value)-sumBytes:])
	if got := sum(key, body); got != want {
		return nil, fmt.Errorf("the checksum is wrong: %08x is stored, the bytes have %08x", want, got)
	}
	return body, nil
}

// ErrNewer is below the errors about sound bytes that a later program wrote.
var ErrNewer = errors.New("start the newer program that wrote it")

func newer(what string, version byte, known int) error {
	return fmt.Errorf("%s has format %d and this program knows formats up to %d; %w", what, version, known, ErrNewer)
}

var (
	errShort = errors.New("the bytes end too early")
	errLong  = errors.New("there are bytes behind the end")
	errForm  = errors.New("a number is not in its shortest form, or not allowed there")
	errOrder = errors.New("rows are out of order")
)

// reader takes values from b. After a mistake it returns zero values, and err has the first mistake.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) raw(n int) []byte {
	if n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.raw(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.fail(errShort)
		return 0
	case n < 0 || n > 1 && r.b[n-1] == 0:
		r.fail(errForm)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// number is a uint that is at most most.
func (r *reader) number(most uint64) uint64 {
	v := r.uint()
	if v > most {
		r.fail(errForm)
		return 0
	}
	return v
}

// choice is a byte that is at most most.
func (r *reader) choice(most byte) byte {
	v := r.byte()
	if v > most {
		r.fail(errForm)
		return 0
	}
	return v
}

// count is the number of things that follow, each of at least size bytes.
func (r *reader) count(size int) int {
	v := r.uint()
	if v > uint64(len(r.b)/size) {
		r.fail(errShort)
		return 0
	}
	return int(v)
}

// int undoes the zigzag of writer.int.
func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) int32() int32 {
	v := r.int()
	if v != int64(int32(v)) {
		r.fail(errForm)
		return 0
	}
	return int32(v)
}

func (r *reader) id() (v topic.ID)        { copy(v[:], r.raw(len(v))); return v }
func (r *reader) view() []byte            { return r.raw(r.count(1)) }
func (r *reader) string() string          { return string(r.view()) }
func (r *reader) epoch() topic.GroupEpoch { return topic.GroupEpoch(r.number(math.MaxInt64)) }
func (r *reader) millis() topic.Millis    { return topic.Millis(r.int()) }

// filled is a string that is not empty.
func (r *reader) filled() string {
	v := r.string()
	if v == "" {
		r.fail(errForm)
	}
	return v
}

func (r *reader) topicName() topic.Name {
	v := r.string()
	if r.err != nil {
		return ""
	}
	name, err := topic.ParseName(v)
	if err != nil {
		r.fail(err)
	}
	return name
}

// end returns the first mistake; bytes that are left over are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return errLong
	}
	return r.err
}
