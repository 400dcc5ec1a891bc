package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// cleanName is the side file that says that a log was closed in order.
const cleanName = "clean"

var cleanKind = kind{"wcln", 1}

// cleanMark is the last thing that an orderly close writes, and the first thing that the next use of
// the log takes away. As long as it stands, every other file of the log is as the close left it.
type cleanMark struct {
	Incarnation topic.Incarnation // of the process that closed the log
	Start       topic.Offset      // the log's start
	Mark        topic.Mark        // the log's end
	Segment     topic.Offset      // first offset of the last segment
	Bytes       int64             // its size
	Segments    int64             // how many segments there are
}

// writeCleanMark writes the mark, durably. Everything that it speaks of is durable before.
func writeCleanMark(fsys vfs.FS, dir string, m cleanMark) error {
	return writeSmall(fsys, filepath.Join(dir, cleanName), cleanKind, m.encode())
}

func (m cleanMark) encode() []byte {
	var b []byte
	for _, n := range []int64{
		int64(m.Incarnation), int64(m.Start), int64(m.Mark.Epoch), int64(m.Mark.End), int64(m.Segment), m.Bytes, m.Segments,
	} {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // as bits
	}
	return b
}

func decodeCleanMark(b []byte) (m cleanMark, err error) {
	if len(b) != 7*8 {
		return cleanMark{}, fmt.Errorf("%w: clean mark of %d bytes", errUnreadable, len(b))
	}
	var n [7]int64
	for i := range n {
		n[i] = int64(binary.BigEndian.Uint64(b[8*i:])) //nolint:gosec // checked below
	}
	m = cleanMark{
		Incarnation: topic.Incarnation(n[0]),
		Start:       topic.Offset(n[1]),
		Mark:        topic.Mark{Epoch: topic.Epoch(n[2]), End: topic.Offset(n[3])}, //nolint:gosec // checked here
		Segment:     topic.Offset(n[4]),
		Bytes:       n[5],
		Segments:    n[6],
	}
	if int64(m.Mark.Epoch) != n[2] || m.Mark.Epoch < topic.NoEpoch || m.Start < 0 || m.Mark.End < m.Start ||
		m.Segment < 0 || m.Mark.End < m.Segment || m.Bytes < 0 || m.Segments < 1 {
		return cleanMark{}, fmt.Errorf("%w: clean mark %+v makes no sense", errUnreadable, m)
	}
	return m, nil
}

// readCleanMark reads the mark. ok is false when there is none that can be read: the log was not
// closed in order.
func readCleanMark(fsys vfs.FS, dir string) (m cleanMark, ok bool, err error) {
	b, err := readSmall(fsys, filepath.Join(dir, cleanName), cleanKind)
	if err == nil {
		m, err = decodeCleanMark(b)
	}
	if missing(err) {
		return cleanMark{}, false, nil
	}
	return m, err == nil, err
}

// removeCleanMark takes the mark away, durably, before the first change of the log.
func removeCleanMark(fsys vfs.FS, dir string) error {
	if err := fsys.Remove(filepath.Join(dir, cleanName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(dir)
}
