package storage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Log is one partition's log. The methods say who may call them; see the package's doc.
type Log struct {
	cfg      Config // but for Settings, which are in settings
	fsys     vfs.FS
	dir      string
	files    *Files
	ownFiles bool // nobody else uses files

	settings  atomic.Pointer[topic.Settings]
	failed    atomic.Pointer[error] // the error that ended the log
	view      atomic.Pointer[view]  // changed with structure held
	start     atomic.Int64          // the log's first offset; changed with structure held
	end       atomic.Int64          // the offset behind the last record; the owner's to change
	synced    atomic.Int64          // below it everything is durable; changed with syncing held
	committed atomic.Int64          // the high watermark, as the cleaner was last told; 0 when it was not
	cuts      atomic.Uint64         // odd while the log is being cut, so that readers look again
	counts    counts

	epochs    *epochs
	producers *Producers

	// structure guards the list of segments, the log's start and the clean mark. It is never held over
	// a sync of the active segment, so that deletions do not wait for the disk's queue. Whoever takes both
	// locks takes syncing first.
	structure sync.Mutex
	marked    atomic.Bool // the clean mark stands; changed with structure held

	// syncing is held by who syncs the active segment, moves the floor or writes the active segment's
	// index. An fsync that fails tells one caller only, so there is one at a time.
	syncing    sync.Mutex
	floor      *floor
	raised     int64         // bytes of the active segment below the floor; guarded by syncing
	savedEpoch *[]epochStart // the table that the side file has; guarded by syncing
	unnamed    bool          // the directory is to be synced before the floor rises; guarded by syncing
	fillAfter  time.Time     // no filling before this time; guarded by syncing

	tail  tail
	room  filled
	group atomic.Int64 // bytes that a sync covers of late, on average; changed with syncing held

	// The owner's alone.
	idx      *indexer // of the active segment; nil until somebody appends
	headers  []batch.Header
	snapshot int64 // bytes appended since the last snapshot of the producer table

	pass pass // the cleaner's alone
}

// tail is where the owner's last append ended, for the syncer.
type tail struct {
	mu       sync.Mutex // held for a moment by owner and syncer
	mark     topic.Mark
	segment  *segment
	about    facts
	snapshot *tableSnapshot // of the producer table, waiting to be written
}

// tableSnapshot is the producer table for a log that ends at an offset, encoded.
type tableSnapshot struct {
	end     topic.Offset
	payload []byte
}

// counts are kept for [Log.Stats].
type counts struct {
	appends, syncs, syncNanos, damaged, deleted, cuts, indexes atomic.Int64
}

// State is what a log was found to be when it was opened.
type State int8

// The states.
const (
	Clean  State = iota // closed in order
	Synced              // not closed, but all that was reported as synced is there and sound
	Lost                // something that was reported as synced is damaged or gone
)

// Recovery says what Open found and did.
type Recovery struct {
	State    State
	Promised topic.Offset // the end that was last known to be synced; 0 when that is not known
	CutBytes int64        // unsound bytes above what was synced, taken off the end
	Gaps     []topic.Gap  // ranges that were synced and are damaged, as far as the recovery saw them
	Rebuilt  []string     // side files that were missing or unreadable and were made anew
	Scanned  int64        // bytes of batches read to find the end
}

// Piece is what a read returns.
type Piece struct {
	Batches []byte       // whole, verified batches, one after the other; the caller's to keep
	Next    topic.Offset // where to go on; the offset asked for only when there was nothing to return
	Gaps    []topic.Gap  // damaged ranges that were stepped over
}

// Stats are counts for metrics. Those that end in Total only rise while the log is open.
type Stats struct {
	Bytes         int64 // of batches, as far as known: a segment counts once somebody has used it
	Segments      int
	AppendsTotal  int64
	SyncsTotal    int64
	SyncNanos     int64 // time spent in syncs, in all
	DamagedTotal  int64 // damaged ranges met by readers
	DeletedTotal  int64 // segments deleted by retention
	CutTotal      int64 // truncations
	IndexTotal    int64 // indexes that were made anew from the batches
	PreparedBytes int64 // zero-filled room behind the end
}

// Producers is the producer table. Check and Stage are the owner's.
func (l *Log) Producers() *Producers { return l.producers }

// hw is an offset below which the log is not cut any more, short of an unclean election.
func (l *Log) hw() topic.Offset { return topic.Offset(l.committed.Load()) }

// Start is the first offset of the log. It only rises, but for Reset.
func (l *Log) Start() topic.Offset { return topic.Offset(l.start.Load()) }

// End is the offset behind the last record.
func (l *Log) End() topic.Offset { return topic.Offset(l.end.Load()) }

// Synced is the offset below which everything survives a crash.
func (l *Log) Synced() topic.Offset { return topic.Offset(l.synced.Load()) }

// Mark is the epoch of the last record, NoEpoch when there is none, and End.
func (l *Log) Mark() topic.Mark {
	l.tail.mu.Lock()
	defer l.tail.mu.Unlock()
	return l.tail.mark
}

// EpochEnd finds the largest epoch that is not above e and says where it ends. The mark's epoch is
// NoEpoch, and its end the log's start, when the log knows no such epoch.
func (l *Log) EpochEnd(e topic.Epoch) topic.Mark {
	end := l.End() // before the table: an epoch that begins later is then seen to end this one
	return l.epochs.EndOf(e, l.Start(), end)
}

// EpochAt is the epoch of the record at an offset, NoEpoch when it is not known.
func (l *Log) EpochAt(offset topic.Offset) topic.Epoch { return l.epochs.EpochAt(offset) }

// Settings in force.
func (l *Log) Settings() topic.Settings { return *l.settings.Load() }

// SetConfig puts other settings in force. Any goroutine.
func (l *Log) SetConfig(s topic.Settings) { l.settings.Store(&s) }

// Stats are the counts of now. Any goroutine.
func (l *Log) Stats() Stats {
	v := l.view.Load()
	stats := Stats{
		Segments:      len(v.segments),
		AppendsTotal:  l.counts.appends.Load(),
		SyncsTotal:    l.counts.syncs.Load(),
		SyncNanos:     l.counts.syncNanos.Load(),
		DamagedTotal:  l.counts.damaged.Load(),
		DeletedTotal:  l.counts.deleted.Load(),
		CutTotal:      l.counts.cuts.Load(),
		IndexTotal:    l.counts.indexes.Load(),
		PreparedBytes: l.prepared(v),
	}
	for _, s := range v.segments {
		stats.Bytes += max(0, s.size.Load())
	}
	return stats
}

// refuse makes the error of a call that changed nothing.
func (l *Log) refuse(op string, kind fault.Kind, err error) error {
	return fault.New("storage."+op, kind, l.cfg.Path, err)
}
