package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// soak says that the long form of a test is wanted.
func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

// modelRecord is a record that was handed to the log.
type modelRecord struct {
	offset    topic.Offset
	timestamp topic.Millis
	epoch     topic.Epoch
	key       string
	value     string // "" is a tombstone

	covered time.Time // when a pass of compaction first went over it
	mayGo   bool      // compaction may have removed it
}

func (r modelRecord) String() string { return fmt.Sprintf("%d:%s=%.8s", r.offset, r.key, r.value) }

// modelBatch is a batch that was handed to the log.
type modelBatch struct {
	base, next topic.Offset
	sequenced  Sequenced
	records    []modelRecord
}

// model is what is known of a log from the outside: what it must hold, and what it may hold.
type model struct {
	batches  []modelBatch // all that may be there, in order
	start    topic.Offset // the log's start is between these two
	startMax topic.Offset
	synced   topic.Offset // below it everything must be there
	hw       topic.Offset // below it nothing is ever cut
}

func (m *model) end() topic.Offset {
	if n := len(m.batches); n > 0 {
		return max(m.start, m.batches[n-1].next)
	}
	return m.start
}

// cutTo forgets the batches that do not end at or below an offset.
func (m *model) cutTo(end topic.Offset) {
	n := slices.IndexFunc(m.batches, func(b modelBatch) bool { return b.next > end })
	if n >= 0 {
		m.batches = m.batches[:n]
	}
}

// compacted notes which records a pass below hw may have removed.
func (m *model) compacted(hw topic.Offset, now time.Time, keepTombstones time.Duration) {
	newest := map[string]topic.Offset{}
	for _, b := range m.batches {
		for _, r := range b.records {
			if r.offset < hw {
				newest[r.key] = r.offset
			}
		}
	}
	for i := range m.batches {
		for j := range m.batches[i].records {
			r := &m.batches[i].records[j]
			if r.offset >= hw {
				return
			}
			if r.covered.IsZero() || now.Before(r.covered) {
				r.covered = now
			}
			r.mayGo = r.mayGo || newest[r.key] > r.offset || r.value == "" && now.Sub(r.covered) >= keepTombstones-time.Millisecond
		}
	}
}

// run is one random history of a log on a file system that fails and crashes.
type run struct {
	*rand.Rand
	t     *testing.T
	seed  uint64
	steps []string

	mem     *vfs.Mem
	failing *vfs.Failing
	cfg     Config
	log     *Log
	model   model
	epoch   topic.Epoch
	now     time.Time // for retention and compaction; it only rises
	clock   topic.Millis
	next    map[int64]int32 // sequence numbers of the producers
	// forgetful: a cut into the log's first batch left nothing of the producer table, or there was no room
	// for a snapshot of it before its segments were deleted, or those were deleted and never synced.
	forgetful bool
}

func (r *run) fatalf(format string, args ...any) {
	r.t.Helper()
	last := r.steps
	if os.Getenv("WEIR_MODEL_SEED") == "" {
		last = r.steps[max(0, len(r.steps)-25):]
	}
	r.t.Fatalf("seed %d: %s\nafter %s", r.seed, fmt.Sprintf(format, args...), strings.Join(last, "\n      "))
}

func (r *run) step(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

func TestModel(t *testing.T) {
	seeds := uint64(150)
	switch {
	case soak():
		seeds = 2000
	case raced: // these histories run on one goroutine
		seeds = 20
	}
	if seed, err := strconv.ParseUint(os.Getenv("WEIR_MODEL_SEED"), 10, 64); err == nil {
		runModel(t, seed)
		return
	}
	for seed := range seeds {
		runModel(t, seed)
		if t.Failed() {
			return
		}
	}
}

func runModel(t *testing.T, seed uint64) {
	r := &run{
		Rand: rand.New(rand.NewPCG(seed, 5)), t: t, seed: seed,
		mem: vfs.NewMem(), epoch: 1, now: time.Now(), clock: 1_700_000_000_000, next: map[int64]int32{},
	}
	r.cfg = Default(topic.Path{Topic: "model", Partition: 0}, topic.ID{7})
	s := &r.cfg.Settings
	s.SegmentBytes = []int64{4096, 9000, 40_000, 1 << 20}[r.IntN(4)]
	s.RetentionBytes = []int64{-1, 20_000, 60_000}[r.IntN(3)]
	s.RetentionAge = []time.Duration{-1, time.Hour}[r.IntN(2)]
	s.Compact = r.IntN(2) == 0
	s.Delete = !s.Compact || r.IntN(2) == 0
	s.MinDirtyRatio = []float64{0, 0.5}[r.IntN(2)]
	s.DeleteRetention = time.Hour
	if r.IntN(4) == 0 {
		s.FlushMessages = 0
	}
	s.FlushMessages = int64(min(1, r.IntN(3))) // 0 in a third of the runs
	r.cfg.CompactKeys = []int{0, 4}[r.IntN(2)]

	r.reopen(r.mem, true)
	for range 30 + r.IntN(60) {
		r.one()
		if t.Failed() {
			return
		}
	}
	r.close()
}

// one takes a step; an error that ends the log is followed by a crash.
func (r *run) one() {
	r.failing.Plan()
	switch r.IntN(12) {
	case 0: // one operation fails, or from one on all do
		fault := vfs.Fault{
			Ops:     []vfs.Op{vfs.ChangeOps, vfs.AllOps &^ (vfs.OpLock | vfs.OpClose), vfs.OpSync, vfs.OpWrite}[r.IntN(4)],
			Nth:     1 + r.IntN(25),
			Forever: r.IntN(2) == 0,
			Err:     []error{syscall.EIO, syscall.ENOSPC}[r.IntN(2)],
			Done:    r.IntN(4) == 0,
		}
		if fault.Done {
			fault.Ops = vfs.ChangeOps
		}
		if r.IntN(2) == 0 {
			fault.Short = r.IntN(200)
		}
		r.failing.Plan(fault)
		r.forgetful = r.forgetful || errors.Is(fault.Err, syscall.ENOSPC)
		r.step("from now on: %v number %d fails with %v, for ever %v, short %d, done %v",
			fault.Ops, fault.Nth, fault.Err, fault.Forever, fault.Short, fault.Done)
		for range 8 {
			if !r.act() {
				break
			}
		}
		r.failing.Plan()
		if r.log.Failed() != nil || fault.Forever || r.IntN(2) == 0 {
			r.crash()
		}
	case 1:
		r.crash()
	case 2:
		r.close()
		if found := r.reopen(r.mem, true); found.State != Clean || found.Scanned > 0 {
			r.fatalf("after a close it found %+v", found)
		}
	default:
		if !r.act() {
			r.fatalf("failed although no operation did: %v", r.log.Failed())
		}
	}
	r.check()
}

// act does something to the log. It is false when that failed for good.
func (r *run) act() bool {
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		return r.append()
	case 4, 5, 6:
		return r.sync()
	case 7:
		r.step("prepare")
		return r.went(r.log.Prepare())
	case 8:
		r.step("roll")
		return r.went(r.log.Roll(time.Now().Add(r.cfg.Settings.SegmentAge + time.Hour)))
	case 9:
		return r.retain()
	case 10:
		return r.compact()
	case 11:
		return r.advance()
	case 12:
		return r.truncate()
	default:
		r.step("rest")
		return r.went(r.log.Rest())
	}
}

// went looks at the error of a call that changes nothing that the model knows of.
func (r *run) went(err error) bool {
	if err != nil {
		r.step("  %v", err)
		if r.failing.Fired() == 0 {
			r.fatalf("an error out of nothing: %v", err)
		}
	}
	if Final(err) != (r.log.Failed() != nil) && err != nil {
		r.fatalf("final %v, the log says %v", err, r.log.Failed())
	}
	return r.log.Failed() == nil
}

func (r *run) append() bool {
	var batches []modelBatch
	var raw [][]byte
	end := r.log.End()
	if r.IntN(8) == 0 {
		r.epoch += topic.Epoch(1 + r.IntN(2))
	}
	for range 1 + r.IntN(3) {
		b, bytes := r.batch(end)
		end = b.next
		batches, raw = append(batches, b), append(raw, bytes)
	}
	r.step("append %d-%d in epoch %d", batches[0].base, end-1, r.epoch)
	err := r.log.Append(raw)
	switch {
	case err == nil:
		r.model.batches = append(r.model.batches, batches...)
		if r.cfg.Settings.FlushMessages == 0 && r.IntN(3) == 0 {
			r.model.hw = end // written is as good as synced
		}
	case Final(err):
		r.model.batches = append(r.model.batches, batches...) // nobody knows
	case r.log.End() != batches[0].base:
		r.fatalf("a refused append moved the end to %d", r.log.End())
	default:
		r.sequences()
	}
	return r.went(err)
}

// batch makes a batch of some records, now and then of a producer with an id.
func (r *run) batch(base topic.Offset) (modelBatch, []byte) {
	m := modelBatch{base: base, next: base, sequenced: Sequenced{Producer: -1}}
	var opts batch.Options
	if r.IntN(5) == 0 {
		opts.Codec = batch.Zstd
	}
	count := 1 + r.IntN(4)
	if r.IntN(2) == 0 {
		id := r.Int64N(3)
		if r.IntN(2) == 0 {
			id |= KeyedBit
		}
		m.sequenced = Sequenced{Producer: id, First: r.next[id], Span: int32(count)} //nolint:gosec // small
		v, err := r.log.producers.Check(m.sequenced, time.Now())
		if r.forgetful && Keyed(id) && fault.Is(err, fault.OutOfSequence) {
			m.sequenced.First = 0
			v, err = r.log.producers.Check(m.sequenced, time.Now())
		}
		if err != nil || v.Duplicate {
			r.fatalf("%+v is not new to the log: %+v, %v", m.sequenced, v, err)
		}
		r.log.producers.Stage(m.sequenced, base, 0, time.Now())
		r.next[id] = m.sequenced.next()
		opts.Producer = &batch.Producer{ID: id, Sequence: m.sequenced.First}
	}
	var b batch.Builder
	b.Reset(nil, opts)
	for range count {
		r.clock += topic.Millis(r.IntN(20) - 5)
		record := modelRecord{offset: m.next, timestamp: r.clock, epoch: r.epoch, key: fmt.Sprintf("k%d", r.IntN(12))}
		if r.IntN(6) > 0 {
			record.value = fmt.Sprintf("%d/%d/", r.seed, m.next) + strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(300))
			if r.IntN(20) == 0 {
				record.value += strings.Repeat("large", 2500)
			}
		}
		out := topic.Record{Timestamp: r.clock, Key: []byte(record.key)}
		if record.value != "" {
			out.Value = []byte(record.value)
		}
		b.Append(&out, r.clock)
		m.records = append(m.records, record)
		m.next++
	}
	raw, err := b.Finish()
	must(r.t, err)
	batch.Stamp(raw, base, r.epoch)
	return m, raw
}

func (r *run) sync() bool {
	end, err := r.log.Sync()
	r.step("sync %d", end)
	if err == nil {
		if end != r.model.end() {
			r.fatalf("sync says %d, the end is %d", end, r.model.end())
		}
		r.model.synced = end
		r.model.hw = max(r.model.hw, end-topic.Offset(r.IntN(8)))
	}
	return r.went(err)
}

func (r *run) retain() bool {
	r.now = r.now.Add(time.Duration(r.IntN(40)) * time.Minute)
	r.model.startMax = max(r.model.startMax, r.model.hw)
	did, err := r.log.Retain(r.model.hw, r.now)
	r.step("retain below %d: %+v, start %d", r.model.hw, did, r.log.Start())
	return r.started(err)
}

// started takes over where the log begins after a call that may have moved that.
func (r *run) started(err error) bool {
	if r.log.Failed() == nil {
		r.checkStart()
		r.model.start, r.model.startMax = r.log.Start(), r.log.Start()
	}
	return r.went(err)
}

func (r *run) advance() bool {
	to := r.model.start + topic.Offset(r.Int64N(int64(r.model.hw-r.model.start)/2+1))
	if r.model.hw < to {
		to = r.model.start
	}
	r.step("advance the start to %d", to)
	r.model.startMax = max(r.model.startMax, to)
	err := r.log.AdvanceStart(to)
	if err == nil && r.log.Start() != max(to, r.model.start) {
		r.fatalf("the start is %d", r.log.Start())
	}
	return r.started(err)
}

func (r *run) compact() bool {
	if r.IntN(2) == 0 {
		r.now = r.now.Add(time.Duration(r.IntN(40)) * time.Minute)
	}
	if r.cfg.Settings.Compact {
		r.model.compacted(r.model.hw, r.now, r.cfg.Settings.DeleteRetention)
	}
	did, err := r.log.Compact(r.t.Context(), r.model.hw, r.now)
	r.step("compact below %d at %s: %+v", r.model.hw, r.now.Format("15:04"), did)
	if err == nil && did.Damaged > 0 {
		r.fatalf("compaction met damage")
	}
	return r.went(err)
}

func (r *run) truncate() bool {
	low := max(r.model.hw, r.model.startMax)
	end := r.log.End()
	if low >= end {
		return true
	}
	to := low + topic.Offset(r.Int64N(int64(end-low)+1))
	i := slices.IndexFunc(r.model.batches, func(b modelBatch) bool { return b.next > to })
	want := end
	if i >= 0 {
		want = max(min(to, r.model.batches[i].base), r.model.start)
		r.forgetful = r.forgetful || r.model.batches[i].base < r.model.start
	}
	err := r.log.Truncate(to)
	r.step("truncate to %d: end %d", to, r.log.End())
	r.model.synced = min(r.model.synced, want)
	if err == nil {
		if r.log.End() != want {
			r.fatalf("cut to %d, want %d", r.log.End(), want)
		}
		r.model.cutTo(want)
		r.model.hw = min(r.model.hw, want)
		r.sequences()
	}
	return r.went(err)
}

// sequences finds what each producer sends next, from the batches that are there.
func (r *run) sequences() {
	clear(r.next)
	for _, b := range r.model.batches {
		if b.sequenced.Producer >= 0 {
			r.next[b.sequenced.Producer] = b.sequenced.next()
		}
	}
}

func (r *run) crash() {
	if r.IntN(2) == 0 {
		r.step("kill")
		was, failed := r.model.end(), r.log.Failed() != nil
		r.reopen(r.mem.Kill(), true)
		if end := r.log.End(); !failed && end < was {
			r.fatalf("after a kill the log ends at %d, it had reached %d", end, was)
		}
		return
	}
	seed := r.Uint64()
	r.step("power cut %d", seed)
	r.reopen(r.mem.Crash(seed), false)
}

// reopen opens the log in another state of its file system, and takes over what it holds now, which
// must be between what was promised and what was asked for.
func (r *run) reopen(mem *vfs.Mem, sameBoot bool) Recovery {
	if r.log != nil {
		r.log.letGo()
	}
	r.mem, r.failing = mem, vfs.NewFailing(mem)
	r.cfg.SameBoot = sameBoot
	r.cfg.Incarnation++
	log, found, err := Open(r.failing, "/data/topics/x/0", r.cfg)
	if err != nil {
		r.fatalf("open: %v", err)
	}
	r.log = log
	r.step("open: %+v, %d-%d", found, log.Start(), log.End())
	mayLose := r.cfg.Settings.FlushMessages == 0 && !sameBoot // the page cache is gone, and what was in it
	if len(found.Gaps) > 0 || found.State == Lost && !mayLose {
		r.fatalf("found %+v", found)
	}
	r.forgetful = r.forgetful || found.State == Lost
	end := log.End()
	if end < r.model.synced {
		r.fatalf("the log ends at %d, %d was synced", end, r.model.synced)
	}
	if end > r.model.end() {
		r.fatalf("the log ends at %d, nothing above %d was ever appended", end, r.model.end())
	}
	r.checkStart()
	r.model.start, r.model.startMax = log.Start(), log.Start()
	r.model.cutTo(end)
	if got := r.model.end(); got != end {
		r.fatalf("the log ends at %d, inside a batch; the one before ends at %d", end, got)
	}
	// All that a recovery found is durable.
	r.model.synced = end
	if log.Synced() != end {
		r.fatalf("opened at %d, and says that %d is synced", end, log.Synced())
	}
	r.model.hw = min(max(r.model.hw, log.Start()), end)
	r.sequences()
	r.checkProducers()
	return found
}

func (r *run) close() {
	r.failing.Plan()
	if err := r.log.Failed(); err != nil {
		r.crash()
	}
	r.step("close")
	if err := r.log.Close(); err != nil {
		r.fatalf("close: %v", err)
	}
	r.model.synced = r.model.end()
	if left := r.mem.OpenFiles(); len(left) > 0 {
		r.fatalf("left open: %v", left)
	}
}
