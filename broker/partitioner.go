package broker

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlog/weir/topic"
)

// keyed is the partition of a key, the same that every Kafka client chooses: murmur2 of the key, made
// positive, modulo the number of partitions. An empty key is a key.
func keyed(key []byte, partitions int32) topic.Partition {
	return topic.Partition(int32(murmur2(key)&0x7fffffff) % partitions)
}

// murmur2 is Kafka's hash of a key (MurmurHash2 by Austin Appleby, with Kafka's seed).
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> 24
		h = h*m ^ k*m
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// How long records without a key stay with one partition. Staying lets one write and one sync serve
// many producers; moving on spreads the load. At a low rate each call gets the next partition.
const (
	stickyBytes = 256 << 10
	stickyTime  = 5 * time.Millisecond
)

// sticky chooses the partition of records that have neither key nor partition: one for a while, then the
// next. It is safe for concurrent use.
type sticky struct {
	mu      sync.Mutex
	current uint32 // counts on; modulo the number of partitions it is the choice
	bytes   int    // handed to the current one
	since   time.Time
}

// pick returns a partition for bytes of records that stay together.
func (s *sticky) pick(partitions int32, bytes int, now time.Time) topic.Partition {
	if partitions == 1 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.since.IsZero(): // nodes that start together do not all begin at partition 0
		s.current, s.since = rand.Uint32N(1<<16), now
	case s.bytes+bytes > stickyBytes || now.Sub(s.since) >= stickyTime:
		s.current++
		s.bytes, s.since = 0, now
	}
	s.bytes += bytes
	return topic.Partition(s.current % uint32(partitions))
}
