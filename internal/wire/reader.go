package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Reader takes values from bytes in the order in which a [Writer] appended them. After a mistake it
// returns zero values, and [Reader.Err] has the first mistake. Make one with [NewReader].
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b, which it does not copy.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Checked cuts the checksum off the end of b and verifies it with the key that [Writer.Checksum] had.
func Checked(key, b []byte) ([]byte, error) {
	if len(b) < ChecksumBytes {
		return nil, ErrShort
	}
	body, want := b[:len(b)-ChecksumBytes], binary.LittleEndian.Uint32(b[len(b)-ChecksumBytes:])
	if got := sum(key, body); got != want {
		return nil, fmt.Errorf("%w: %08x is stored, the bytes have %08x", ErrChecksum, want, got)
	}
	return body, nil
}

// Err returns the first mistake so far.
func (r *Reader) Err() error { return r.err }

// Fail notes a mistake that the caller found, and ends the reading.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// End returns the first mistake; bytes that are left over are one.
func (r *Reader) End() error {
	if r.err == nil && len(r.b) > 0 {
		return ErrLong
	}
	return r.err
}

// Raw takes n bytes, which are not copied.
func (r *Reader) Raw(n int) []byte {
	if n > len(r.b) {
		r.Fail(ErrShort)
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// Byte takes a single byte.
func (r *Reader) Byte() byte {
	if v := r.Raw(1); v != nil {
		return v[0]
	}
	return 0
}

// Choice takes a byte that is at most most.
func (r *Reader) Choice(most byte) byte {
	v := r.Byte()
	if v > most {
		r.Fail(ErrForm)
		return 0
	}
	return v
}

// ID takes the bytes of an id.
func (r *Reader) ID() (v [16]byte) { copy(v[:], r.Raw(len(v))); return v }

// Uint takes a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.Fail(ErrShort)
		return 0
	case n < 0 || n > 1 && r.b[n-1] == 0:
		r.Fail(ErrForm)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Number takes a number that is at most most.
func (r *Reader) Number(most uint64) uint64 {
	v := r.Uint()
	if v > most {
		r.Fail(ErrForm)
		return 0
	}
	return v
}

// Int takes a number that may be negative.
func (r *Reader) Int() int64 {
	v := r.Uint()
	return int64(v>>1) ^ -int64(v&1)
}

// Int32 takes a number that may be negative and has at most 32 bits.
func (r *Reader) Int32() int32 {
	v := r.Int()
	if v != int64(int32(v)) {
		r.Fail(ErrForm)
		return 0
	}
	return int32(v)
}

// Whole takes a number that may be negative and that an int of this machine can hold.
func (r *Reader) Whole() int {
	v := r.Int()
	if v != int64(int(v)) {
		r.Fail(ErrForm)
		return 0
	}
	return int(v)
}

// Count takes the number of things that follow, each of at least size bytes. One that the bytes have no
// room for is a mistake, so that a caller may make room for as many things.
func (r *Reader) Count(size int) int {
	v := r.Uint()
	if v > uint64(len(r.b)/size) {
		r.Fail(ErrShort)
		return 0
	}
	return int(v)
}

// View takes a number of bytes and the bytes, which are not copied.
func (r *Reader) View() []byte { return r.Raw(r.Count(1)) }

// Bytes takes a number of bytes and a copy of the bytes.
func (r *Reader) Bytes() []byte { return slices.Clone(r.View()) }

// Text takes a number of bytes and the bytes.
func (r *Reader) Text() string { return string(r.View()) }

// Texts takes rows of a key and a value. It returns nil when there are none.
func (r *Reader) Texts() map[string]string {
	n := r.Count(2)
	if n == 0 {
		return nil
	}
	rows := make(map[string]string, n)
	last := ""
	for i := range n {
		key := r.Text()
		if i > 0 && key <= last {
			r.Fail(ErrOrder)
			return nil
		}
		rows[key], last = r.Text(), key
	}
	return rows
}
