package broker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirlog/weir/topic"
)

// TestMurmur2 has the vectors of Kafka's own test of its hash.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// TestKeyedAsClients compares the choice with a Kafka client's, for keys of every length.
func TestKeyedAsClients(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	client := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for i := range 2000 {
		key := make([]byte, i%67)
		for j := range key {
			key[j] = byte(rng.Uint32())
		}
		n := 1 + rng.IntN(100)
		if got, want := keyed(key, int32(n)), client.Partition(&kgo.Record{Key: key}, n); int(got) != want {
			t.Fatalf("key %x of %d partitions: %d, the client says %d", key, n, got, want)
		}
	}
}

func TestStickyMovesOn(t *testing.T) {
	var s sticky
	now := time.Unix(1000, 0)
	first := s.pick(4, 100, now)
	if got := s.pick(4, 100, now.Add(time.Millisecond)); got != first {
		t.Errorf("a call soon after goes to %d, not to %d", got, first)
	}
	next := (first + 1) % 4
	if got := s.pick(4, stickyBytes-150, now.Add(time.Millisecond)); got != next {
		t.Errorf("bytes over the limit go to %d, not to %d", got, next)
	}
	next = (next + 1) % 4
	if got := s.pick(4, 100, now.Add(time.Second)); got != next {
		t.Errorf("a call much later goes to %d, not to %d", got, next)
	}
}

func TestStickyIsFair(t *testing.T) {
	var s sticky
	var bytes [5]int
	now := time.Unix(1000, 0)
	for range 100_000 {
		now = now.Add(10 * time.Microsecond)
		bytes[s.pick(5, 300, now)] += 300
	}
	for p, n := range bytes {
		if total := 100_000 * 300; n < total/5*9/10 || n > total/5*11/10 {
			t.Errorf("partition %d got %d bytes of %d", p, n, total)
		}
	}
	if s.pick(1, 100, now) != topic.Partition(0) {
		t.Error("one partition is not always the choice")
	}
}
