package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Compacted says what a pass of compaction did.
type Compacted struct {
	Segments int          // rewritten
	Records  int64        // removed
	Bytes    int64        // freed
	End      topic.Offset // behind the last segment that was rewritten; copies of what lies below may differ from the log
	Damaged  int          // segments that were left alone because some of their bytes are unsound
	More     bool         // the keys did not fit into memory at once; another pass goes on
}

// compactedName is the side file that says how far the log is compacted.
const compactedName = "compacted"

var compactedKind = kind{"wcmp", 1}

// progress of compaction. Losing it costs a pass over everything.
type progress struct {
	Mark    topic.Mark   // below its end each key has one record, the epoch is that of the record before it
	Horizon topic.Millis // when the first tombstone of that part may go; 0: it has none
}

// Compact rewrites closed segments below the high watermark so that of each key the newest record
// stays. Offsets stay as they are: what is removed leaves holes. It does something only with
// cleanup.policy=compact and when min.cleanable.dirty.ratio, max.compaction.lag.ms or the time of a
// tombstone asks for it. Cleaner only; ctx ends a pass between two batches, and nothing is lost then.
//
// A record without a key is removed, as in Kafka, which does not take such records to begin with. A
// tombstone, which is a key with a null value, stays for delete.retention.ms from the pass that
// removed what it deletes. A batch that the producer table knows keeps its header, and so does the
// last one of a segment, so that offsets and sequence numbers are the same after a replay. A segment
// with unsound bytes stays as it is, and no tombstone behind it goes: its readers are to be told of the damage.
//
// An error of kind StorageFull means that there was no room for the new segments; the old ones are in place.
func (l *Log) Compact(ctx context.Context, hw topic.Offset, now time.Time) (Compacted, error) {
	if err := l.Failed(); err != nil {
		return Compacted{}, err
	}
	l.committed.Store(int64(hw))
	c := compaction{log: l, ctx: ctx, now: now, settings: *l.settings.Load()}
	if !c.settings.Compact {
		return Compacted{}, nil
	}
	err := c.run(hw)
	if err != nil && !Final(err) && fault.KindOf(err) == fault.Internal && ctx.Err() == nil {
		err = l.refuse("Compact", fault.Internal, err)
	}
	return c.did, err
}

// compaction is one pass.
type compaction struct {
	log      *Log
	ctx      context.Context //nolint:containedctx // of the one call that the pass lives for
	now      time.Time
	settings topic.Settings

	segments []closedSegment // that may be rewritten, from the log's first on
	done     progress        // of earlier passes
	keys     *keyMap
	end      topic.Offset // the keys of all records from done's end to here are in keys
	horizon  topic.Millis // the earliest of the tombstones that stay; 0: none
	damaged  bool         // a segment before the current one is damaged
	did      Compacted
}

// closedSegment is a segment with where its offsets end.
type closedSegment struct {
	*segment
	limit topic.Offset
	about facts
	bytes int64
}

func (c *compaction) run(hw topic.Offset) error {
	if err := c.choose(hw); err != nil || len(c.segments) == 0 {
		return err
	}
	var err error
	if c.done, err = c.log.readProgress(); err != nil {
		return err
	}
	if !c.due() {
		return nil
	}
	if err := c.log.unmark(); err != nil {
		return err
	}
	if err := c.log.leaveFloor(); err != nil {
		return err
	}
	if err := c.mapKeys(); err != nil {
		return err
	}
	for len(c.segments) > 0 && c.segments[0].base < c.end {
		n := c.groupOf()
		if err := c.rewrite(c.segments[:n]); err != nil {
			return err
		}
		c.segments = c.segments[n:]
	}
	mark := topic.Mark{Epoch: c.log.epochs.EpochAt(c.end - 1), End: c.end}
	return c.log.writeProgress(progress{Mark: mark, Horizon: c.horizon})
}

// choose lists the segments that may be rewritten: closed, below the high watermark, and as old as
// min.compaction.lag.ms asks for.
func (c *compaction) choose(hw topic.Offset) error {
	v := c.log.view.Load()
	for i := range max(0, len(v.segments)-1) {
		s, limit := v.segments[i], v.segments[i+1].base
		if limit > hw {
			break
		}
		if limit <= c.log.Start() {
			continue // goes with the next Retain
		}
		about, err := c.log.factsOf(s, limit)
		if err != nil {
			return err
		}
		if appended := about.newest(); appended != topic.NoTimestamp && c.age(appended) < c.settings.MinCompactionLag {
			break
		}
		bytes, err := s.bytes()
		if err != nil {
			return err
		}
		c.segments = append(c.segments, closedSegment{s, limit, about, bytes})
	}
	return nil
}

// newest is when the segment got its last batch, or what its records say of that.
func (f facts) newest() topic.Millis {
	if f.last != topic.NoTimestamp {
		return f.last
	}
	return f.largest
}

func (c *compaction) age(at topic.Millis) time.Duration { return c.now.Sub(time.UnixMilli(int64(at))) }

// due says whether a pass is worth its while.
func (c *compaction) due() bool {
	var clean, dirty int64
	late := false
	for _, s := range c.segments {
		if s.limit <= c.done.Mark.End {
			clean += s.bytes
			continue
		}
		dirty += s.bytes
		first := s.about.first
		if first == topic.NoTimestamp {
			first = s.about.largest
		}
		late = late || first != topic.NoTimestamp && c.age(first) >= c.settings.MaxCompactionLag
	}
	switch {
	case c.done.Horizon > 0 && topic.Millis(c.now.UnixMilli()) >= c.done.Horizon:
		return true
	case dirty == 0:
		return false
	default:
		return late || float64(dirty) >= c.settings.MinDirtyRatio*float64(clean+dirty)
	}
}

// mapKeys notes the newest offset of each key from where the last pass ended on, up to the end of the
// last segment or until the map is full.
func (c *compaction) mapKeys() error {
	most := c.log.cfg.CompactKeys
	if most == 0 {
		most = DefaultCompactKeys
	}
	c.keys = newKeyMap(most)
	c.end = c.done.Mark.End
	for _, s := range c.segments {
		if s.limit <= c.end || c.did.More {
			continue
		}
		if _, err := c.each(s, c.mapBatch); err != nil {
			return err
		}
		if !c.did.More {
			c.end = s.limit
		}
	}
	return nil
}

func (c *compaction) mapBatch(h *batch.Header, raw []byte) error {
	if c.did.More || h.Next() <= c.end {
		return nil
	}
	var r batch.Reader
	defer r.Close()
	r.Reset(raw, c.end)
	for r.Next() {
		record := r.Record()
		if record.Key == nil || h.Attributes&batch.Control != 0 {
			continue
		}
		if !c.keys.put(record.Key, record.Offset) {
			c.end, c.did.More = record.Offset, true
			return nil
		}
	}
	return nil // what cannot be read is not looked at: rewrite leaves such a segment as it is
}

// each visits the sound batches of a segment, and says whether there was anything else.
func (c *compaction) each(s closedSegment, visit func(h *batch.Header, raw []byte) error) (damaged bool, err error) {
	f, err := s.log.use()
	if err != nil {
		return false, err
	}
	defer s.log.release()
	w := walk{file: f, size: s.bytes, expect: s.base, limit: s.limit, closed: true}
	defer w.close()
	for {
		if err := c.ctx.Err(); err != nil {
			return damaged, err
		}
		h, raw, err := w.next()
		switch {
		case err == nil:
			if err := visit(&h, raw); err != nil {
				return damaged, err
			}
		case errors.Is(err, io.EOF):
			return damaged || w.expect != s.limit, nil
		case isUnsound(err):
			damaged = true
			if _, err := w.resync(); err != nil {
				return damaged, err
			}
		default:
			return damaged, err
		}
	}
}

// groupOf is how many of the first segments become one: as many as fit into a segment.
func (c *compaction) groupOf() int {
	n, bytes := 1, c.segments[0].bytes
	for n < len(c.segments) && c.segments[n].base < c.end &&
		bytes+c.segments[n].bytes <= c.settings.SegmentBytes &&
		c.segments[n].limit-c.segments[0].base < 1<<32 {
		bytes += c.segments[n].bytes
		n++
	}
	return n
}

// leaveFloor makes all of the log durable and moves the synced floor out of the closed segments: it
// counts bytes of a file that is about to have fewer.
func (l *Log) leaveFloor() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.Failed(); err != nil {
		return err
	}
	// With flush.messages=0 closed segments may wait for their sync. What is removed for a newer record
	// must not go before that one is on disk.
	if _, err := l.syncTail(); err != nil {
		return err
	}
	active := l.view.Load().active()
	mark, known := l.floor.Mark()
	if !known || active == nil {
		return nil
	}
	// The epoch table goes first: recovery does not look for epochs below the floor.
	if ok, err := l.saveEpochs(); err != nil {
		return err
	} else if !ok {
		return l.refuse("Compact", fault.StorageFull, errors.New("there is no room for the epoch table"))
	}
	var err error
	if mark.Segment < active.base || l.floor.doubt {
		err = l.floor.Lower(floorMark{End: active.base, Segment: active.base})
	} else {
		err = l.floor.Sync() // a power cut must not bring back one that is older
	}
	if err != nil {
		return l.failOrFull("Compact", "write the synced floor", err)
	}
	return nil
}

// readProgress reads how far the log is compacted. What speaks of another history than the log's is nothing.
func (l *Log) readProgress() (progress, error) {
	none := progress{Mark: topic.Mark{Epoch: topic.NoEpoch}}
	b, err := readSmall(l.fsys, filepath.Join(l.dir, compactedName), compactedKind)
	if missing(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read the progress of compaction: %w", err)
	}
	if len(b) != 20 {
		return none, nil
	}
	p := progress{
		Mark: topic.Mark{
			Epoch: topic.Epoch(binary.BigEndian.Uint32(b)),      //nolint:gosec // compared below
			End:   topic.Offset(binary.BigEndian.Uint64(b[4:])), //nolint:gosec // compared below
		},
		Horizon: topic.Millis(binary.BigEndian.Uint64(b[12:])), //nolint:gosec // as bits
	}
	if p.Mark.End <= l.Start() || p.Mark.End > l.End() || l.epochs.EpochAt(p.Mark.End-1) != p.Mark.Epoch {
		return none, nil
	}
	return p, nil
}

func (l *Log) writeProgress(p progress) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.Mark.Epoch)) //nolint:gosec // as bits
	b = binary.BigEndian.AppendUint64(b, uint64(p.Mark.End))      //nolint:gosec // as bits
	b = binary.BigEndian.AppendUint64(b, uint64(p.Horizon))       //nolint:gosec // as bits
	err := writeSmall(l.fsys, filepath.Join(l.dir, compactedName), compactedKind, b)
	if err != nil && !outOfRoom(err) {
		return l.fail("write the progress of compaction", err)
	}
	return nil // without room the next pass begins where this one did
}

// errDamaged ends the rewriting of a group of segments that are better left alone.
var errDamaged = errors.New("unsound bytes")
