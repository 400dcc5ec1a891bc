package storage

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

var errUnfinished = errors.New("not written yet")

// Log is one partition's log. The methods say who may call them; see the package's doc.
type Log struct {
	cfg    Config
	failed atomic.Pointer[error] // the error that ended the log
}

// State is what a log was found to be when it was opened.
type State int8

// The states.
const (
	Clean   State = iota // closed in order
	Synced               // not closed, but all that was reported as synced is there and sound
	Lost                 // something that was reported as synced is damaged or gone
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
	PreparedBytes int64 // zero-filled room behind the end
}

// Retained says what a pass of retention did.
type Retained struct {
	Segments int   // deleted
	Bytes    int64 // deleted
	More     bool  // the pass ended at its bound; another will find more to delete
	Held     bool  // the clock jumped ahead, so nothing was deleted for its age
}

// Open opens the log in dir, which it makes when there is none, and brings it to a sound state: after
// an orderly close in a number of steps that does not depend on the log's size, otherwise by reading
// the batches from the last place that is known to be synced. It fails only when the file system
// does, never for what a file holds.
func Open(fsys vfs.FS, dir string, cfg Config) (*Log, Recovery, error) {
	return nil, Recovery{}, errUnfinished
}

// Append writes batches at the end, all with one write. They are whole RecordBatch v2s, stamped with
// consecutive offsets from End on and with epochs that do not fall. They can be read at once, and
// survive a crash from the next Sync on. Owner only.
//
// A refusal has the kind StorageFull, and nothing of the batches is or will be in the log.
func (l *Log) Append(batches [][]byte) error { return errUnfinished }

// Sync makes durable all that was appended before the call and returns the offset behind it. One Sync
// serves everyone whose batches lie below. An error is final. Syncer only.
func (l *Log) Sync() (topic.Offset, error) { return 0, errUnfinished }

// Prepare fills room behind the end with zeros, so that coming syncs leave the file's metadata alone.
// It does something only once in some MiB, and only with flush.messages=1. When the disk has no room
// left, the error's kind is StorageFull and the next appends are refused in time. Syncer only.
func (l *Log) Prepare() error { return errUnfinished }

// Read returns whole batches from the one that holds offset from, or the next one there is, that end
// at or below offset below: at most maxBytes of them, but always one when there is one. Damaged ranges
// are stepped over and reported. It allocates what it returns.
//
// An offset below the log's start, or above below, is refused with kind OffsetRange and a
// *topic.RangeError.
func (l *Log) Read(from, below topic.Offset, maxBytes int) (Piece, error) {
	return Piece{}, errUnfinished
}

// Start is the first offset of the log. It only rises, but for Reset.
func (l *Log) Start() topic.Offset { return 0 }

// End is the offset behind the last record.
func (l *Log) End() topic.Offset { return 0 }

// Mark is the epoch of the last record and End.
func (l *Log) Mark() topic.Mark { return topic.Mark{} }

// Synced is the offset below which everything survives a crash.
func (l *Log) Synced() topic.Offset { return 0 }

// EpochEnd finds the largest epoch that is not above e and says where it ends. The mark's epoch is
// NoEpoch, and its end the log's start, when the log knows no such epoch.
func (l *Log) EpochEnd(e topic.Epoch) topic.Mark { return topic.Mark{} }

// EpochAt is the epoch of the record at an offset, NoEpoch when it is not known.
func (l *Log) EpochAt(offset topic.Offset) topic.Epoch { return topic.NoEpoch }

// OffsetForTime finds the first record below an offset whose timestamp is at or after t. When there is
// none it returns below and NoTimestamp.
func (l *Log) OffsetForTime(t topic.Millis, below topic.Offset) (topic.Offset, topic.Millis, error) {
	return 0, 0, errUnfinished
}

// Truncate cuts the log so that it ends at or below to: at the start of the batch that holds offset
// to. When it returns, the cut survives any crash. Owner only, with no Sync, Prepare, Retain or Compact running.
func (l *Log) Truncate(to topic.Offset) error { return errUnfinished }

// Reset empties the log and lets it begin, and end, at start. Durable when it returns. Owner only,
// with no Sync, Prepare, Retain or Compact running.
func (l *Log) Reset(start topic.Offset) error { return errUnfinished }

// AdvanceStart raises the log's start, durably. Records below are not readable any more; their segments go
// with the next Retain. An offset at or below Start changes nothing. The caller sees to it that start
// is not above the high watermark. Any goroutine.
func (l *Log) AdvanceStart(start topic.Offset) error { return errUnfinished }

// Roll closes the active segment when it is older than segment.ms, or when all of it is older than
// retention.ms, so that retention and compaction can reach it. Owner only.
func (l *Log) Roll(now time.Time) error { return errUnfinished }

// Rest lets go of what an idle log can do without: open files and indexes in memory. All of it comes
// back with the next call that needs it. Owner only.
func (l *Log) Rest() error { return errUnfinished }

// Retain deletes whole closed segments below the high watermark that are below the log's start, older
// than retention.ms or above retention.bytes. A pass is bounded. Cleaner only.
func (l *Log) Retain(hw topic.Offset, now time.Time) (Retained, error) {
	return Retained{}, errUnfinished
}

// SetConfig puts other settings in force. Owner only.
func (l *Log) SetConfig(s topic.Settings) {}

// Stats are the counts of now. Any goroutine.
func (l *Log) Stats() Stats { return Stats{} }

// Close syncs, cuts the active segment to size, writes the side files and last the clean mark. A log
// that has failed writes nothing and only lets go of its files. Owner only, when all others have stopped.
func (l *Log) Close() error { return errUnfinished }

// DumpOptions of [Dump].
type DumpOptions struct {
	Batches bool         // a line per batch, not only per segment
	Records bool         // a line per record
	From    topic.Offset // leave out batches that end at or below
}

// Dumped says what [Dump] found.
type Dumped struct {
	Segments int
	Batches  int64
	Records  int64
	Bytes    int64
	Start    topic.Offset
	End      topic.Offset
	Problems int // damage in the log itself; rebuildable files that do not fit are printed, but do not count
}

// Dump verifies the log in dir and prints what it finds. It only reads, and needs neither a server nor
// an orderly close. Beside a running server the active end may look unfinished.
func Dump(fsys vfs.FS, dir string, w io.Writer, opts DumpOptions) (Dumped, error) {
	return Dumped{}, errUnfinished
}

// Room keeps a part of a disk free: logs that share one refuse appends before the disk is full.
type Room struct{}

// NewRoom watches the file system below dir. reserve is in bytes.
func NewRoom(fsys vfs.FS, dir string, reserve int64) *Room { return &Room{} }

// Files is the bounded set of open files and of indexes in memory that the logs of a node share.
type Files struct{}

// NewFiles returns a set of at most most files (those that are in use count, but are never closed) and
// indexBytes of indexes in memory.
func NewFiles(most int, indexBytes int64) *Files { return &Files{} }

var _ = fault.Internal
