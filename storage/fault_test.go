package storage

import (
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Each operation of a history fails once, in each of the ways in which operations fail. The log says so
// when it matters, acknowledges nothing that is not on disk, and after a kill or a power cut holds all
// that was promised and nothing that was refused.
func TestEachOperationFailsOnce(t *testing.T) {
	histories, stride := uint64(1), 1
	switch {
	case soak():
		histories = 20
	case raced: // these histories run on one goroutine
		stride = 13
	}
	for seed := range histories {
		for _, fault := range []vfs.Fault{
			{Err: syscall.EIO},
			{Err: syscall.ENOSPC, Short: 100},
			{Ops: vfs.ChangeOps, Err: syscall.EIO, Done: true},
		} {
			for nth := 1; oneFails(t, seed, fault, nth); nth += stride {
				if t.Failed() {
					return
				}
			}
		}
	}
}

// oneFails runs a history whose n-th operation fails. It is false when the history has fewer.
func oneFails(t *testing.T, seed uint64, fault vfs.Fault, nth int) bool {
	r := &run{
		Rand: rand.New(rand.NewPCG(seed, 6)), t: t, seed: seed, forgetful: true,
		mem: vfs.NewMem(), epoch: 1, now: time.Now(), clock: 1_700_000_000_000, next: map[int64]int32{},
	}
	r.cfg = Default(topic.Path{Topic: "fault", Partition: 0}, topic.ID{8})
	s := &r.cfg.Settings
	s.SegmentBytes, s.RetentionBytes = 4096, 20_000
	s.Compact, s.Delete, s.MinDirtyRatio, s.DeleteRetention = true, true, 0, time.Hour
	r.reopen(r.mem, true)
	for range 6 { // something to work on
		r.append()
		r.sync()
	}
	fault.Nth = nth
	if fault.Ops == 0 {
		fault.Ops = vfs.AllOps
	}
	r.failing.Plan(fault)
	r.step("operation %d fails with %v, done %v", nth, fault.Err, fault.Done)
	for range 40 {
		if !r.act() || r.failing.Fired() > 0 && r.IntN(4) == 0 {
			break
		}
	}
	fired := r.failing.Fired() > 0
	r.failing.Plan()
	if r.log.Failed() == nil {
		r.check()
	} else if err := r.log.Append(nil); !Final(err) {
		r.fatalf("a log that has failed goes on: %v", err)
	}
	for crash := range 3 {
		after := *r
		after.next, after.steps = maps.Clone(r.next), slices.Clip(r.steps)
		after.model.batches = slices.Clone(r.model.batches)
		if crash == 0 {
			after.step("kill")
			after.reopen(r.mem.Kill(), true)
		} else {
			after.step("power cut")
			after.reopen(r.mem.Crash(r.Uint64()), false)
		}
		after.check()
		after.append()
		after.sync()
		after.check()
		after.close()
	}
	return fired
}
