package storage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic/batch"
)

func (s *scene) dump(opts DumpOptions) (Dumped, string) {
	s.t.Helper()
	var out bytes.Buffer
	counting := vfs.NewCounting(s.fs)
	did, err := Dump(counting, s.dir, &out, opts)
	must(s.t, err)
	if wrote := counting.Counts().Of(vfs.ChangeOps); wrote.Ops != 0 {
		s.t.Fatalf("a dump changes files: %v", counting.Counts())
	}
	return did, out.String()
}

func TestADumpTellsWhatIsThere(t *testing.T) {
	s := newScene(t, vfs.NewMem(), small)
	for range 12 {
		s.append(1, 3, 700)
	}
	s.epoch = 4
	b := s.made(36, 2, 5)
	batch.SetProducer(b, 77, 1, 5)
	must(t, s.log.Append([][]byte{b}))
	s.sync()
	must(t, s.log.AdvanceStart(4))
	did, text := s.dump(DumpOptions{}) // beside the log, while it is open
	if did.Problems != 0 || did.Batches != 13 || did.Records != 38 || did.Start != 4 || did.End != 38 || !strings.Contains(text, "not closed in order") {
		t.Fatalf("%+v\n%s", did, text)
	}
	s.close()
	did, text = s.dump(DumpOptions{Records: true, From: 35})
	if did.Problems != 0 || did.Notes != 0 || did.Batches != 13 {
		t.Fatalf("%+v\n%s", did, text)
	}
	for _, want := range []string{
		"partition orders/3, topic id", "closed in order by incarnation 1 at offset 38, epoch 4", "synced up to offset 38",
		"batch 33 to 35 at byte", "batch 36 to 37 at byte", "producer 77 epoch 1 sequence 5", `    37 `, `key "key-37" value "kkkkk"`,
		"epoch 1 begins at offset 0", "epoch 4 begins at offset 36", "producers up to offset 38: 1 with an id, 0 idempotency keys",
		"offsets 4 to 38,",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "batch 30") {
		t.Errorf("batches below From are in\n%s", text)
	}
}

func TestADumpTellsDamageFromWhatANextStartMendsAndFromUnfinishedWrites(t *testing.T) {
	s := newScene(t, vfs.NewMem(), nil)
	for range 6 {
		s.append(1, 3, 100)
	}
	s.sync()
	s.append(1, 3, 100)
	mem, name := s.fs.(*vfs.Mem), s.segmentNames()[0]
	for what, c := range map[string]struct {
		edit            func(b []byte) []byte
		problems, notes int
		text            string
	}{
		"nothing":         {func(b []byte) []byte { return b }, 0, 1, "indexes of segment 0 are missing"},
		"an unsynced end": {func(b []byte) []byte { return b[:len(b)-1] }, 0, 2, "never acknowledged"},
		"zeros":           {func(b []byte) []byte { return append(b, make([]byte, 10000)...) }, 0, 1, "10000 bytes of zeros"},
		"a flipped bit":   {func(b []byte) []byte { b[100] ^= 1; return b }, 1, 1, "offsets 0 to 2, bytes 0 to"},
		"a synced end":    {func(b []byte) []byte { return b[:1200] }, 1, 1, "offsets 6 to 17, bytes 806 to 1199"},
		"a synced batch":  {func(b []byte) []byte { return b[:806] }, 1, 1, "offsets 6 to 17: they were synced"},
	} {
		killed := mem.Kill()
		other := *s
		other.fs, other.log = killed, nil
		other.change(killed, name, c.edit)
		did, text := other.dump(DumpOptions{Batches: true})
		if did.Problems != c.problems || did.Notes != c.notes || !strings.Contains(text, c.text) {
			t.Errorf("%s: %+v, want %d and %d and %q\n%s", what, did, c.problems, c.notes, c.text, text)
		}
	}
	if _, err := Dump(mem, "/topics", &bytes.Buffer{}, DumpOptions{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a directory without a log: %v", err)
	}
	if _, err := Dump(mem, "/nowhere", &bytes.Buffer{}, DumpOptions{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no directory: %v", err)
	}
}
