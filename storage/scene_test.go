package storage

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// scene is a log under test together with what was appended to it.
type scene struct {
	t     *testing.T
	fs    vfs.FS
	dir   string
	cfg   Config
	log   *Log
	found Recovery
	epoch topic.Epoch
	now   topic.Millis
	sent  map[topic.Offset][]byte // by base offset, as it was stamped
}

func newScene(t *testing.T, fsys vfs.FS, change func(*Config)) *scene {
	t.Helper()
	s := &scene{t: t, fs: fsys, dir: "/topics/a/0", cfg: Default(topic.Path{Topic: "orders", Partition: 3}, topic.ID{1}), epoch: 1, now: 1_700_000_000_000, sent: map[topic.Offset][]byte{}}
	if _, real := fsys.(vfs.OS); real {
		s.dir = t.TempDir() + "/a/0"
	}
	if change != nil {
		change(&s.cfg)
	}
	s.open()
	t.Cleanup(func() {
		if s.log != nil {
			_ = s.log.Close() // a scene may have broken it
		}
	})
	return s
}

func (s *scene) open() {
	s.t.Helper()
	var err error
	s.log, s.found, err = Open(s.fs, s.dir, s.cfg)
	must(s.t, err)
}

// reopen opens the log again on another state of its file system, without a close. A copy of a scene
// that is reopened goes its own way.
func (s *scene) reopen(fsys vfs.FS) {
	s.t.Helper()
	s.fs, s.sent = fsys, maps.Clone(s.sent)
	s.open()
}

func (s *scene) close() {
	s.t.Helper()
	must(s.t, s.log.Close())
	s.log = nil
}

// made builds a batch of count records for an offset; size is that of each value.
func (s *scene) made(at topic.Offset, count, size int) []byte {
	s.t.Helper()
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	for i := range count {
		s.now++
		value := bytes.Repeat([]byte{byte('a' + int(at)%26)}, size)
		b.Append(&topic.Record{Key: fmt.Appendf(nil, "key-%d", int(at)+i), Value: value}, s.now)
	}
	made, err := b.Finish()
	must(s.t, err)
	batch.Stamp(made, at, s.epoch)
	return made
}

// append appends batches of count records each, in one call.
func (s *scene) append(batches, count, size int) {
	s.t.Helper()
	must(s.t, s.tryAppend(batches, count, size))
}

func (s *scene) tryAppend(batches, count, size int) error {
	s.t.Helper()
	at := s.log.End()
	var all [][]byte
	for range batches {
		all = append(all, s.made(at, count, size))
		at += topic.Offset(count)
	}
	if err := s.log.Append(all); err != nil {
		return err
	}
	for _, b := range all {
		h, err := batch.ParseHeader(b)
		must(s.t, err)
		s.sent[h.BaseOffset] = b
	}
	return nil
}

func (s *scene) sync() topic.Offset {
	s.t.Helper()
	end, err := s.log.Sync()
	must(s.t, err)
	return end
}

// walkAll reads from an offset to below, and returns what came and the gaps.
func (s *scene) readAll(from, below topic.Offset, maxBytes int) (got []batch.Header, gaps []topic.Gap) {
	s.t.Helper()
	for from < below {
		piece, err := s.log.Read(from, below, maxBytes)
		must(s.t, err)
		if piece.Next <= from {
			s.t.Fatalf("read at %d below %d stands still", from, below)
		}
		for b, err := range batch.All(piece.Batches) {
			must(s.t, err)
			h, err := batch.Check(b)
			must(s.t, err)
			if want := s.sent[h.BaseOffset]; !bytes.Equal(b, want) {
				s.t.Fatalf("the batch at offset %d came back as %d other bytes", h.BaseOffset, len(b))
			}
			got = append(got, h)
		}
		gaps = append(gaps, piece.Gaps...)
		from = piece.Next
	}
	if from != below {
		s.t.Fatalf("reading below %d ended at %d", below, from)
	}
	return got, gaps
}

// wantWhole reads the whole log, in pieces of different sizes, and expects every batch of it.
func (s *scene) wantWhole() {
	s.t.Helper()
	for _, maxBytes := range []int{0, 700, 1 << 20} {
		next := s.log.Start()
		got, gaps := s.readAll(next, s.log.End(), maxBytes)
		if len(gaps) > 0 {
			s.t.Fatalf("gaps in a sound log: %v", gaps)
		}
		for i, h := range got {
			if h.BaseOffset != next && (i > 0 || h.BaseOffset > next) {
				s.t.Fatalf("offset %d follows offset %d", h.BaseOffset, next-1)
			}
			next = h.Next()
		}
		if next != s.log.End() {
			s.t.Fatalf("the last batch ends at %d, the log at %d", next, s.log.End())
		}
	}
}

// segmentNames are the .log files, by base offset.
func (s *scene) segmentNames() []string {
	s.t.Helper()
	entries, err := s.fs.ReadDir(s.dir)
	must(s.t, err)
	var names []string
	for _, e := range entries {
		if _, ok := parseSegmentName(e.Name()); ok {
			names = append(names, s.dir+"/"+e.Name())
		}
	}
	return names
}

// change rewrites a file.
func (s *scene) change(fsys vfs.FS, name string, edit func([]byte) []byte) {
	s.t.Helper()
	content, err := vfs.ReadFile(fsys, name, 1<<30)
	must(s.t, err)
	must(s.t, replaceFile(fsys, name, edit(content)))
}

func small(c *Config) { c.Settings.SegmentBytes = 8 << 10 }
