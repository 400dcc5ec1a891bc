package storage

import (
	"math/rand/v2"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// Timestamps are the producers', so they neither rise nor stay apart; the answer is exact all the same.
func TestTheFirstRecordAtOrAfterATime(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newScene(t, vfs.NewMem(), func(c *Config) { c.Settings.SegmentBytes = 200 << 10 })
		var stamps []topic.Millis // by offset
		clock := topic.Millis(1000)
		for range 150 {
			var b batch.Builder
			b.Reset(nil, batch.Options{Codec: []batch.Codec{batch.None, batch.Zstd, batch.LZ4}[r.IntN(3)]})
			base := s.log.End()
			for range 1 + r.IntN(20) {
				clock += topic.Millis(r.IntN(40) - 15)
				stamps = append(stamps, clock)
				b.Append(&topic.Record{Value: make([]byte, r.IntN(600))}, clock)
			}
			made, err := b.Finish()
			must(t, err)
			if r.IntN(5) == 0 { // the log's own time, for all of the batch
				batch.SetAppendTime(made, clock)
				for o := base; o < topic.Offset(len(stamps)); o++ {
					stamps[o] = clock
				}
			}
			batch.Stamp(made, base, 1)
			must(t, s.log.Append([][]byte{made}))
		}
		start := topic.Offset(r.IntN(50))
		must(t, s.log.AdvanceStart(start))
		check := func() {
			t.Helper()
			for range 300 {
				at := topic.Millis(900 + r.IntN(int(clock)))
				below := start + topic.Offset(r.IntN(len(stamps)-int(start)+1))
				want, wantAt := below, topic.NoTimestamp
				for o := start; o < below; o++ {
					if stamps[o] >= at {
						want, wantAt = o, stamps[o]
						break
					}
				}
				got, gotAt, err := s.log.OffsetForTime(at, below)
				must(t, err)
				if got != want || gotAt != wantAt {
					t.Fatalf("seed %d: time %d below %d is at %d (%d), want %d (%d)", seed, at, below, got, gotAt, want, wantAt)
				}
			}
		}
		check()
		s.close()
		s.open()
		check()
		must(t, s.log.Close())
	}
}
