package wire

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
)

// ChecksumBytes is how many bytes [Writer.Checksum] appends.
const ChecksumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer is the bytes that were written so far. Its methods append to them.
type Writer []byte

// Byte appends a single byte.
func (w *Writer) Byte(v byte) { *w = append(*w, v) }

// Raw appends bytes without their number.
func (w *Writer) Raw(v []byte) { *w = append(*w, v...) }

// ID appends the bytes of an id.
func (w *Writer) ID(v [16]byte) { *w = append(*w, v[:]...) }

// Uint appends a number.
func (w *Writer) Uint(v uint64) { *w = binary.AppendUvarint(*w, v) }

// Int appends a number that may be negative.
func (w *Writer) Int(v int64) { *w = binary.AppendVarint(*w, v) }

// Count appends the number of things that follow.
func (w *Writer) Count(n int) { w.Uint(uint64(n)) }

// Bytes appends a number of bytes and the bytes.
func (w *Writer) Bytes(v []byte) { w.Count(len(v)); *w = append(*w, v...) }

// Text appends a number of bytes and the bytes.
func (w *Writer) Text(v string) { w.Count(len(v)); *w = append(*w, v...) }

// Texts appends the number of rows and each row's key and value, in the order of the keys.
func (w *Writer) Texts(rows map[string]string) {
	w.Count(len(rows))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		w.Text(key)
		w.Text(rows[key])
	}
}

// Checksum appends the CRC-32C of a key, which may be nil, and all that was written. The key itself is
// not written.
func (w *Writer) Checksum(key []byte) { *w = binary.LittleEndian.AppendUint32(*w, sum(key, *w)) }

func sum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}
