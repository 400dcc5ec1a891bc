package storage

import (
	"strings"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestANewLogWaitsForNoDisk(t *testing.T) {
	mem := vfs.NewMem()
	must(t, makeDir(mem, "/topics"))
	counting := vfs.NewCounting(mem)
	s := newScene(t, counting, nil)
	if n := counting.Counts().Of(vfs.OpSync | vfs.OpSyncDir).Ops; n != 0 {
		t.Errorf("%d syncs to make a log: %v", n, counting.Counts())
	}
	s.close()
	if n := counting.Counts().Of(vfs.OpSync | vfs.OpSyncDir).Ops; n != 0 {
		t.Errorf("%d syncs to close a log that nothing was appended to: %v", n, counting.Counts())
	}
}

func TestTheFirstAppendIsAsDurableAsLaterOnes(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMem()
		s := newScene(t, mem, nil)
		if seed%2 == 0 {
			s.reopen(mem) // killed: nobody knows any more who made the directories, and whether they are on disk
		}
		s.append(1, 3, 100)
		s.sync()
		s.reopen(mem.Crash(seed))
		if s.log.End() != 3 || s.found.State != Synced {
			t.Fatalf("seed %d: end %d: %+v", seed, s.log.End(), s.found)
		}
		s.wantWhole()
		if _, said := s.dump(DumpOptions{}); !strings.Contains(said, "orders") {
			t.Fatalf("seed %d: it does not say whose log it is: %s", seed, said)
		}
	}
}

func TestAnEmptyLogThatAPowerCutTookIsMadeAnew(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMem()
		s := newScene(t, mem, nil)
		s.reopen(mem.Crash(seed))
		if s.log.End() != 0 || s.found.State != Clean {
			t.Fatalf("seed %d: end %d: %+v", seed, s.log.End(), s.found)
		}
		s.append(1, 3, 100)
		s.sync()
		s.wantWhole()
	}
}

func TestAResetOfANewLogIsDurable(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMem()
		s := newScene(t, mem, nil)
		must(t, s.log.Reset(7))
		s.reopen(mem.Crash(seed))
		if s.log.Start() != 7 || s.log.End() != topic.Offset(7) {
			t.Fatalf("seed %d: %d to %d: %+v", seed, s.log.Start(), s.log.End(), s.found)
		}
	}
}
