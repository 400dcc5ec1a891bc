package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// producersSuffix ends the name of a snapshot of the producer table: the offset up to which it knows
// the log, as in the name of a segment.
const producersSuffix = ".producers"

var producersKind = kind{"wprd", 1}

const (
	producerHeaderBytes = 4 + 8 + 4         // epoch, end, entries
	producerEntryBytes  = 8 + 2 + 4 + 8 + 2 // id, epoch, next, at, batches
	producerBatchBytes  = 8 + 8 + 4 + 4 + 2 // base, timestamp, first, span, epoch
)

func producersName(end topic.Offset) string {
	return fmt.Sprintf("%020d%s", int64(end), producersSuffix)
}

// parseProducersName reads what producersName wrote.
func parseProducersName(name string) (topic.Offset, bool) {
	digits, ok := strings.CutSuffix(name, producersSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	end, err := strconv.ParseInt(digits, 10, 64)
	return topic.Offset(end), err == nil && end >= 0
}

// encode writes the table as it stands for a log that ends at mark, by producer id. What is staged is
// not in the log, and left out.
func (p *Producers) encode(mark topic.Mark) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	plain, keyed := p.unstaged()
	be := binary.BigEndian
	b := be.AppendUint32(nil, uint32(mark.Epoch))              //nolint:gosec // as bits
	b = be.AppendUint64(b, uint64(mark.End))                   //nolint:gosec // as bits
	b = be.AppendUint32(b, uint32(len(plain)+len(keyed)))      //nolint:gosec // bounded by memory
	for _, table := range []map[int64]producer{plain, keyed} { // keyed ids are the larger ones
		for _, id := range slices.Sorted(maps.Keys(table)) {
			b = table[id].append(b, id)
		}
	}
	return b
}

// unstaged is both tables without what is staged.
func (p *Producers) unstaged() (plain, keyed map[int64]producer) {
	plain, keyed = p.plain.byID, p.keyed.byID
	if len(p.staged) == 0 {
		return plain, keyed
	}
	plain, keyed = maps.Clone(plain), maps.Clone(keyed)
	for _, u := range slices.Backward(p.staged) {
		table := plain
		if Keyed(u.id) {
			table = keyed
		}
		if u.known {
			table[u.id] = u.was
		} else {
			delete(table, u.id)
		}
	}
	return plain, keyed
}

func (e producer) append(b []byte, id int64) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, uint64(id))          //nolint:gosec // as bits
	b = be.AppendUint16(b, uint16(e.epoch))     //nolint:gosec // as bits
	b = be.AppendUint32(b, uint32(e.next))      //nolint:gosec // as bits
	b = be.AppendUint64(b, uint64(e.at))        //nolint:gosec // as bits
	b = be.AppendUint16(b, uint16(e.batches())) //nolint:gosec // bounded by KeyBatches
	for i := range e.batches() {
		s := e.first
		if i > 0 {
			s = e.more[i-1]
		}
		b = be.AppendUint64(b, uint64(s.base))      //nolint:gosec // as bits
		b = be.AppendUint64(b, uint64(s.timestamp)) //nolint:gosec // as bits
		b = be.AppendUint32(b, uint32(s.first))     //nolint:gosec // as bits
		b = be.AppendUint32(b, uint32(s.span))      //nolint:gosec // as bits
		b = be.AppendUint16(b, uint16(s.epoch))     //nolint:gosec // as bits
	}
	return b
}

// decodeProducers reads a snapshot into an empty table. Entries out of their window are left out, and
// none is younger than now: the clock may have gone back since.
func decodeProducers(b []byte, cfg ProducerConfig, now time.Time) (*Producers, topic.Mark, error) {
	damaged := func(what string) (*Producers, topic.Mark, error) {
		return nil, topic.Mark{}, fmt.Errorf("%w: producer table: %s", errUnreadable, what)
	}
	be := binary.BigEndian
	if len(b) < producerHeaderBytes {
		return damaged("too short")
	}
	mark := topic.Mark{Epoch: topic.Epoch(be.Uint32(b)), End: topic.Offset(be.Uint64(b[4:]))} //nolint:gosec // as bits
	count := int64(be.Uint32(b[12:]))
	b = b[producerHeaderBytes:]
	if count > int64(len(b)/producerEntryBytes) {
		return damaged("more entries than bytes")
	}
	found := make(map[int64]producer, count)
	for range count {
		if len(b) < producerEntryBytes {
			return damaged("cut off")
		}
		id := int64(be.Uint64(b)) //nolint:gosec // as bits
		entry := producer{
			epoch: int16(be.Uint16(b[8:])),                        //nolint:gosec // as bits
			next:  int32(be.Uint32(b[10:])),                       //nolint:gosec // as bits
			at:    min(int64(be.Uint64(b[14:])), now.UnixMilli()), //nolint:gosec // as bits
		}
		batches := int(be.Uint16(b[22:]))
		b = b[producerEntryBytes:]
		if batches < 1 || len(b) < batches*producerBatchBytes {
			return damaged("cut off")
		}
		for i := range batches {
			s := stored{
				base:      topic.Offset(be.Uint64(b)),     //nolint:gosec // as bits
				timestamp: topic.Millis(be.Uint64(b[8:])), //nolint:gosec // as bits
				first:     int32(be.Uint32(b[16:])),       //nolint:gosec // as bits
				span:      int32(be.Uint32(b[20:])),       //nolint:gosec // as bits
				epoch:     int16(be.Uint16(b[24:])),       //nolint:gosec // as bits
			}
			if i == 0 {
				entry.first = s
			} else {
				entry.more = append(entry.more, s)
			}
			b = b[producerBatchBytes:]
		}
		found[id] = entry
	}
	if len(b) > 0 {
		return damaged("bytes left over")
	}
	p := NewProducers(cfg)
	plain, keyed := map[int64]producer{}, map[int64]producer{}
	for id, entry := range found {
		if Keyed(id) {
			keyed[id] = entry
		} else {
			plain[id] = entry
		}
	}
	p.plain.fill(plain)
	p.keyed.fill(keyed)
	p.Expire(now)
	return p, mark, nil
}

// loadProducers reads the newest snapshot that ends at or below most, and for which fits, which
// compares with the epoch table, is true; those above it that do not fit are removed. What follows in
// the log from the mark's end on is still to be applied. Without a readable snapshot the table is empty
// and the mark that of an empty log.
func loadProducers(fsys vfs.FS, dir string, cfg ProducerConfig, most topic.Offset, now time.Time, fits func(topic.Mark) bool) (*Producers, topic.Mark, error) {
	// After an orderly close there is one that ends where the log does: no need to list a large directory.
	if p, mark, err := loadSnapshot(fsys, dir, cfg, most, now, fits); p != nil || err != nil {
		return p, mark, err
	}
	ends, err := listProducers(fsys, dir)
	if err != nil {
		return nil, topic.Mark{}, err
	}
	for _, end := range slices.Backward(ends) {
		if end >= most {
			continue
		}
		if p, mark, err := loadSnapshot(fsys, dir, cfg, end, now, fits); p != nil || err != nil {
			return p, mark, err
		}
	}
	return NewProducers(cfg), topic.Mark{Epoch: topic.NoEpoch}, nil
}

// loadSnapshot reads the snapshot that ends at an offset. The table is nil when there is none that can
// be used.
func loadSnapshot(fsys vfs.FS, dir string, cfg ProducerConfig, end topic.Offset, now time.Time, fits func(topic.Mark) bool) (*Producers, topic.Mark, error) {
	name := filepath.Join(dir, producersName(end))
	b, err := readSmall(fsys, name, producersKind)
	if missing(err) {
		return nil, topic.Mark{}, nil
	}
	if err != nil {
		return nil, topic.Mark{}, err
	}
	p, mark, err := decodeProducers(b, cfg, now)
	switch {
	case errors.Is(err, errUnreadable):
		return nil, topic.Mark{}, nil
	case err != nil:
		return nil, topic.Mark{}, err
	case mark.End == end && fits(mark):
		return p, mark, nil
	}
	p.Clear() // it took its keys from the budget
	// It is of another history, and later on it might seem to fit.
	if err := fsys.Remove(name); err != nil {
		return nil, topic.Mark{}, err
	}
	return nil, topic.Mark{}, fsys.SyncDir(dir)
}

// listProducers lists the ends of the snapshots in a directory, lowest first.
func listProducers(fsys vfs.FS, dir string) (ends []topic.Offset, err error) {
	files, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if end, ok := parseProducersName(file.Name()); ok {
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	return ends, nil
}

// keptSnapshots is how many snapshots are kept at least: one may turn out to be damaged.
const keptSnapshots = 2

// pruneProducers removes the snapshots that end above most, which speak of a log that was cut. Of the
// others it removes those that nobody will need: the log is cut no deeper than to hw, and deleted no
// farther, so the newest one that ends at or below it is enough. Durable once the caller has synced
// the directory.
func pruneProducers(fsys vfs.FS, dir string, most, hw topic.Offset) error {
	ends, err := listProducers(fsys, dir)
	if err != nil {
		return err
	}
	sound := sort.Search(len(ends), func(i int) bool { return ends[i] > most })
	first := sort.Search(sound, func(i int) bool { return ends[i] > hw }) - 1
	first = max(0, min(first, sound-keptSnapshots))
	for i, end := range ends {
		if i >= first && i < sound {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, producersName(end))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
