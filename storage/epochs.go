package storage

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// epochsName is the side file of the epoch table.
const epochsName = "epochs"

var epochsKind = kind{"wepo", 1}

// epochStart is an entry of the epoch table: the epoch's first offset in this log.
type epochStart struct {
	Epoch topic.Epoch
	Start topic.Offset
}

// epochs is the epoch table of a log: where each leader's reign begins. It is derived from the leader
// epochs of the batches, so the side file is a shortcut past reading them again and never the truth.
//
// An epoch ends where the next entry starts; the last one ends with the log. Readers take no lock: a
// change replaces the table as a whole.
type epochs struct {
	mu      sync.Mutex                   // held by who changes the table
	entries atomic.Pointer[[]epochStart] // both columns rise; the slice is never written to
}

func newEpochs(entries ...epochStart) *epochs {
	t := &epochs{}
	t.entries.Store(&entries)
	return t
}

func (t *epochs) load() []epochStart { return *t.entries.Load() }

// Assign says that the batch at an offset is of an epoch. An epoch that the table has already changes
// nothing; one below the last does neither: the log refuses such a batch before.
func (t *epochs) Assign(e topic.Epoch, start topic.Offset) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := t.load()
	if e < 0 {
		return false
	}
	if n := len(entries); n > 0 && e <= entries[n-1].Epoch {
		return false
	}
	// Entries that begin at or behind the offset spoke of batches that are not there any more.
	entries = append(slices.Clone(below(entries, start)), epochStart{e, start})
	t.entries.Store(&entries)
	return true
}

// below is the entries that start below an offset.
func below(entries []epochStart, offset topic.Offset) []epochStart {
	n := sort.Search(len(entries), func(i int) bool { return entries[i].Start >= offset })
	return entries[:n]
}

// Last is the newest epoch, NoEpoch when there is none.
func (t *epochs) Last() topic.Epoch {
	entries := t.load()
	if len(entries) == 0 {
		return topic.NoEpoch
	}
	return entries[len(entries)-1].Epoch
}

// EndOf finds the largest epoch that is not above e and says where it ends. logStart and logEnd are
// the log's. When the table has no such epoch, the answer is NoEpoch and logStart.
func (t *epochs) EndOf(e topic.Epoch, logStart, logEnd topic.Offset) topic.Mark {
	entries := t.load()
	next := sort.Search(len(entries), func(i int) bool { return entries[i].Epoch > e })
	if next == 0 {
		return topic.Mark{Epoch: topic.NoEpoch, End: logStart}
	}
	mark := topic.Mark{Epoch: entries[next-1].Epoch, End: logEnd}
	if next < len(entries) {
		// The entry kept from below the log's start may end below it: nothing of that epoch is left.
		mark.End = max(entries[next].Start, logStart)
	}
	return mark
}

// EpochAt is the epoch of the batch that holds an offset, NoEpoch when the table begins later.
func (t *epochs) EpochAt(offset topic.Offset) topic.Epoch {
	entries := below(t.load(), offset+1)
	if len(entries) == 0 {
		return topic.NoEpoch
	}
	return entries[len(entries)-1].Epoch
}

// TruncateTo forgets what begins at or behind the new end of the log.
func (t *epochs) TruncateTo(end topic.Offset) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := t.load()
	kept := below(entries, end)
	if len(kept) == len(entries) {
		return false
	}
	kept = slices.Clip(kept)
	t.entries.Store(&kept)
	return true
}

// AdvanceTo forgets what ended below the new start of the log, but for the newest entry that begins
// below it: a follower that was away for longer than the retention still asks for it.
func (t *epochs) AdvanceTo(start topic.Offset) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := t.load()
	gone := len(below(entries, start)) - 1
	if gone <= 0 {
		return false
	}
	kept := slices.Clone(entries[gone:])
	t.entries.Store(&kept)
	return true
}

// Reset empties the table.
func (t *epochs) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries.Store(&[]epochStart{})
}

func encodeEpochs(entries []epochStart) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(entries))) //nolint:gosec // an epoch is 32 bits
	for _, e := range entries {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch)) //nolint:gosec // as bits
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start)) //nolint:gosec // as bits
	}
	return b
}

func decodeEpochs(b []byte) ([]epochStart, error) {
	if len(b) < 4 || (len(b)-4)%12 != 0 || int64(binary.BigEndian.Uint32(b)) != int64(len(b)-4)/12 {
		return nil, fmt.Errorf("%w: epoch table of %d bytes", errUnreadable, len(b))
	}
	last := epochStart{topic.NoEpoch, -1}
	entries := make([]epochStart, 0, (len(b)-4)/12)
	for b = b[4:]; len(b) > 0; b = b[12:] {
		e := epochStart{topic.Epoch(binary.BigEndian.Uint32(b)), topic.Offset(binary.BigEndian.Uint64(b[4:]))} //nolint:gosec // checked next
		if e.Epoch <= last.Epoch || e.Start <= last.Start {
			return nil, fmt.Errorf("%w: epoch table does not rise: %v after %v", errUnreadable, e, last)
		}
		entries, last = append(entries, e), e
	}
	return entries, nil
}

// saveEpochs writes the side file, durably.
func saveEpochs(fsys vfs.FS, dir string, t *epochs) error {
	return writeSmall(fsys, filepath.Join(dir, epochsName), epochsKind, encodeEpochs(t.load()))
}

// loadEpochs reads the side file. [missing] says of its error that the table is to be rebuilt.
func loadEpochs(fsys vfs.FS, dir string) (*epochs, error) {
	b, err := readSmall(fsys, filepath.Join(dir, epochsName), epochsKind)
	if err != nil {
		return nil, err
	}
	entries, err := decodeEpochs(b)
	if err != nil {
		return nil, err
	}
	return newEpochs(entries...), nil
}
