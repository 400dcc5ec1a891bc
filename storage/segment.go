package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

const logSuffix = ".log"

// segment is a piece of the log in one file: batch after batch from offset base on, up to the next
// segment's base. The last segment of a log is the active one; the others are closed and change no more.
type segment struct {
	base  topic.Offset
	stem  string // the path of its files without the suffix
	log   *file
	size  atomic.Int64 // bytes of batches that readers may see; unknownSize until somebody asked
	index index
	facts atomic.Pointer[facts]    // of a closed segment, once somebody asked
	holes atomic.Pointer[[]damage] // damage that was met, by place; nil when there is none
}

const unknownSize = -1

// damage is a range of a segment without a sound batch.
type damage struct {
	at, to     int64        // bytes
	start, end topic.Offset // the records that are lost
}

func segmentStem(dir string, base topic.Offset) string {
	return filepath.Join(dir, fmt.Sprintf("%020d", base))
}

// parseSegmentName is the base offset in the name of a .log file.
func parseSegmentName(name string) (topic.Offset, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || base < 0 {
		return 0, false
	}
	return topic.Offset(base), true
}

// newSegment describes a segment; it touches no file.
func newSegment(fsys vfs.FS, files *Files, dir string, base topic.Offset, size int64) *segment {
	s := &segment{}
	s.describe(&file{set: files, fsys: fsys, flag: os.O_RDWR}, segmentStem(dir, base)+logSuffix, base, size)
	return s
}

// describe fills in a new segment.
func (s *segment) describe(f *file, name string, base topic.Offset, size int64) {
	f.name = name
	s.base, s.stem, s.log = base, name[:len(name)-len(logSuffix)], f
	s.size.Store(size)
}

// again describes the same files anew, for a segment that was cut to a size.
func (s *segment) again(size int64) *segment {
	fresh := &segment{base: s.base, stem: s.stem, log: s.log}
	fresh.size.Store(size)
	return fresh
}

// bytes is the size of the segment's batches.
func (s *segment) bytes() (int64, error) {
	if size := s.size.Load(); size != unknownSize {
		return size, nil
	}
	f, err := s.log.use()
	if err != nil {
		return 0, err
	}
	defer s.log.release()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	// Only a closed segment's size is ever unknown, and it does not change.
	s.size.CompareAndSwap(unknownSize, size)
	return size, nil
}

// damageAt is the known damage that begins at a byte.
func (s *segment) damageAt(at int64) (damage, bool) {
	known := s.holes.Load()
	if known == nil {
		return damage{}, false
	}
	i := sort.Search(len(*known), func(i int) bool { return (*known)[i].at >= at })
	if i < len(*known) && (*known)[i].at == at {
		return (*known)[i], true
	}
	return damage{}, false
}

// addDamage remembers damage, and says whether it was new.
func (s *segment) addDamage(d damage) bool {
	for {
		old := s.holes.Load()
		var known []damage
		if old != nil {
			known = *old
		}
		i, there := slices.BinarySearchFunc(known, d, func(a, b damage) int { return int(a.at - b.at) })
		if there {
			return false
		}
		more := slices.Insert(slices.Clone(known), i, d)
		if s.holes.CompareAndSwap(old, &more) {
			return true
		}
	}
}

// loadIndex returns the entries of a segment of this size as the files have them. Entries that speak
// of less than the segment are returned with ok false, for a recovery to go on from.
func (s *segment) loadIndex() (x *indexer, held saved, err error) {
	offsets, offsetBody, ok, err := readIndexFile(s.log.fsys, s.stem+offsetIndex.suffix, offsetIndex, s.base)
	if err != nil || !ok {
		return nil, saved{}, err
	}
	times, timeBody, ok, err := readIndexFile(s.log.fsys, s.stem+timeIndex.suffix, timeIndex, s.base)
	if err != nil || !ok || times.facts != offsets.facts {
		return nil, saved{}, err
	}
	x = &indexer{base: s.base, facts: offsets.facts}
	x.made = indexEntries{offsets: decodeOffsets(offsetBody), stamps: decodeStamps(timeBody)}
	if !x.made.sound(x.covers) {
		return nil, saved{}, nil
	}
	return x, saved{
		sequence: max(offsets.sequence, times.sequence),
		offsets:  len(x.made.offsets),
		stamps:   len(x.made.stamps),
	}, nil
}

// saveIndex writes the entries below what the facts cover. The index's lock is held. Without sync a
// power cut may cost them.
func (s *segment) saveIndex(about facts, made *indexEntries, sync bool) error {
	made = made.below(about.covers)
	held := &s.index.saved
	held.offsets = min(held.offsets, len(made.offsets))
	held.stamps = min(held.stamps, len(made.stamps))
	head := slot{facts: about, sequence: held.sequence + 1}
	fsys := s.log.fsys
	err := writeIndexFile(fsys, s.stem+offsetIndex.suffix, offsetIndex, s.base, head, encodeOffsets(made.offsets), held.offsets, sync)
	if err != nil {
		return err
	}
	err = writeIndexFile(fsys, s.stem+timeIndex.suffix, timeIndex, s.base, head, encodeStamps(made.stamps), held.stamps, sync)
	if err != nil {
		return err
	}
	*held = saved{sequence: head.sequence, offsets: len(made.offsets), stamps: len(made.stamps)}
	return nil
}

// saveCutIndex writes the entries of a segment that was cut, durably and before it grows again: an old
// index that a power cut brings back would seem to fit. Without room for it there is none.
func (l *Log) saveCutIndex(s *segment, about facts, made *indexEntries) error {
	err := s.saveIndex(about, made, true)
	if !outOfRoom(err) {
		return l.hint(err)
	}
	s.index.saved = saved{sequence: s.index.saved.sequence}
	for _, suffix := range []string{offsetIndex.suffix, timeIndex.suffix} {
		if err := l.fsys.Remove(s.stem + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return l.fail("remove an index", err)
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return l.fail("sync directory "+l.dir, err)
	}
	return nil
}

// buildIndex makes the entries anew from the batches. When the last of them was appended is not known
// any more; it was before now, and that is enough to hold timestamps from the future to.
func (s *segment) buildIndex(size int64, limit topic.Offset) (*indexer, error) {
	f, err := s.log.use()
	if err != nil {
		return nil, err
	}
	defer s.log.release()
	w := walk{file: f, size: size, expect: s.base, limit: limit}
	defer w.close()
	x := newIndexer(s.base)
	x.last = topic.Millis(time.Now().UnixMilli())
	for {
		h, _, err := w.next()
		switch {
		case err == nil:
			x.add(&h)
		case errors.Is(err, io.EOF):
			return x, nil
		case isUnsound(err):
			next, err := w.resync()
			if err != nil {
				return nil, err
			}
			x.skip(w.at, next)
		default:
			return nil, err
		}
	}
}
