package storage

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func TestEpochsAreFoundWhereTheyBeginAndEnd(t *testing.T) {
	e := newEpochs()
	e.Assign(2, 10)
	e.Assign(2, 15)
	e.Assign(5, 20)
	e.Assign(9, 40)
	for _, c := range []struct {
		ask  topic.Epoch
		want topic.Mark
	}{
		{0, topic.Mark{Epoch: topic.NoEpoch, End: 10}},
		{1, topic.Mark{Epoch: topic.NoEpoch, End: 10}},
		{2, topic.Mark{Epoch: 2, End: 20}},
		{4, topic.Mark{Epoch: 2, End: 20}},
		{5, topic.Mark{Epoch: 5, End: 40}},
		{8, topic.Mark{Epoch: 5, End: 40}},
		{9, topic.Mark{Epoch: 9, End: 55}},
		{100, topic.Mark{Epoch: 9, End: 55}},
	} {
		if got := e.EndOf(c.ask, 10, 55); got != c.want {
			t.Errorf("end of %d: %v, want %v", c.ask, got, c.want)
		}
	}
	for offset, want := range map[topic.Offset]topic.Epoch{9: topic.NoEpoch, 10: 2, 19: 2, 20: 5, 39: 5, 40: 9, 99: 9} {
		if got := e.EpochAt(offset); got != want {
			t.Errorf("epoch at %d: %d, want %d", offset, got, want)
		}
	}
}

func TestRetentionKeepsTheNewestEntryBelowTheStart(t *testing.T) {
	e := newEpochs(epochStart{1, 0}, epochStart{2, 10}, epochStart{3, 20})
	if !e.AdvanceTo(15) || !slices.Equal(e.load(), []epochStart{{2, 10}, {3, 20}}) {
		t.Fatalf("start 15: %v", e.load())
	}
	if e.AdvanceTo(19) {
		t.Fatal("nothing was to be forgotten")
	}
	if e.AdvanceTo(20) { // a follower of epoch 2 that has all of it is told that it ends here
		t.Fatal("nothing was to be forgotten")
	}
	if !e.AdvanceTo(1000) || !slices.Equal(e.load(), []epochStart{{3, 20}}) {
		t.Fatalf("start 1000: %v", e.load())
	}
	if got := e.EndOf(3, 1000, 1000); got != (topic.Mark{Epoch: 3, End: 1000}) {
		t.Fatalf("a log that retention emptied: %v", got)
	}
}

func TestAnEpochBelowTheLogsStartEndsThere(t *testing.T) {
	e := newEpochs(epochStart{2, 10}, epochStart{3, 20})
	if got := e.EndOf(2, 30, 40); got != (topic.Mark{Epoch: 2, End: 30}) {
		t.Fatalf("got %v", got)
	}
}

// The table says of each offset what a walk over all batches says.
func TestEpochsAgreeWithAWalkOverTheBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newEpochs()
		var log []topic.Epoch // of each offset
		start, epoch := topic.Offset(0), topic.Epoch(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				to := rapid.IntRange(int(start), len(log)).Draw(t, "cut")
				log = log[:to]
				table.TruncateTo(topic.Offset(to))
				if to > 0 {
					epoch = log[to-1]
				}
			case 1:
				start = topic.Offset(rapid.IntRange(int(start), len(log)).Draw(t, "start"))
				table.AdvanceTo(start)
			case 2:
				epoch += topic.Epoch(rapid.IntRange(1, 3).Draw(t, "reigns"))
			default:
				table.Assign(epoch, topic.Offset(len(log)))
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					log = append(log, epoch)
				}
			}
			check(t, table, log, start)
		}
		m := vfs.NewMem()
		if err := saveEpochs(m, "/", table); err != nil {
			t.Fatal(err)
		}
		again, err := loadEpochs(m, "/")
		if err != nil || !slices.Equal(again.load(), table.load()) {
			t.Fatalf("read back: %v, %v", again, err)
		}
	})
}

func check(t *rapid.T, table *epochs, log []topic.Epoch, start topic.Offset) {
	for offset := int(start); offset < len(log); offset++ {
		if got := table.EpochAt(topic.Offset(offset)); got != log[offset] {
			t.Fatalf("epoch at %d is %d, the table %v says %d", offset, log[offset], table.load(), got)
		}
	}
	kept := log[start:]
	for e := topic.Epoch(0); len(kept) > 0 && e <= log[len(log)-1]+1; e++ {
		next := start + topic.Offset(len(kept))
		if i := slices.IndexFunc(kept, func(of topic.Epoch) bool { return of > e }); i >= 0 {
			next = start + topic.Offset(i)
		}
		if got := table.EndOf(e, start, topic.Offset(len(log))); got.End != next || got.Epoch > e {
			t.Fatalf("epoch %d ends at %d, the table %v says %v", e, next, table.load(), got)
		}
	}
}

func TestADamagedEpochTableIsToBeRebuilt(t *testing.T) {
	good := encodeEpochs([]epochStart{{1, 0}, {4, 100}})
	for name, b := range map[string][]byte{
		"empty":         {},
		"cut":           good[:len(good)-1],
		"an entry less": good[:len(good)-12],
		"falling":       encodeEpochs([]epochStart{{4, 0}, {1, 100}}),
		"the same":      encodeEpochs([]epochStart{{1, 5}, {2, 5}}),
		"negative":      encodeEpochs([]epochStart{{-1, 5}}),
	} {
		m := vfs.NewMem()
		must(t, writeSmall(m, "/"+epochsName, epochsKind, b))
		if got, err := loadEpochs(m, "/"); !missing(err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := loadEpochs(vfs.NewMem(), "/"); !missing(err) {
		t.Errorf("none: %v", err)
	}
}
