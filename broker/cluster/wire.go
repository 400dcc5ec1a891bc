package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/weirlog/weir/topic"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer appends values in the format of docs/metadata.md. One value has one form.
type writer struct{ b []byte }

func (w *writer) byte(v byte)     { w.b = append(w.b, v) }
func (w *writer) raw(v []byte)    { w.b = append(w.b, v...) }
func (w *writer) uint(v uint64)   { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)     { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) bytes(v []byte)  { w.uint(uint64(len(v))); w.raw(v) }
func (w *writer) string(v string) { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) checksum() {
	w.b = binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b, castagnoli))
}
func (w *writer) id(v [16]byte)       { w.raw(v[:]) }
func (w *writer) count(n int)         { w.uint(uint64(n)) }
func (w *writer) node(n topic.NodeID) { w.int(int64(n)) }

func (w *writer) nodes(list []topic.NodeID) {
	w.count(len(list))
	for _, n := range list {
		w.node(n)
	}
}

func (w *writer) overrides(settings map[string]string) {
	w.count(len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		w.string(name)
		w.string(settings[name])
	}
}

var (
	errShort     = errors.New("the bytes end too early")
	errLong      = errors.New("there are bytes behind the end")
	errForm      = errors.New("a number is not in its shortest form, or too large")
	errOrder     = errors.New("rows are out of order")
	errChecksum  = errors.New("the checksum is wrong")
	errEmptyRead = errors.New("there are no bytes")
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

// whole is an int that is kept as one on every machine.
func (r *reader) whole() int {
	v := r.int()
	if v != int64(int(v)) {
		r.fail(errForm)
		return 0
	}
	return int(v)
}

// count is the number of things that follow, each of at least one byte.
func (r *reader) count() int {
	v := r.uint()
	if v > uint64(len(r.b)) {
		r.fail(errShort)
		return 0
	}
	return int(v)
}

func (r *reader) view() []byte         { return r.raw(r.count()) }
func (r *reader) bytes() []byte        { return slices.Clone(r.view()) }
func (r *reader) string() string       { return string(r.view()) }
func (r *reader) node() topic.NodeID   { return topic.NodeID(r.int32()) }
func (r *reader) millis() topic.Millis { return topic.Millis(r.int()) }
func (r *reader) id() (v [16]byte)     { copy(v[:], r.raw(len(v))); return v }

func (r *reader) nodes() []topic.NodeID {
	n := r.count()
	if n == 0 {
		return nil
	}
	list := make([]topic.NodeID, n)
	for i := range list {
		list[i] = r.node()
	}
	return list
}

func (r *reader) overrides() map[string]string {
	n := r.count()
	if n == 0 {
		return nil
	}
	settings := make(map[string]string, n)
	last := ""
	for i := range n {
		name := r.string()
		if i > 0 && name <= last {
			r.fail(errOrder)
			return nil
		}
		settings[name], last = r.string(), name
	}
	return settings
}

// end returns the first mistake; bytes that are left over are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return errLong
	}
	return r.err
}

// checked cuts the checksum off the end of b and verifies it.
func checked(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errEmptyRead
	}
	if len(b) < 4 {
		return nil, errShort
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("%w: %08x is stored, the bytes have %08x", errChecksum, sum, got)
	}
	return body, nil
}
