package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlog/weir/storage/vfs"
)

// A small file is replaced as a whole, so it is there as it was before or as it is after, and a
// checksum tells whether a disk kept it. Nothing that cannot be rebuilt stands in one: unreadable is
// the same as missing.
//
//	 0  4  magic, which names the kind of file
//	 4  2  version of the payload, big endian
//	 6  2  0
//	 8  4  bytes of payload, big endian
//	12  4  CRC-32C of all of the file but these four bytes
//	16     payload
const smallHeaderBytes = 16

// mostSmallBytes bounds what a damaged length may ask for.
const mostSmallBytes = 256 << 20

// asideSuffix marks a file that is being written. A recovery removes what it finds of them.
const asideSuffix = ".tmp"

// kind of a small file.
type kind struct {
	magic   string // four bytes
	version uint16
}

// errUnreadable says that a small file is there but is damaged, of another kind or of a newer version.
var errUnreadable = errors.New("unreadable")

// missing says that a small file has nothing to give and is to be rebuilt.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnreadable) || errors.Is(err, vfs.ErrTooLarge)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeSmall puts the header in front of a payload.
func encodeSmall(k kind, payload []byte) []byte {
	b := make([]byte, smallHeaderBytes, smallHeaderBytes+len(payload))
	copy(b, k.magic)
	binary.BigEndian.PutUint16(b[4:], k.version)
	binary.BigEndian.PutUint32(b[8:], uint32(len(payload))) //nolint:gosec // bounded by writeSmall
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[12:], smallSum(b))
	return b
}

func smallSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[smallHeaderBytes:])
}

// decodeSmall checks a small file and returns its payload, which is a part of b.
func decodeSmall(k kind, b []byte) ([]byte, error) {
	switch {
	case len(b) < smallHeaderBytes:
		return nil, fmt.Errorf("%w: %d bytes", errUnreadable, len(b))
	case string(b[:4]) != k.magic:
		return nil, fmt.Errorf("%w: begins with %q, not %q", errUnreadable, b[:4], k.magic)
	case binary.BigEndian.Uint32(b[8:]) != uint32(len(b)-smallHeaderBytes): //nolint:gosec // a file of at most mostSmallBytes
		return nil, fmt.Errorf("%w: %d bytes do not fit its length", errUnreadable, len(b))
	case binary.BigEndian.Uint32(b[12:]) != smallSum(b):
		return nil, fmt.Errorf("%w: the checksum does not fit", errUnreadable)
	case binary.BigEndian.Uint16(b[4:]) != k.version:
		return nil, fmt.Errorf("%w: version %d, not %d", errUnreadable, binary.BigEndian.Uint16(b[4:]), k.version)
	}
	return b[smallHeaderBytes:], nil
}

// readSmall reads a small file. [missing] says of its error that the file is to be rebuilt.
func readSmall(fsys vfs.FS, name string, k kind) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, name, mostSmallBytes)
	if err != nil {
		return nil, err
	}
	payload, err := decodeSmall(k, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return payload, nil
}

// writeSmall replaces a small file, durably. One that nobody would read is not written: the error has
// vfs.ErrTooLarge in its chain, and the old one stays.
func writeSmall(fsys vfs.FS, name string, k kind, payload []byte) error {
	if len(payload) > mostSmallBytes-smallHeaderBytes {
		return fmt.Errorf("%w: %s would have %d bytes", vfs.ErrTooLarge, name, len(payload))
	}
	return replaceFile(fsys, name, encodeSmall(k, payload))
}

// replaceFile gives a file a new content, durably: the old one is there until the new one is. After an
// error that is a *doubtError either may be there, after another the old one is. A file with asideSuffix
// may be left.
func replaceFile(fsys vfs.FS, name string, content []byte) error {
	aside := name + asideSuffix
	f, err := fsys.Open(aside, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = fsys.Rename(aside, name)
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		return &doubtError{err}
	}
	return nil
}

// doubtError says that nobody knows what is on disk now. It is never a mere want of room.
type doubtError struct{ err error }

func (e *doubtError) Error() string { return e.err.Error() }
func (e *doubtError) Unwrap() error { return e.err }

// removeAsides removes what interrupted writes left in a directory, and says what that was.
func removeAsides(fsys vfs.FS, dir string) (removed []string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), asideSuffix) {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return removed, err
		}
		removed = append(removed, entry.Name())
	}
	return removed, nil
}
