package topic

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/weirlog/weir/internal/fault"
)

const (
	cursorPrefix = "c1."

	// MaxCursorBytes is the longest text that is read as a cursor, as long as the longest query. Some
	// 5,000 partitions fit.
	MaxCursorBytes = 64 << 10

	// The kinds of position, the first byte of each.
	readerCursor = 0
	groupCursor  = 1

	cursorSumBytes = 4
	wholeBit       = 1
	sameEpochBit   = 1
)

var cursorTable = crc32.MakeTable(crc32.Castagnoli)

// cursorBase64 refuses texts with other than zero bits at their end: one cursor has one text.
var cursorBase64 = base64.RawURLEncoding.Strict()

// String is the cursor as clients see it: URL-safe text that [ParseCursor] reads.
func (c Cursor) String() string { return string(c.Append(nil)) }

// Append appends the text of the cursor to dst. Topics and partitions must be in order and numbers
// not negative, as [Cursor.Advance] and [ParseCursor] leave them: otherwise nobody can read the text.
func (c Cursor) Append(dst []byte) []byte {
	dst = append(dst, cursorPrefix...)
	start := len(dst)
	dst = append(dst, readerCursor)
	dst = binary.AppendUvarint(dst, uint64(len(c.Topics)))
	for i := range c.Topics {
		dst = c.Topics[i].append(dst)
	}
	return sealCursor(dst, start)
}

// sealCursor makes text of the payload that begins at start.
func sealCursor(dst []byte, start int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], cursorTable))
	// The text is made behind the bytes and then moved over them: dst is all the room that is needed.
	plain := dst[start:]
	dst = cursorBase64.AppendEncode(dst, plain)
	n := copy(dst[start:], dst[start+len(plain):])
	return dst[:start+n]
}

// append appends the topic's id, its flag, and its partitions as runs of consecutive numbers.
func (t *CursorTopic) append(b []byte) []byte {
	b = append(b, t.ID[:]...)
	runs := 0
	for i := range t.Parts {
		if i == 0 || t.Parts[i].Partition != t.Parts[i-1].Partition+1 {
			runs++
		}
	}
	head := uint64(runs) << 1
	if t.Whole {
		head |= wholeBit
	}
	b = binary.AppendUvarint(b, head)
	after := int64(0) // the first number that the next run may begin with
	epoch := NoEpoch
	for rest := t.Parts; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Partition == rest[n-1].Partition+1 {
			n++
		}
		b = binary.AppendUvarint(b, uint64(int64(rest[0].Partition)-after))
		b = binary.AppendUvarint(b, uint64(n-1))
		for _, part := range rest[:n] {
			// Most partitions have the epoch of the one before. Offsets use 63 bits: one is free for that.
			if part.LastEpoch == epoch {
				b = binary.AppendUvarint(b, uint64(part.Next)<<1|sameEpochBit)
				continue
			}
			b = binary.AppendUvarint(b, uint64(part.Next)<<1)
			b = binary.AppendUvarint(b, uint64(int64(part.LastEpoch)+1))
			epoch = part.LastEpoch
		}
		after = int64(rest[n-1].Partition) + 2 // or it would be the same run
		rest = rest[n:]
	}
	return b
}

// ParseCursor reads the text of a cursor. Whatever is wrong with it is a fault of kind InvalidCursor.
func ParseCursor(s string) (Cursor, error) {
	bad := func(why string) (Cursor, error) {
		return Cursor{}, fault.Newf("topic.ParseCursor", fault.InvalidCursor, nil, "cursor %s: %s", quote(s), why)
	}
	payload, why := openCursor(s, cursorPrefix)
	if why != "" {
		return bad(why)
	}
	c, err := readCursor(payload)
	if err != nil {
		return bad(err.Error())
	}
	// Numbers can be written longer than needed, and ids out of order: one cursor has one text.
	if !bytes.Equal(c.Append(nil), []byte(s)) {
		return bad("is not in its canonical form")
	}
	return c, nil
}

// openCursor returns the payload of a text, or says what is wrong with it.
func openCursor(s, prefix string) (payload []byte, why string) {
	if len(s) > MaxCursorBytes {
		return nil, "is too long"
	}
	text, ours := strings.CutPrefix(s, prefix)
	switch {
	case ours:
	case strings.HasPrefix(s, cursorPrefix):
		return nil, `is the position of a reader without a group; those of a group begin with "g1."`
	case strings.HasPrefix(s, groupCursorPrefix):
		return nil, `is the position of a consumer group; those of a reader without a group begin with "c1."`
	default:
		return nil, `does not begin with "` + prefix + `"`
	}
	// The library skips line ends, and so two texts would be one cursor.
	b, err := cursorBase64.DecodeString(text)
	if err != nil || cursorBase64.EncodedLen(len(b)) != len(text) {
		return nil, "is not base64url"
	}
	if len(b) < cursorSumBytes {
		return nil, "is too short"
	}
	payload, sum := b[:len(b)-cursorSumBytes], b[len(b)-cursorSumBytes:]
	if crc32.Checksum(payload, cursorTable) != binary.BigEndian.Uint32(sum) {
		return nil, "is damaged or was cut short"
	}
	return payload, ""
}

var errCursor = errors.New("has fields that no cursor has")

// cursorReader takes fields off the front of bytes. After the first that is not there bad is set and
// all others are 0.
type cursorReader struct {
	b   []byte
	bad bool
}

// number takes a number that is at most most.
func (r *cursorReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count takes a number of things of which each takes at least size of the bytes that follow.
func (r *cursorReader) count(shift uint, size int) (n int, low uint64) {
	v := r.number(math.MaxUint64)
	n64 := v >> shift
	if n64 > uint64(len(r.b)/size) {
		r.b, r.bad = nil, true
		return 0, 0
	}
	return int(n64), v & (1<<shift - 1)
}

// id takes the id of a topic.
func (r *cursorReader) id() (id ID) {
	if len(r.b) < len(id) {
		r.b, r.bad = nil, true
		return id
	}
	r.b = r.b[copy(id[:], r.b):]
	return id
}

// run takes the head of a run of consecutive partitions that begins at after or later. A run has one at
// least; of one that cannot be, n is 0.
func (r *cursorReader) run(after int64) (first int64, n int) {
	first = int64(r.number(math.MaxInt32)) + after
	more, _ := r.count(0, 1)
	if r.bad || first+int64(more) > math.MaxInt32 {
		r.b, r.bad = nil, true
		return first, 0
	}
	return first, more + 1
}

func readCursor(b []byte) (Cursor, error) {
	r := cursorReader{b: b}
	if r.number(math.MaxUint64) != readerCursor || r.bad {
		return Cursor{}, errors.New("is of a kind that is not known")
	}
	var c Cursor
	topics, _ := r.count(0, len(ID{})+1)
	if topics > 0 {
		c.Topics = make([]CursorTopic, topics)
	}
	for i := range c.Topics {
		r.topic(&c.Topics[i])
		if i > 0 && compareTopic(c.Topics[i-1], c.Topics[i].ID) >= 0 {
			return Cursor{}, errCursor
		}
	}
	if r.bad || len(r.b) > 0 {
		return Cursor{}, errCursor
	}
	return c, nil
}

func (r *cursorReader) topic(t *CursorTopic) {
	t.ID = r.id()
	runs, flag := r.count(1, 3)
	t.Whole = flag&wholeBit != 0
	after := int64(0)
	epoch := NoEpoch
	for range runs {
		first, n := r.run(after)
		if n == 0 {
			return
		}
		t.Parts = slices.Grow(t.Parts, n)
		for i := range n {
			v := r.number(math.MaxUint64)
			if v&sameEpochBit == 0 {
				epoch = Epoch(int64(r.number(math.MaxInt32+1)) - 1)
			}
			if r.bad {
				return
			}
			t.Parts = append(t.Parts, CursorPart{Partition: Partition(first + int64(i)), Next: Offset(v >> 1), LastEpoch: epoch})
		}
		after = first + int64(n) + 1
	}
}
