package storage

import (
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// An index is a hint. It says near which byte of a segment an offset is, and is checked against the
// batch that stands there each time it is used; what does not fit is made anew from the batches.
const (
	indexEveryBytes = 4 << 10 // of the log, between two entries of the offset index
	stampEvery      = 16      // entries of the offset index for one of the time index
)

// indexEntry says that the batch at byte pos of the segment has base offset base+rel.
type indexEntry struct{ rel, pos uint32 }

// stamp says that no record up to and with the batch at base+rel has a timestamp above at.
type stamp struct {
	at  topic.Millis
	rel uint32
}

// indexEntries of one segment, of both indexes. Nobody writes to them once they are published.
type indexEntries struct {
	offsets []indexEntry // rising in both fields
	stamps  []stamp      // rising in both fields
	proved  bool         // made from the batches by this process, and not read from a file
}

const entriesOverhead = 64

func (e *indexEntries) bytes() int64 {
	return int64(cap(e.offsets))*8 + int64(cap(e.stamps))*16 + entriesOverhead
}

// floor is the last entry at or below rel, or the segment's beginning.
func (e *indexEntries) floor(rel uint32) indexEntry {
	i := sort.Search(len(e.offsets), func(i int) bool { return e.offsets[i].rel > rel })
	if i == 0 {
		return indexEntry{}
	}
	return e.offsets[i-1]
}

// before is an offset, relative to the segment's, below which no record's timestamp reaches t.
func (e *indexEntries) before(t topic.Millis) uint32 {
	i := sort.Search(len(e.stamps), func(i int) bool { return e.stamps[i].at >= t })
	if i == 0 {
		return 0
	}
	return e.stamps[i-1].rel
}

// below are the entries for batches that begin before byte pos.
func (e *indexEntries) below(pos int64) *indexEntries {
	n := sort.Search(len(e.offsets), func(i int) bool { return int64(e.offsets[i].pos) >= pos })
	if n == len(e.offsets) {
		return e
	}
	rel := e.offsets[n].rel // of the first that is left out
	m := sort.Search(len(e.stamps), func(i int) bool { return e.stamps[i].rel >= rel })
	// Clipped, so that the next one appended goes to new memory: readers may still hold the old.
	return &indexEntries{e.offsets[:n:n], e.stamps[:m:m], e.proved}
}

// sound says whether entries that were read from a file could be of a segment of this size.
func (e *indexEntries) sound(size int64) bool {
	if !slices.IsSortedFunc(e.offsets, func(a, b indexEntry) int {
		if a.rel < b.rel && a.pos < b.pos {
			return -1
		}
		return 1
	}) {
		return false
	}
	if !slices.IsSortedFunc(e.stamps, func(a, b stamp) int {
		if a.rel < b.rel && a.at < b.at {
			return -1
		}
		return 1
	}) {
		return false
	}
	return len(e.offsets) == 0 || int64(e.offsets[len(e.offsets)-1].pos) < size
}

// facts are what is known of a segment beside its batches.
type facts struct {
	covers  int64        // the bytes of the segment that this is about
	next    topic.Offset // the offset behind them
	largest topic.Millis // largest timestamp of a record; NoTimestamp when there is none
	first   topic.Millis // the node's clock at the first append; NoTimestamp when not known
	last    topic.Millis // the node's clock at the last append; NoTimestamp when not known
}

func noFacts(base topic.Offset) facts {
	return facts{next: base, largest: topic.NoTimestamp, first: topic.NoTimestamp, last: topic.NoTimestamp}
}

// indexer makes the entries of a segment, batch by batch. One goroutine uses it.
type indexer struct {
	base topic.Offset
	facts
	made indexEntries
}

func newIndexer(base topic.Offset) *indexer {
	return &indexer{base: base, facts: noFacts(base), made: indexEntries{proved: true}}
}

// add takes note of the batch that stands at x.covers, and says whether that made an entry.
func (x *indexer) add(h *batch.Header) bool {
	pos := x.covers
	x.covers += int64(h.Size())
	x.next = h.Next()
	x.largest = max(x.largest, h.MaxTimestamp)
	rel := h.BaseOffset - x.base
	if n := len(x.made.offsets); rel > math.MaxUint32 || pos > math.MaxUint32 ||
		n > 0 && pos-int64(x.made.offsets[n-1].pos) < indexEveryBytes || n == 0 && pos < indexEveryBytes {
		return false
	}
	x.made.offsets = append(x.made.offsets, indexEntry{uint32(rel), uint32(pos)})
	if len(x.made.offsets)%stampEvery == 0 {
		if m := len(x.made.stamps); m == 0 || x.largest > x.made.stamps[m-1].at {
			x.made.stamps = append(x.made.stamps, stamp{x.largest, uint32(rel)})
		}
	}
	return true
}

// skip takes note that the bytes up to pos are damaged.
func (x *indexer) skip(pos int64, next topic.Offset) {
	x.covers, x.next = pos, next
}

// snapshot is what a reader may keep while the indexer goes on.
func (x *indexer) snapshot() *indexEntries {
	made := x.made
	return &made
}

// index of a segment, in memory while somebody needs it and in two files.
type index struct {
	loaded atomic.Pointer[indexEntries] // nil while not in memory
	used   atomic.Bool                  // since the last look of an eviction

	mu    sync.Mutex // held while loading, making anew and writing
	saved saved      // what the files hold; guarded by mu
}

// forget drops the entries from memory; the next reader loads them.
func (x *index) forget() { x.loaded.Store(nil) }
