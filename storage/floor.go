package storage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// floorName is the side file of the synced floor.
const floorName = "synced"

// floorMark is a place in the log below which everything was synced once.
type floorMark struct {
	End     topic.Offset // the offset behind the last batch that was synced
	Segment topic.Offset // the first offset of the segment that End lies in, or ends
	Bytes   int64        // how much of that segment was synced
}

// floor keeps the synced floor: what recovery may not cut. It is written after each sync of the log
// and mostly not synced itself, so after kill -9 it is exact and after a power cut perhaps older, which
// is safe: everything below an older floor was synced too. What must never happen is a floor that is
// too high, so a cut of the log lowers it first, durably, and in both slots.
//
// The file has two slots of 64 bytes, at 0 and at 4096 so that no page holds both. They are written in
// turn, and the newest that its checksum fits counts.
//
//	 0  8  magic and version, "weirfl\x00\x01"
//	 8  8  number of the write, big endian, from 1; odd ones go to the first slot
//	16  8  end
//	24  8  first offset of the segment
//	32  8  bytes of the segment
//	40 20  0
//	60  4  CRC-32C of the 60 bytes before
//
// The file is opened with the first write and let go by rest. Not safe for concurrent use: it is the syncer's.
type floor struct {
	fs     vfs.FS
	name   string
	file   vfs.File // nil while resting
	writes uint64   // the number of the newest write
	mark   floorMark
	known  bool // mark says something
	doubt  bool // the last write failed: the file has mark, or the one before, which is lower
	// unsynced is how many bytes of log were synced since the floor itself was; the log decides by it.
	unsynced int64
}

const (
	floorMagic      = "weirfl\x00\x01"
	floorSlotBytes  = 64
	floorSlotStride = 4096
	// floorSyncBytes is how much log may be synced before the floor is, too. A power cut costs recovery
	// at most a scan of this much.
	floorSyncBytes = 4 << 20
)

// openFloor reads the floor of a log. A missing or damaged one is not an error: it is not known then.
func openFloor(fsys vfs.FS, name string) (*floor, error) {
	f := &floor{fs: fsys, name: name}
	file, err := fsys.Open(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	for slot := range int64(2) {
		var b [floorSlotBytes]byte
		if _, err := file.ReadAt(b[:], slot*floorSlotStride); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			return nil, errors.Join(err, file.Close())
		}
		if number, mark, ok := decodeFloor(&b); ok && number > f.writes {
			f.writes, f.mark, f.known = number, mark, true
		}
	}
	return f, file.Close()
}

func encodeFloor(number uint64, m floorMark) (b [floorSlotBytes]byte) {
	copy(b[:], floorMagic)
	binary.BigEndian.PutUint64(b[8:], number)
	binary.BigEndian.PutUint64(b[16:], uint64(m.End))     //nolint:gosec // as bits
	binary.BigEndian.PutUint64(b[24:], uint64(m.Segment)) //nolint:gosec // as bits
	binary.BigEndian.PutUint64(b[32:], uint64(m.Bytes))   //nolint:gosec // as bits
	binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

func decodeFloor(b *[floorSlotBytes]byte) (number uint64, m floorMark, ok bool) {
	if string(b[:8]) != floorMagic || binary.BigEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return 0, floorMark{}, false
	}
	number = binary.BigEndian.Uint64(b[8:])
	m = floorMark{
		End:     topic.Offset(binary.BigEndian.Uint64(b[16:])), //nolint:gosec // checked below
		Segment: topic.Offset(binary.BigEndian.Uint64(b[24:])), //nolint:gosec // checked below
		Bytes:   int64(binary.BigEndian.Uint64(b[32:])),        //nolint:gosec // checked below
	}
	return number, m, number > 0 && m.Segment >= 0 && m.End >= m.Segment && m.Bytes >= 0
}

// Mark is the floor, and whether one is known.
func (f *floor) Mark() (floorMark, bool) { return f.mark, f.known }

// Raise writes the floor after a sync of the log; synced is how many bytes of log that sync was the
// first to cover. It syncs the floor itself after each floorSyncBytes of them.
func (f *floor) Raise(m floorMark, synced int64) error {
	if err := f.write(m); err != nil {
		return err
	}
	f.unsynced += synced
	if f.unsynced >= floorSyncBytes {
		return f.Sync()
	}
	return nil
}

// Lower writes the floor before a cut of the log. When it returns no power cut brings the old one back,
// neither now nor after later writes that tear.
func (f *floor) Lower(m floorMark) error {
	for range 2 { // one in each slot
		if err := f.write(m); err != nil {
			return err
		}
	}
	return f.Sync()
}

// Sync makes the floor as it was last written durable; its name, too, when the caller syncs the directory.
func (f *floor) Sync() error {
	f.unsynced = 0
	if err := f.wake(); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return &doubtError{err} // of two slots, nobody knows which are on disk
	}
	return nil
}

func (f *floor) write(m floorMark) error {
	if err := f.wake(); err != nil {
		return err
	}
	b := encodeFloor(f.writes+1, m)
	f.mark, f.known = m, true
	if _, err := f.file.WriteAt(b[:], int64(f.writes%2)*floorSlotStride); err != nil {
		f.writes += 2 // it may be there all the same; the next write goes over it
		f.doubt = true
		return err
	}
	f.writes++
	f.doubt = false
	return nil
}

func (f *floor) wake() (err error) {
	if f.file == nil {
		f.file, err = f.fs.Open(f.name, os.O_RDWR|os.O_CREATE, 0o644)
	}
	return err
}

// Rest closes the file until the next write.
func (f *floor) Rest() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
