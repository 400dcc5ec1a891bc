package storage

import (
	"hash/maphash"

	"github.com/weirlog/weir/topic"
)

// DefaultCompactKeys is how many keys a pass of compaction holds in memory, which takes some 60 MiB.
const DefaultCompactKeys = 1 << 20

// keyMap knows the newest offset of each key in a part of the log. It keeps 128 bits of hash instead of
// the keys, under a seed of this process that nobody outside knows: two keys that share them in one
// pass are not to be expected in the life of a disk.
type keyMap struct {
	most   int
	newest map[keyHash]topic.Offset
}

type keyHash [2]uint64

var keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashKey(key []byte) keyHash {
	return keyHash{maphash.Bytes(keySeeds[0], key), maphash.Bytes(keySeeds[1], key)}
}

func newKeyMap(most int) *keyMap {
	return &keyMap{most: max(1, most), newest: map[keyHash]topic.Offset{}}
}

// put says that a key has a record at an offset. Offsets come in order. It is false when the map is full.
func (m *keyMap) put(key []byte, offset topic.Offset) bool {
	h := hashKey(key)
	if _, known := m.newest[h]; !known && len(m.newest) >= m.most {
		return false
	}
	m.newest[h] = offset
	return true
}

// superseded says whether a later record of the same key is known.
func (m *keyMap) superseded(key []byte, offset topic.Offset) bool {
	newest, known := m.newest[hashKey(key)]
	return known && newest > offset
}
