package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

func storageRows() []row {
	var all []row
	for _, producers := range []int{64, 512} {
		all = append(all, row{id: fmt.Sprintf("P6/%d", producers),
			what: fmt.Sprintf("storage append with group commit, %d waiting producers, against a bare write and sync of the same bytes and zeros", producers),
			unit: "records/s", target: 0.9,
			setup: func(ctx context.Context, b *bench) (sides, error) { return groupCommit(b, producers) }})
	}
	return append(all,
		row{id: "P7", what: "storage append of batches of 100, no sync, against a bare write of the same bytes", unit: "MB/s", target: 0.8, setup: appendUnsynced},
		row{id: "P13/append", what: "append at the tail of a 4 GB log, against one of 4 MB", unit: "MB/s", target: 0.85,
			setup: func(ctx context.Context, b *bench) (sides, error) { return bigAgainstSmall(ctx, b, appendAtTail) }},
		row{id: "P13/tail", what: "read at the tail of a 4 GB log, against one of 4 MB", unit: "reads/s", target: 0.85,
			setup: func(ctx context.Context, b *bench) (sides, error) { return bigAgainstSmall(ctx, b, readAtTail) }},
		row{id: "P13/start", what: "read at the start of a 4 GB log, against one of 4 MB", unit: "reads/s", target: 0.85,
			setup: func(ctx context.Context, b *bench) (sides, error) { return bigAgainstSmall(ctx, b, readAtStart) }},
		row{id: "P14", what: "open a clean partition of 4 GB, against one of 4 MB", unit: "ms", target: 1.2, atMost: true,
			setup: func(ctx context.Context, b *bench) (sides, error) { return bigAgainstSmall(ctx, b, reopen) }},
	)
}

// partition is a log in a directory of its own, and the offset that comes next.
type partition struct {
	log  *storage.Log
	dir  string
	next topic.Offset
}

func openPartition(dir string, overrides map[string]string) (*partition, error) {
	settings, err := topic.ParseSettings(overrides)
	if err != nil {
		return nil, err
	}
	cfg := storage.Default(topic.Path{Topic: "bench"}, topic.ID{1})
	cfg.Settings = settings
	log, _, err := storage.Open(vfs.OS{}, dir, cfg)
	if err != nil {
		return nil, err
	}
	return &partition{log, dir, log.End()}, nil
}

// append stamps the batches, which are the caller's own, and writes them.
func (p *partition) append(batches [][]byte) error {
	for _, b := range batches {
		batch.Stamp(b, p.next, 0)
		h, err := batch.ParseHeader(b)
		if err != nil {
			return err
		}
		p.next = h.Next()
	}
	return p.log.Append(batches)
}

func (p *partition) sync() error {
	if _, err := p.log.Sync(); err != nil {
		return err
	}
	return p.log.Prepare()
}

func (p *partition) close() error { return errors.Join(p.log.Close(), os.RemoveAll(p.dir)) }

// bareFile is what a partition does, without any of its work: bytes at the end of a file, and at most
// bytes a new file. Where it syncs, its room is filled with zeros ahead of the end in the same steps as
// a partition's: a log always comes to places that were never written before.
type bareFile struct {
	dir    string
	file   *os.File
	at     int64
	most   int64
	fill   bool
	filled int64 // bytes of the file
	old    []string
	joined []byte
}

const (
	bareFillStep = 4 * mebibyte
	bareFillLow  = 2 * mebibyte // filled again when less is left
)

var bareZeros = make([]byte, 256<<10)

func newBareFile(dir string, most int64, fill bool) (*bareFile, error) {
	f := &bareFile{dir: dir, most: most, fill: fill}
	return f, f.begin()
}

func (f *bareFile) begin() error {
	if f.file != nil {
		f.old = append(f.old, f.file.Name())
		if err := f.file.Close(); err != nil {
			return err
		}
	}
	file, err := os.CreateTemp(f.dir, "bare-")
	f.file, f.at, f.filled = file, 0, 0
	return err
}

// tidy removes the files that are full.
func (f *bareFile) tidy() (err error) {
	for _, name := range f.old {
		err = errors.Join(err, os.Remove(name))
	}
	f.old = f.old[:0]
	return err
}

func (f *bareFile) append(batches [][]byte) error {
	bytes := batches[0]
	if len(batches) > 1 {
		f.joined = f.joined[:0]
		for _, b := range batches {
			f.joined = append(f.joined, b...)
		}
		bytes = f.joined
	}
	if f.at+int64(len(bytes)) > f.most {
		if err := f.begin(); err != nil {
			return err
		}
	}
	_, err := f.file.WriteAt(bytes, f.at)
	f.at += int64(len(bytes))
	return err
}

func (f *bareFile) sync() error {
	if err := unix.Fdatasync(int(f.file.Fd())); err != nil || !f.fill || f.filled-f.at >= bareFillLow {
		return err
	}
	f.filled = max(f.filled, f.at)
	for end := min(f.filled+bareFillStep, f.most); f.filled < end; {
		n, err := f.file.WriteAt(bareZeros[:min(end-f.filled, int64(len(bareZeros)))], f.filled)
		if err != nil {
			return err
		}
		f.filled += int64(n)
	}
	return unix.Fdatasync(int(f.file.Fd()))
}

func (f *bareFile) close() error { return errors.Join(f.file.Close(), os.RemoveAll(f.dir)) }

// sink is either of the two.
type sink interface {
	append([][]byte) error
	sync() error
}

// group runs producers that each wait until their batch is durable, and one committer.
type group struct {
	sink    sink
	waiting chan commitRequest
	batches [][]byte // one for each producer
}

type commitRequest struct {
	batch []byte
	done  chan error
}

func newGroup(s sink, producers int) *group {
	g := &group{sink: s, waiting: make(chan commitRequest, producers)}
	for i := range producers {
		g.batches = append(g.batches, encode(i, 1))
	}
	return g
}

// encode builds a batch of the records that a produce body holds.
func encode(first, count int) []byte {
	var b batch.Builder
	b.Reset(nil, batch.Options{})
	for i := range count {
		b.Append(&topic.Record{Key: fmt.Appendf(nil, "user-%04d", first+i), Value: value(first + i)}, 1_762_077_600_000)
	}
	bytes, err := b.Finish()
	if err != nil {
		panic(err) // plain batches of constant input have nothing that can fail
	}
	return bytes
}

// run returns durable records a second.
func (g *group) run(ctx context.Context, span time.Duration) (float64, error) {
	var committed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for _, b := range g.batches {
		wg.Go(func() {
			done := make(chan error, 1)
			for time.Since(began) < span && ctx.Err() == nil {
				g.waiting <- commitRequest{b, done}
				if err := <-done; err != nil {
					return // the committer reports it
				}
				committed.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	err := g.commit(finished)
	return float64(committed.Load()) / time.Since(began).Seconds(), errors.Join(err, ctx.Err())
}

// commit takes all that waits, writes it with one write and syncs it, until everyone has finished.
func (g *group) commit(finished <-chan struct{}) (failed error) {
	var requests []commitRequest
	var batches [][]byte
	for {
		requests, batches = requests[:0], batches[:0]
		select {
		case r := <-g.waiting:
			requests, batches = append(requests, r), append(batches, r.batch)
		case <-finished:
			return failed
		}
		for more := true; more; {
			select {
			case r := <-g.waiting:
				requests, batches = append(requests, r), append(batches, r.batch)
			default:
				more = false
			}
		}
		err := g.sink.append(batches)
		if err == nil {
			err = g.sink.sync()
		}
		for _, r := range requests {
			r.done <- err
		}
		failed = errors.Join(failed, err)
	}
}

func groupCommit(b *bench, producers int) (sides, error) {
	dir, err := b.data("group")
	if err != nil {
		return sides{}, err
	}
	refDir, err := b.data("bare")
	if err != nil {
		return sides{}, err
	}
	p, err := openPartition(dir, nil)
	if err != nil {
		return sides{}, err
	}
	ref, err := newBareFile(refDir, 256*mebibyte, true)
	if err != nil {
		return sides{}, errors.Join(err, p.close())
	}
	weir, bare := newGroup(p, producers), newGroup(ref, producers)
	return sides{
		weir:      func(ctx context.Context) (float64, error) { return weir.run(ctx, b.span) },
		reference: func(ctx context.Context) (float64, error) { return bare.run(ctx, b.span) },
		stop:      func() error { return errors.Join(p.close(), ref.close()) },
	}, nil
}

// writeFor appends one batch again and again and returns MB/s; tidy is called when the time was taken.
func writeFor(ctx context.Context, s sink, bytes []byte, amount int64, tidy func() error) (float64, error) {
	one := [][]byte{bytes}
	began := time.Now()
	for written := int64(0); written < amount && ctx.Err() == nil; written += int64(len(bytes)) {
		if err := s.append(one); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	return float64(amount) / 1e6 / took.Seconds(), errors.Join(tidy(), ctx.Err())
}

func appendUnsynced(_ context.Context, b *bench) (sides, error) {
	dir, err := b.data("append")
	if err != nil {
		return sides{}, err
	}
	refDir, err := b.data("bare")
	if err != nil {
		return sides{}, err
	}
	p, err := openPartition(dir, map[string]string{"flush.messages": "0", "retention.bytes": "1", "segment.bytes": "67108864"})
	if err != nil {
		return sides{}, err
	}
	ref, err := newBareFile(refDir, 64*mebibyte, false)
	if err != nil {
		return sides{}, errors.Join(err, p.close())
	}
	bytes := encode(0, 100)
	const amount = 192 * mebibyte
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			return writeFor(ctx, p, bytes, amount, func() error {
				_, err := p.log.Retain(p.log.End(), time.Now())
				return err
			})
		},
		reference: func(ctx context.Context) (float64, error) {
			return writeFor(ctx, ref, bytes, amount, ref.tidy)
		},
		stop: func() error { return errors.Join(p.close(), ref.close()) },
	}, nil
}

// bigAgainstSmall makes a log of 4 GB once a run, one of 4 MB, and measures the same on both.
func bigAgainstSmall(ctx context.Context, b *bench, measure func(context.Context, *bench, *partition) (float64, error)) (sides, error) {
	big, err := b.filled(ctx, "log-4-gb", 4<<30)
	if err != nil {
		return sides{}, err
	}
	small, err := b.filled(ctx, "log-4-mb", 4<<20)
	if err != nil {
		return sides{}, errors.Join(err, big.log.Close())
	}
	return sides{
		weir:      func(ctx context.Context) (float64, error) { return measure(ctx, b, big) },
		reference: func(ctx context.Context) (float64, error) { return measure(ctx, b, small) },
		stop:      func() error { return errors.Join(big.log.Close(), small.log.Close()) },
	}, nil
}

// filled opens the log in a directory of this run and fills it up to a size the first time.
func (b *bench) filled(ctx context.Context, name string, size int64) (*partition, error) {
	p, err := openPartition(filepath.Join(b.dir, name), map[string]string{"flush.messages": "0"})
	if err != nil {
		return nil, err
	}
	bytes := encode(0, 1000)
	per := size / int64(len(bytes))
	for have := int64(p.next) / 1000; have < per; have++ {
		if err := errors.Join(p.append([][]byte{bytes}), ctx.Err()); err != nil {
			return nil, errors.Join(err, p.log.Close())
		}
	}
	return p, p.sync()
}

func appendAtTail(ctx context.Context, _ *bench, p *partition) (float64, error) {
	return writeFor(ctx, p, encode(0, 100), 16*mebibyte, func() error { return nil })
}

func readAtTail(ctx context.Context, b *bench, p *partition) (float64, error) {
	return readFrom(ctx, b, p, p.next-100)
}

func readAtStart(ctx context.Context, b *bench, p *partition) (float64, error) {
	return readFrom(ctx, b, p, 0)
}

func readFrom(ctx context.Context, b *bench, p *partition, from topic.Offset) (float64, error) {
	began := time.Now()
	reads := 0
	for ; time.Since(began) < b.span/4 && ctx.Err() == nil; reads++ {
		piece, err := p.log.Read(from, p.next, 64<<10)
		if err != nil {
			return 0, err
		}
		if len(piece.Batches) == 0 {
			return 0, errors.New("nothing was read")
		}
	}
	return float64(reads) / time.Since(began).Seconds(), ctx.Err()
}

// reopen closes the log in order and opens it again, so many times, and returns the mean time of an open.
func reopen(ctx context.Context, _ *bench, p *partition) (float64, error) {
	const times = 20
	var took time.Duration
	for range times {
		if err := errors.Join(p.log.Close(), ctx.Err()); err != nil {
			return 0, err
		}
		began := time.Now()
		again, err := openPartition(p.dir, map[string]string{"flush.messages": "0"})
		took += time.Since(began)
		if err != nil {
			return 0, err
		}
		*p = *again
	}
	return took.Seconds() * 1000 / times, nil
}
