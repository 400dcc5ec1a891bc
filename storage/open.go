package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Side files that are the log's own; the tables have theirs.
const (
	startName     = "start"
	partitionName = "partition.json"
)

var startKind = kind{"wsta", 1}

// Open opens the log in dir, which it makes when there is none, and brings it to a sound state: after
// an orderly close in a number of steps that does not depend on the log's size, otherwise by reading
// the batches from the last place that is known to be synced. It fails only when the file system
// does, never for what a file holds; with kind StorageFull when there was no room for what it has to
// write, and it may be tried again then.
func Open(fsys vfs.FS, dir string, cfg Config) (*Log, Recovery, error) {
	if err := cfg.Validate(); err != nil {
		return nil, Recovery{}, err
	}
	l := &Log{cfg: cfg, fsys: fsys, dir: filepath.Clean(dir), files: cfg.Files}
	if l.files == nil {
		l.files, l.ownFiles = NewFiles(privateFiles, DefaultIndexBytes), true
	}
	l.settings.Store(&cfg.Settings)
	l.view.Store(&view{})
	l.tail.mark.Epoch = topic.NoEpoch
	found, err := l.open(time.Now())
	if err != nil {
		l.letGo()
		kind := fault.Internal
		if outOfRoom(err) {
			kind = fault.StorageFull
		}
		return nil, Recovery{}, l.refuse("Open", kind, err)
	}
	return l, found, nil
}

const privateFiles = 16

func (l *Log) open(now time.Time) (Recovery, error) {
	names, err := l.list()
	if err != nil {
		return Recovery{}, err
	}
	l.view.Store(&view{l.segmentsOf(names)})
	start, ok, err := readStart(l.fsys, l.dir)
	if err != nil {
		return Recovery{}, err
	}
	segments := l.view.Load().segments
	if !ok && len(segments) > 0 {
		start = segments[0].base
	}
	l.start.Store(int64(start))
	if l.floor, err = openFloor(l.fsys, filepath.Join(l.dir, floorName)); err != nil {
		return Recovery{}, err
	}
	clean, err := l.openClean(slices.Contains(names, cleanName))
	if err != nil {
		return Recovery{}, err
	}
	if clean {
		l.producers, err = l.loadProducers(now)
		return Recovery{State: Clean, Promised: l.End()}, err
	}
	if err := l.describe(); err != nil && !outOfRoom(err) {
		return Recovery{}, err
	}
	r := recovery{log: l}
	if err := r.run(); err != nil {
		return Recovery{}, err
	}
	l.producers, err = l.loadProducers(now)
	return r.found, err
}

// segmentsOf describes the segments among the names of a directory, which are sorted. A large log has
// many, and a node opens all logs when it starts, so there is little work for each.
func (l *Log) segmentsOf(names []string) (segments []*segment) {
	closeFailed, dir := l.closeFailed, l.dir+string(filepath.Separator)
	for _, name := range names {
		base, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		made := &struct {
			segment segment
			file    file
		}{file: file{set: l.files, fsys: l.fsys, flag: os.O_RDWR, closeErr: closeFailed}}
		made.segment.describe(&made.file, dir+name, base, unknownSize)
		segments = append(segments, &made.segment)
	}
	return segments
}

// segment describes a segment of this log.
func (l *Log) segment(base topic.Offset, size int64) *segment {
	s := newSegment(l.fsys, l.files, l.dir, base, size)
	s.log.closeErr = l.closeFailed
	return s
}

// list makes the directory if need be, finishes what was interrupted in it and returns its names, sorted.
func (l *Log) list() ([]string, error) {
	entries, err := l.fsys.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, l.create()
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.ContainsFunc(names, interrupted) {
		return names, nil
	}
	if err := finishCompaction(l.fsys, l.dir, names); err != nil {
		return nil, err
	}
	if _, err := removeAsides(l.fsys, l.dir); err != nil {
		return nil, err
	}
	if entries, err = l.fsys.ReadDir(l.dir); err != nil {
		return nil, err
	}
	names = names[:0]
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// interrupted says that a file is of a change that did not end.
func interrupted(name string) bool {
	return strings.HasSuffix(name, asideSuffix) || ofCompaction(name)
}

// create makes the directory. It is not durable before the first append is, see [Log.nameDurably]: when a
// power cut takes an empty log, the next open makes it anew.
func (l *Log) create() error {
	if err := makeDir(l.fsys, filepath.Dir(filepath.Dir(l.dir))); err != nil { // it is there, but for logs outside of a node
		return err
	}
	if err := l.fsys.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	return nil
}

// nameDurably makes the names durable that lead to the log: those in its directory, of the directory
// itself and of the one above, the topic's. Whoever made them may have been killed since, so it does
// not matter who that was.
func (l *Log) nameDurably() error {
	dir := l.dir
	for range 3 {
		if err := l.fsys.SyncDir(dir); err != nil {
			return &doubtError{err}
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// describe writes partition.json, if it does not say already what it should. Nobody waits until it is
// on disk: after a crash it is looked at again.
func (l *Log) describe() error {
	about, err := json.Marshal(partitionFile{l.cfg.Path.Topic, l.cfg.ID.String(), l.cfg.Path.Partition})
	if err != nil {
		return err
	}
	about = append(about, '\n')
	name := filepath.Join(l.dir, partitionName)
	if is, err := vfs.ReadFile(l.fsys, name, 1<<16); err == nil && bytes.Equal(is, about) {
		return nil // else it is missing or no good
	}
	f, err := l.fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(about, 0)
	return errors.Join(err, f.Close())
}

// partitionFile is for people and for Dump; no log is opened by it.
type partitionFile struct {
	Topic     topic.Name      `json:"topic"`
	ID        string          `json:"id"`
	Partition topic.Partition `json:"partition"`
}

// readStart reads the side file of the log's start; ok is false when there is none to read.
func readStart(fsys vfs.FS, dir string) (start topic.Offset, ok bool, err error) {
	b, err := readSmall(fsys, filepath.Join(dir, startName), startKind)
	if missing(err) {
		return 0, false, nil
	}
	if err != nil || len(b) != 8 {
		return 0, false, err
	}
	start = topic.Offset(binary.BigEndian.Uint64(b))
	return start, start >= 0, nil
}

func writeStart(fsys vfs.FS, dir string, start topic.Offset) error {
	return writeSmall(fsys, filepath.Join(dir, startName), startKind, binary.BigEndian.AppendUint64(nil, uint64(start)))
}

// openClean takes the log as its last close left it, if the clean mark says so and the files agree.
func (l *Log) openClean(there bool) (bool, error) {
	if !there {
		return false, nil
	}
	l.marked.Store(true)
	mark, ok, err := readCleanMark(l.fsys, l.dir)
	if err != nil {
		return false, err
	}
	if ok {
		ok, err = l.fits(mark)
	}
	if err != nil || !ok {
		return false, errors.Join(err, l.unmark())
	}
	return true, nil
}

// fits takes over what the clean mark says, if the directory has what it speaks of.
func (l *Log) fits(mark cleanMark) (bool, error) {
	v := l.view.Load()
	s := v.active()
	if int64(len(v.segments)) != mark.Segments || l.Start() != mark.Start {
		return false, nil
	}
	var about facts
	if s != nil {
		if s.base != mark.Segment {
			return false, nil
		}
		stat, err := l.fsys.Stat(s.log.name)
		if err != nil {
			return false, err
		}
		if stat.Size() != mark.Bytes {
			return false, nil
		}
		var ok bool
		about, ok, err = readFacts(l.fsys, s.stem+timeIndex.suffix, timeIndex, s.base)
		if err != nil {
			return false, err
		}
		if !ok {
			about = noFacts(s.base)
		}
		about.covers, about.next = mark.Bytes, mark.Mark.End
		s.size.Store(mark.Bytes)
	}
	table, err := loadEpochs(l.fsys, l.dir)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.epochs, l.savedEpoch = table, table.entries.Load()
	l.settle(mark.Mark, s, about)
	return true, nil
}

// settle puts the log's end in place, all of it durable.
func (l *Log) settle(mark topic.Mark, s *segment, about facts) {
	if s != nil {
		l.room.begin(s, about.covers)
	}
	l.raised = about.covers
	l.tail.set(mark, s, about, nil)
	l.synced.Store(int64(mark.End))
	l.end.Store(int64(mark.End))
}

// loadProducers reads the newest snapshot of the producer table and applies what the log has behind it.
func (l *Log) loadProducers(now time.Time) (*Producers, error) {
	end, least := l.End(), l.Start()
	if v := l.view.Load(); len(v.segments) > 0 {
		least = v.segments[0].base // what lies below is missing for a replay
	}
	table, at, err := loadProducers(l.fsys, l.dir, l.cfg.Producers, end, now, func(m topic.Mark) bool {
		known := l.epochs.EpochAt(m.End - 1) // NoEpoch below all that the table remembers
		return m.End == least || m.End > least && (known == m.Epoch || known == topic.NoEpoch || m.Epoch == topic.NoEpoch)
	})
	if err != nil {
		return nil, err
	}
	if at.End < end {
		if err := l.replay(table, at.End, now); err != nil {
			table.Clear()
			return nil, err
		}
	}
	return table, nil
}

// replay tells a producer table of the batches from an offset on. Segments that are older than anything
// it keeps are left out.
func (l *Log) replay(table *Producers, from topic.Offset, now time.Time) error {
	keep := max(l.cfg.Producers.Window, l.cfg.Producers.Silence)
	v := l.view.Load()
	for i := max(0, v.find(from)); i < len(v.segments); i++ {
		s := v.segments[i]
		if i+1 < len(v.segments) {
			about, err := l.factsOf(s, v.segments[i+1].base)
			if err != nil {
				return err
			}
			if about.last != topic.NoTimestamp && now.Sub(time.UnixMilli(int64(about.last))) > keep {
				continue
			}
		}
		if err := l.replaySegment(table, s, v.limit(i, l.End()), from, now); err != nil {
			return fmt.Errorf("replay of %s: %w", s.log.name, err)
		}
	}
	return nil
}

func (l *Log) replaySegment(table *Producers, s *segment, limit, from topic.Offset, now time.Time) error {
	return l.scan(s, limit, from, true, func(b found) error {
		if b.header.Idempotent() && b.header.BaseOffset >= from {
			l.apply(table, &b.header, now)
		}
		return nil
	})
}
