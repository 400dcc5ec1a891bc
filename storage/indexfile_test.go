package storage

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
)

// The bytes that docs/storage.md describes.
func TestTheBytesOfAnIndex(t *testing.T) {
	mem := vfs.NewMem()
	s := slot{facts: facts{covers: 10_000, next: 1020, largest: 1_700_000_000_123, first: 1_700_000_000_000, last: -1}, sequence: 1}
	must(t, writeIndexFile(mem, "/i", offsetIndex, 1000, s, encodeOffsets([]indexEntry{{8, 4100}}), 0, false))
	s.sequence, s.covers = 2, 20_000
	must(t, writeIndexFile(mem, "/i", offsetIndex, 1000, s, encodeOffsets([]indexEntry{{8, 4100}, {17, 9000}}), 1, true))
	must(t, writeIndexFile(mem, "/t", timeIndex, 1000, s, encodeStamps([]stamp{{1_700_000_000_111, 17}}), 0, true))
	for name, want := range map[string]string{
		"/i": `
			7765 6972 2e69 6478 0001 0008 0000 0002  0000 0000 0000 0002 0000 0000 0000 03e8
			0000 0000 0000 4e20 0000 0000 0000 03fc  0000 018b cfe5 687b 0000 018b cfe5 6800
			ffff ffff ffff ffff c44c a8e9 e10d a884
			* 48
			7765 6972 2e69 6478 0001 0008 0000 0001  0000 0000 0000 0001 0000 0000 0000 03e8
			0000 0000 0000 2710 0000 0000 0000 03fc  0000 018b cfe5 687b 0000 018b cfe5 6800
			ffff ffff ffff ffff b110 df85 dba4 7d22
			* 48
			0000 0008 0000 1004 0000 0011 0000 2328`,
		"/t": `
			7765 6972 2e74 6978 0001 000c 0000 0001  0000 0000 0000 0002 0000 0000 0000 03e8
			0000 0000 0000 4e20 0000 0000 0000 03fc  0000 018b cfe5 687b 0000 018b cfe5 6800
			ffff ffff ffff ffff 46ab c136 c3db f3cb
			* 176
			0000 018b cfe5 686f 0000 0011`,
	} {
		content, err := vfs.ReadFile(mem, name, 1<<20)
		must(t, err)
		if got := hex.EncodeToString(content); got != plainHex(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, plainHex(want))
		}
	}
	// The head that was written last counts, and the one before when it is not sound.
	for damaged, want := range map[int]uint32{-1: 2, 40: 1, 300: 2, 265: 1} {
		content, err := vfs.ReadFile(mem, "/i", 1<<20)
		must(t, err)
		if damaged >= 0 && damaged < len(content) {
			content[damaged] ^= 1
		}
		must(t, replaceFile(mem, "/d", content))
		got, body, ok, err := readIndexFile(mem, "/d", offsetIndex, 1000)
		must(t, err)
		if !ok || got.count != want || len(body) != int(want)*entryBytes {
			t.Errorf("byte %d damaged: %+v, %v", damaged, got, ok)
		}
	}
	if _, _, ok, err := readIndexFile(mem, "/i", offsetIndex, 1001); ok || err != nil {
		t.Errorf("an index of another segment: %v, %v", ok, err)
	}
	if _, _, ok, err := readIndexFile(mem, "/t", offsetIndex, 1000); ok || err != nil {
		t.Errorf("an index of another kind: %v, %v", ok, err)
	}
}

// plainHex takes the layout out of hex digits; "* n" stands for n zero bytes.
func plainHex(s string) string {
	var b strings.Builder
	words := strings.Fields(s)
	for i := 0; i < len(words); i++ {
		if words[i] != "*" {
			b.WriteString(words[i])
			continue
		}
		i++
		n := 0
		for _, c := range words[i] {
			n = 10*n + int(c-'0')
		}
		b.WriteString(strings.Repeat("00", n))
	}
	return b.String()
}
