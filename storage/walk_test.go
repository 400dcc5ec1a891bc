package storage

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// A batch that a producer hides in a record must not be taken for one of the log's while the log is sound
// around it.
func TestABatchInsideARecordIsNotFound(t *testing.T) {
	mem := vfs.NewMem()
	s := newScene(t, mem, nil)
	hidden := s.made(4, 1, 30)
	s.append(1, 3, 100)
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	b.Append(&topic.Record{Value: hidden}, 1)
	b.Append(&topic.Record{Value: hidden}, 1)
	outer, err := b.Finish()
	must(t, err)
	batch.Stamp(outer, 3, 1)
	must(t, s.log.Append([][]byte{outer}))
	s.sent[3] = outer
	s.append(1, 3, 100)
	s.wantWhole()
	s.sync()
	// The outer batch's records are damaged: the next batch is where its header says.
	killed := mem.Kill()
	first := len(s.sent[0])
	s.change(killed, s.segmentNames()[0], func(c []byte) []byte { c[first+batch.HeaderBytes+2] ^= 1; return c })
	s.reopen(killed)
	wantGap(t, s, "damaged records", topic.Gap{Partition: 3, Start: 3, End: 5, Reason: topic.Damaged})
}

// Whatever a segment holds, a log on it opens, serves sound batches in order and takes appends.
func FuzzSegment(f *testing.F) {
	s := &scene{t: &testing.T{}, epoch: 1}
	whole := bytes.Join([][]byte{s.made(0, 2, 30), s.made(2, 1, 10), s.made(3, 3, 5)}, nil)
	f.Add(whole, int64(len(whole)), int64(6))
	f.Add(whole[:len(whole)-5], int64(100), int64(2))
	f.Add(append(bytes.Clone(whole), make([]byte, 5000)...), int64(0), int64(0))
	f.Add(append(make([]byte, 70), whole...), int64(200), int64(3))
	f.Fuzz(func(t *testing.T, content []byte, floorBytes, floorEnd int64) {
		mem := vfs.NewMem()
		must(t, mem.MkdirAll("/p", 0o755))
		file, err := mem.Open("/p/00000000000000000000.log", 0x42, 0o644) // O_RDWR|O_CREATE
		must(t, err)
		_, err = file.WriteAt(content, 0)
		must(t, err)
		must(t, file.Close())
		if floorBytes >= 0 && floorEnd >= 0 {
			floor, err := openFloor(mem, "/p/"+floorName)
			must(t, err)
			must(t, floor.Lower(floorMark{End: topic.Offset(floorEnd), Bytes: floorBytes}))
			must(t, floor.Rest())
		}
		l, found, err := Open(mem, "/p", Default(topic.Path{Topic: "fuzz"}, topic.ID{}))
		must(t, err)
		if floorBytes >= 0 && floorEnd >= 0 && l.End() < topic.Offset(floorEnd) {
			t.Fatalf("the log ends at %d, %d was promised: %+v", l.End(), floorEnd, found)
		}
		next := l.Start()
		for next < l.End() {
			piece, err := l.Read(next, l.End(), 1000)
			must(t, err)
			if piece.Next <= next {
				t.Fatalf("read at %d stands still", next)
			}
			at := next
			for b, err := range batch.All(piece.Batches) {
				must(t, err)
				h, err := batch.Check(b)
				must(t, err)
				if h.BaseOffset < at || h.Next() > piece.Next {
					t.Fatalf("batch %d to %d in a piece from %d to %d", h.BaseOffset, h.LastOffset(), next, piece.Next)
				}
				at = h.Next()
			}
			next = piece.Next
		}
		if _, _, err := l.OffsetForTime(5, l.End()); err != nil {
			t.Fatal(err)
		}
		epoch := max(l.Mark().Epoch, 0)
		one := (&scene{t: t, epoch: epoch}).made(l.End(), 1, 10)
		must(t, l.Append([][]byte{one}))
		piece, err := l.Read(l.End()-1, l.End(), 1000)
		must(t, err)
		if !bytes.Equal(piece.Batches, one) {
			t.Fatal("what was appended did not come back")
		}
		if _, err := Dump(mem, "/p", io.Discard, DumpOptions{Records: true}); err != nil {
			t.Fatal(err)
		}
		must(t, l.Close())
	})
}

// Whatever an index file holds, what is taken from it could be of the segment.
func FuzzIndexFile(f *testing.F) {
	mem := vfs.NewMem()
	s := slot{facts: noFacts(7), sequence: 1}
	s.covers = 10_000
	must(f, writeIndexFile(mem, "/i", offsetIndex, 7, s, encodeOffsets([]indexEntry{{1, 4100}, {2, 9000}}), 0, false))
	content, err := vfs.ReadFile(mem, "/i", 1<<20)
	must(f, err)
	f.Add(content)
	f.Add(content[:200])
	f.Fuzz(func(t *testing.T, content []byte) {
		mem := vfs.NewMem()
		must(t, replaceFile(mem, "/00000000000000000007.index", content))
		must(t, replaceFile(mem, "/00000000000000000007.timeindex", bytes.Replace(content, []byte("weir.idx"), []byte("weir.tix"), 1)))
		g := newSegment(mem, NewFiles(2, 100), "/", 7, 10_000)
		x, _, err := g.loadIndex()
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if x != nil && !x.made.sound(x.covers) {
			t.Fatalf("taken: %+v", x)
		}
	})
}
