package storage

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func at(end topic.Offset) floorMark {
	return floorMark{End: end, Segment: end / 10 * 10, Bytes: int64(end) * 7}
}

func readFloor(t *testing.T, fsys vfs.FS) (floorMark, bool) {
	t.Helper()
	f, err := openFloor(fsys, "/synced")
	must(t, err)
	return f.Mark()
}

func TestTheFloorIsExactAfterAKill(t *testing.T) {
	m := vfs.NewMem()
	if mark, known := readFloor(t, m); known {
		t.Fatalf("a floor out of nothing: %v", mark)
	}
	f, err := openFloor(m, "/synced")
	must(t, err)
	for end := topic.Offset(1); end < 100; end++ {
		must(t, f.Raise(at(end), 100))
		if end%7 == 0 {
			must(t, f.Rest())
		}
		if mark, known := readFloor(t, m.Kill()); !known || mark != at(end) {
			t.Fatalf("at %d: %v, %v", end, mark, known)
		}
		if end%13 == 0 { // as after a start
			must(t, f.Rest())
			f, err = openFloor(m, "/synced")
			must(t, err)
		}
	}
	must(t, f.Rest())
	if left := m.OpenFiles(); len(left) > 0 {
		t.Fatalf("left open: %v", left)
	}
}

// Whatever a power cut does: the floor is known once it was synced, it is not older than that sync
// says, and it is never above what was written last or above a cut.
func TestTheFloorAfterAPowerCutIsOlderAndNeverTooHigh(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := vfs.NewMem()
		f, err := openFloor(m, "/synced")
		must(t, err)
		must(t, f.Raise(at(1), 1))
		must(t, f.Sync())
		must(t, m.SyncDir("/"))
		least, most, end := topic.Offset(1), topic.Offset(1), topic.Offset(1)
		for range r.IntN(30) {
			switch r.IntN(6) {
			case 0:
				must(t, f.Sync())
				least = end
			case 1:
				end = topic.Offset(r.Int64N(int64(end) + 1))
				must(t, f.Lower(at(end)))
				least, most = end, end
			default:
				end += topic.Offset(r.IntN(50))
				must(t, f.Raise(at(end), r.Int64N(floorSyncBytes/4)))
				if f.unsynced == 0 {
					least = end
				}
				most = end
			}
		}
		for crash := range uint64(20) {
			mark, known := readFloor(t, m.Crash(crash))
			if !known || mark.End < least || mark.End > most || mark != at(mark.End) {
				t.Fatalf("seed %d, crash %d: %v, %v; it must be in %d..%d", seed, crash, mark, known, least, most)
			}
		}
	}
}

func TestADamagedSlotIsNoFloor(t *testing.T) {
	m := vfs.NewMem()
	f, err := openFloor(m, "/synced")
	must(t, err)
	must(t, f.Raise(at(10), 1))
	must(t, f.Raise(at(20), 1)) // in the second slot
	file, err := m.Open("/synced", 2, 0)
	must(t, err)
	flip := func(pos int64) {
		var b [1]byte
		_, err := file.ReadAt(b[:], pos)
		must(t, err)
		b[0] ^= 0x10
		_, err = file.WriteAt(b[:], pos)
		must(t, err)
	}
	for pos := range int64(floorSlotBytes) {
		flip(floorSlotStride + pos)
		if mark, known := readFloor(t, m); !known || mark != at(10) {
			t.Fatalf("byte %d: %v, %v", pos, mark, known)
		}
		flip(pos)
		if mark, known := readFloor(t, m); known {
			t.Fatalf("both slots are damaged at byte %d, and it says %v", pos, mark)
		}
		flip(pos)
		flip(floorSlotStride + pos)
	}
	for size := int64(0); size < floorSlotStride+floorSlotBytes; size += 31 {
		must(t, file.Truncate(size))
		mark, known := readFloor(t, m)
		if known != (size >= floorSlotBytes) || known && mark != at(10) {
			t.Fatalf("cut to %d: %v, %v", size, mark, known)
		}
		must(t, file.Truncate(0))
		must(t, f.Lower(at(10)))
	}
}

func TestTheFloorSyncsItselfEach4MiB(t *testing.T) {
	c := vfs.NewCounting(vfs.NewMem())
	f, err := openFloor(c, "/synced")
	must(t, err)
	for range 16 {
		must(t, f.Raise(at(1), 1<<20))
	}
	if got := c.Counts().Of(vfs.OpSync).Ops; got != 4 {
		t.Fatalf("%d syncs for 16 MiB", got)
	}
}

func TestAFloorThatCannotBeWrittenSaysSo(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpSync} {
		m := vfs.NewFailing(vfs.NewMem())
		f, err := openFloor(m, "/synced")
		must(t, err)
		m.Plan(vfs.Fault{Ops: op, Err: syscall.EIO})
		if err := f.Lower(at(5)); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v: %v", op, err)
		}
	}
}
