package storage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// An index file begins with two slots that are written in turn, so one of them is whole whenever the
// machine stops; the entries follow and are only added to. A slot counts when its own checksum and
// that of the entries it speaks of are right; of two, the later one does.
const (
	slotBytes      = 80
	slotStride     = 128
	entriesStart   = 2 * slotStride
	indexVersion   = 1
	entryBytes     = 8
	stampBytes     = 12
	mostIndexBytes = 64 << 20 // a larger file is damage
)

type indexKind struct {
	suffix string
	magic  string
	entry  int // bytes of an entry
}

var (
	offsetIndex = indexKind{".index", "weir.idx", entryBytes}
	timeIndex   = indexKind{".timeindex", "weir.tix", stampBytes}
)

// slot is the head of an index file.
type slot struct {
	facts
	count    uint32 // entries
	sequence uint64 // of two slots the one with the higher sequence is later
	crc      uint32 // of the entries
}

func (s *slot) encode(kind indexKind, base topic.Offset) []byte {
	b := make([]byte, slotBytes)
	copy(b, kind.magic)
	binary.BigEndian.PutUint16(b[8:], indexVersion)
	binary.BigEndian.PutUint16(b[10:], uint16(kind.entry))
	binary.BigEndian.PutUint32(b[12:], s.count)
	binary.BigEndian.PutUint64(b[16:], s.sequence)
	binary.BigEndian.PutUint64(b[24:], uint64(base))
	binary.BigEndian.PutUint64(b[32:], uint64(s.covers))
	binary.BigEndian.PutUint64(b[40:], uint64(s.next))
	binary.BigEndian.PutUint64(b[48:], uint64(s.largest))
	binary.BigEndian.PutUint64(b[56:], uint64(s.first))
	binary.BigEndian.PutUint64(b[64:], uint64(s.last))
	binary.BigEndian.PutUint32(b[72:], s.crc)
	binary.BigEndian.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
	return b
}

func decodeSlot(b []byte, kind indexKind, base topic.Offset) (slot, bool) {
	if len(b) < slotBytes || crc32.Checksum(b[:76], castagnoli) != binary.BigEndian.Uint32(b[76:]) ||
		string(b[:8]) != kind.magic || binary.BigEndian.Uint16(b[8:]) != indexVersion ||
		binary.BigEndian.Uint16(b[10:]) != uint16(kind.entry) || topic.Offset(binary.BigEndian.Uint64(b[24:])) != base {
		return slot{}, false
	}
	s := slot{
		facts: facts{
			covers:  int64(binary.BigEndian.Uint64(b[32:])),
			next:    topic.Offset(binary.BigEndian.Uint64(b[40:])),
			largest: topic.Millis(binary.BigEndian.Uint64(b[48:])),
			first:   topic.Millis(binary.BigEndian.Uint64(b[56:])),
			last:    topic.Millis(binary.BigEndian.Uint64(b[64:])),
		},
		count:    binary.BigEndian.Uint32(b[12:]),
		sequence: binary.BigEndian.Uint64(b[16:]),
		crc:      binary.BigEndian.Uint32(b[72:]),
	}
	return s, s.covers >= 0 && s.next >= base
}

// slots are the readable ones of a file's head, the later first.
func slots(head []byte, kind indexKind, base topic.Offset) []slot {
	var found []slot
	for at := 0; at+slotBytes <= len(head) && at < entriesStart; at += slotStride {
		if s, ok := decodeSlot(head[at:], kind, base); ok {
			found = append(found, s)
		}
	}
	if len(found) == 2 && found[1].sequence > found[0].sequence {
		found[0], found[1] = found[1], found[0]
	}
	return found
}

// readIndexFile returns the newest sound state of an index file and its encoded entries; ok is false
// when there is none.
func readIndexFile(fsys vfs.FS, name string, kind indexKind, base topic.Offset) (s slot, body []byte, ok bool, err error) {
	content, err := vfs.ReadFile(fsys, name, mostIndexBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrTooLarge) {
		return slot{}, nil, false, nil
	}
	if err != nil {
		return slot{}, nil, false, err
	}
	for _, s := range slots(content[:min(len(content), entriesStart)], kind, base) {
		if s.count == 0 { // the file may be no longer than its slots
			return s, nil, s.crc == 0, nil
		}
		end := entriesStart + int(s.count)*kind.entry
		if end > len(content) {
			continue
		}
		if body := content[entriesStart:end]; crc32.Checksum(body, castagnoli) == s.crc {
			return s, body, true, nil
		}
	}
	return slot{}, nil, false, nil
}

// readFacts reads the head of an index file alone.
func readFacts(fsys vfs.FS, name string, kind indexKind, base topic.Offset) (found facts, ok bool, err error) {
	f, err := fsys.Open(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return facts{}, false, nil
	}
	if err != nil {
		return facts{}, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var head [entriesStart]byte
	n, err := readUpTo(f, head[:], 0)
	if err != nil {
		return facts{}, false, err
	}
	if s := slots(head[:n], kind, base); len(s) > 0 {
		return s[0].facts, true, nil
	}
	return facts{}, false, nil
}

// saved is what an index's files are known to hold.
type saved struct {
	sequence uint64
	offsets  int // entries in the files that are those in memory
	stamps   int
}

// writeIndexFile brings a file up to date: entries from number have on, then the next slot. A file that
// loses something, because it was not synced or in spite of it, is made anew by whoever reads it.
func writeIndexFile(fsys vfs.FS, name string, kind indexKind, base topic.Offset, s slot, body []byte, have int, sync bool) (err error) {
	flag := os.O_RDWR | os.O_CREATE
	if have == 0 {
		flag |= os.O_TRUNC
	}
	f, err := fsys.Open(name, flag, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s.count = uint32(len(body) / kind.entry)
	s.crc = crc32.Checksum(body, castagnoli)
	if fresh := body[have*kind.entry:]; len(fresh) > 0 {
		if _, err := f.WriteAt(fresh, int64(entriesStart+have*kind.entry)); err != nil {
			return err
		}
	}
	if _, err = f.WriteAt(s.encode(kind, base), int64(s.sequence%2)*slotStride); err != nil || !sync {
		return err
	}
	return f.Sync()
}

func encodeOffsets(offsets []indexEntry) []byte {
	b := make([]byte, 0, len(offsets)*entryBytes)
	for _, e := range offsets {
		b = binary.BigEndian.AppendUint32(b, e.rel)
		b = binary.BigEndian.AppendUint32(b, e.pos)
	}
	return b
}

func decodeOffsets(b []byte) []indexEntry {
	offsets := make([]indexEntry, len(b)/entryBytes)
	for i := range offsets {
		offsets[i] = indexEntry{binary.BigEndian.Uint32(b[i*entryBytes:]), binary.BigEndian.Uint32(b[i*entryBytes+4:])}
	}
	return offsets
}

func encodeStamps(stamps []stamp) []byte {
	b := make([]byte, 0, len(stamps)*stampBytes)
	for _, s := range stamps {
		b = binary.BigEndian.AppendUint64(b, uint64(s.at))
		b = binary.BigEndian.AppendUint32(b, s.rel)
	}
	return b
}

func decodeStamps(b []byte) []stamp {
	stamps := make([]stamp, len(b)/stampBytes)
	for i := range stamps {
		stamps[i] = stamp{topic.Millis(binary.BigEndian.Uint64(b[i*stampBytes:])), binary.BigEndian.Uint32(b[i*stampBytes+8:])}
	}
	return stamps
}
