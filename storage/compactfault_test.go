package storage

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	weirrun "github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Each operation of a pass fails once, and after each the power goes, or the process is killed: what
// is left is the log before the pass or after it, or with a part of its segments compacted. No key
// ever loses its newest value, and nothing comes back once a later state was seen.
func TestCompactionMayFailAnywhere(t *testing.T) {
	build := func(mem *vfs.Mem) *compactable {
		cfg := compactConfig()
		cfg.Settings.SegmentBytes = 500 // groups of a few
		c := openCompactable(t, mem, cfg)
		for i := range 12 {
			c.add(i%2 == 1, batch.Options{}, set(fmt.Sprintf("k%d", i%5), fmt.Sprint(i)), set("same", fmt.Sprint(i)))
		}
		c.add(false, batch.Options{}, set("z", "1"))
		return c
	}
	template := vfs.NewMem()
	full := build(template)
	newest := newestOf(state(t, full.Log))
	for nth := 1; ; nth++ {
		mem := vfs.NewMem()
		failing := vfs.NewFailing(mem)
		cfg := build(mem).cfg
		l, _, err := Open(failing, "/p", cfg)
		must(t, err)
		failing.Plan(vfs.Fault{Ops: vfs.ChangeOps | vfs.OpOpen | vfs.OpClose | vfs.OpRead, Nth: nth, Err: syscall.EIO})
		_, err = l.Compact(t.Context(), l.End(), time.Now())
		if failing.Fired() == 0 {
			must(t, err)
			if nth < 20 {
				t.Fatalf("a pass makes only %d operations", nth-1)
			}
			return
		}
		failing.Plan()
		after := []*vfs.Mem{mem.Kill()}
		for seed := range uint64(12) {
			after = append(after, mem.Crash(seed))
		}
		for i, m := range after {
			again, _, err := Open(m, "/p", cfg)
			if err != nil {
				t.Fatalf("operation %d failed, crash %d: %v", nth, i, err)
			}
			if got := newestOf(state(t, again)); !maps.Equal(got, newest) {
				t.Fatalf("operation %d failed, crash %d:\ngot  %v\nwant %v", nth, i, got, newest)
			}
			if again.End() != full.End() {
				t.Fatalf("operation %d failed, crash %d: the end is %d", nth, i, again.End())
			}
			_, err = again.Compact(t.Context(), again.End(), time.Now())
			must(t, err)
			if got := state(t, again); len(got) != len(newest) || !maps.Equal(newestOf(got), newest) {
				t.Fatalf("operation %d failed, crash %d, then compacted: %v", nth, i, got)
			}
			again.letGo()
			entries, err := m.ReadDir("/p")
			must(t, err)
			for _, e := range entries {
				if ofCompaction(e.Name()) || strings.HasSuffix(e.Name(), asideSuffix) {
					t.Fatalf("operation %d failed, crash %d: left behind %s", nth, i, e.Name())
				}
			}
		}
		l.letGo()
	}
}

func newestOf(state []string) map[string]string {
	newest := map[string]string{}
	for _, word := range state {
		_, word, _ = strings.Cut(word, ":")
		key, value, _ := strings.Cut(word, "=")
		newest[key] = value
	}
	return newest
}

func TestSwapNamesAreReadBack(t *testing.T) {
	name := strings.TrimPrefix(groupStem("/p", 12, 345)+swapSuffix, "/p/")
	if base, limit, ok := parseSwapName(name); !ok || base != 12 || limit != 345 {
		t.Fatalf("%s: %d, %d, %v", name, base, limit, ok)
	}
	for _, bad := range []string{
		"", ".swap", "00000000000000000012.swap", "00000000000000000012-00000000000000000012.swap",
		"00000000000000000012-00000000000000000001.swap", "-0000000000000000012-00000000000000000345.swap",
		"00000000000000000012-00000000000000000345.cleaned",
	} {
		if _, _, ok := parseSwapName(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

// Readers see no gap and no record twice while segments are replaced under them, also when files are
// closed and opened all the time.
func TestReadersBesideCompaction(t *testing.T) {
	cfg := compactConfig()
	cfg.Settings.SegmentBytes = 2000
	cfg.Files = NewFiles(1, 1) // nothing stays open, no index stays in memory
	l, _, err := Open(vfs.OS{}, t.TempDir()+"/p", cfg)
	must(t, err)
	group, done := weirrun.NewGroup(t.Context()), make(chan struct{})
	var removed int64 // the cleaner's until all have stopped
	add := func(i int) error {
		return l.Append([][]byte{batchOf(t, l.End(), 1, batch.Options{}, set(fmt.Sprintf("k%d", i%7), fmt.Sprint(i)), set("same", fmt.Sprint(i)))})
	}
	must(t, add(0))
	group.Go("owner", func(context.Context) error {
		defer close(done)
		for i := 1; i < 400; i++ {
			if err := add(i); err != nil {
				return err
			}
			if _, err := l.Sync(); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go("cleaner", func(ctx context.Context) error {
		for {
			select {
			case <-done:
				return nil
			default:
				did, err := l.Compact(ctx, l.Synced(), time.Now())
				if err != nil {
					return err
				}
				removed += did.Records
			}
		}
	})
	for range 3 {
		group.Go("reader", func(context.Context) error {
			for {
				select {
				case <-done:
					return nil
				default:
					if err := readInOrder(l); err != nil {
						return err
					}
				}
			}
		})
	}
	must(t, group.Wait())
	must(t, readInOrder(l))
	if removed == 0 {
		t.Fatal("nothing was ever removed")
	}
	must(t, l.Close())
}

// readInOrder reads a log from its start to its end. Values of a key are numbers that rise.
func readInOrder(l *Log) error {
	last, seen := topic.NoOffset, map[string]int{}
	for from, end := l.Start(), l.End(); from < end; {
		piece, err := l.Read(from, end, 500)
		if err != nil || len(piece.Gaps) > 0 || piece.Next <= from {
			return fmt.Errorf("read %d of %d: next %d, gaps %v, %w", from, end, piece.Next, piece.Gaps, err)
		}
		var r batch.Reader
		r.Reset(piece.Batches, from)
		for r.Next() {
			n, err := strconv.Atoi(string(r.Record().Value))
			if key := string(r.Record().Key); err != nil || r.Record().Offset <= last || seen[key] > n {
				return fmt.Errorf("at %d is %s=%d after offset %d and %d: %w", r.Record().Offset, key, n, last, seen[key], err)
			}
			last, seen[string(r.Record().Key)] = r.Record().Offset, n
		}
		if r.Err() != nil {
			return r.Err()
		}
		from = piece.Next
	}
	return nil
}
