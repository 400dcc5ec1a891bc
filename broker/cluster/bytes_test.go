package cluster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// everyOp has one command of each kind, with every field set.
func everyOp() []Op {
	soon := "60000"
	return []Op{
		FoundCluster{ClusterID: "K3nQ0vW7"},
		RegisterNode{Node: 3, At: 1_780_000_000_000},
		CreateTopic{
			ID: idOf("orders", 1), Name: "orders", Partitions: 2, Replication: 2,
			Assignment: [][]topic.NodeID{{1, 2}, {2, 3}}, Overrides: map[string]string{"retention.ms": "5", "cleanup.policy": "compact"},
			Creator: "User:ann", At: 1_780_000_000_001,
		},
		AlterTopic{ID: idOf("orders", 1), Settings: map[string]*string{"retention.ms": &soon, "cleanup.policy": nil}, Partitions: 4, At: 1_780_000_000_002},
		DeleteTopic{ID: idOf("orders", 1)},
		ChangePartition{
			Partition: topic.Ref{ID: idOf("orders", 1), Partition: 1}, Epoch: 7, Changes: 300, By: 2, Incarnation: 9, Leader: 3,
			InSync: []topic.NodeID{2, 3},
		},
		PutEntry{Kind: "acl", Name: "ann", Expect: AnyVersion, Value: []byte{0, 255}},
		DeleteEntry{Kind: "acl", Name: "ann", Expect: 12},
		RaiseEpoch{Partition: topic.Ref{ID: idOf("orders", 1), Partition: 1}, By: 2, Incarnation: 9, Above: 70},
	}
}

// TestCommandsKeepTheirBytes compares with testdata/commands.golden: a log that was written stays readable.
func TestCommandsKeepTheirBytes(t *testing.T) {
	var golden strings.Builder
	codes := map[opCode]bool{}
	var encoded [][]byte
	for i, op := range everyOp() {
		c := Command{ID: CommandID{15: byte(i + 1)}, Op: op}
		codes[op.code()] = true
		b := c.Encode()
		encoded = append(encoded, b)
		fmt.Fprintf(&golden, "%s %x\n", c.Name(), b)
		back, err := decodeCommand(b)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("%s came back as %#v, %v", c.Name(), back, err)
		}
	}
	fmt.Fprintf(&golden, "entry %x\n", EncodeEntry(encoded[:2]))
	compareGolden(t, "testdata/commands.golden", golden.String())
	for code := opCode(0); code < 255; code++ {
		if known := !strings.HasPrefix(code.String(), "op("); known != codes[code] {
			t.Errorf("%v: add an example to everyOp", code)
		}
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has other bytes. Written logs must stay readable: take the next version and keep reading the old one.\n%s", file, got)
	}
}

// sample is a state with something of everything.
func sample(t *testing.T) *State {
	s := NewState()
	ops := append([]Op{RegisterNode{Node: 1, At: 5}, RegisterNode{Node: 2, At: 6}}, everyOp()...)
	ops = append(ops,
		CreateTopic{ID: idOf("kept", 1), Name: "kept", Partitions: 1, Replication: 2, Overrides: map[string]string{"retention.ms": "9"}, Creator: "User:bob", At: 7},
		PutEntry{Kind: "quota", Name: "bob", Value: []byte("9")},
		CreateTopic{ID: idOf("kept", 2), Name: "kept", Partitions: 1, Replication: 1},
	)
	taken := 0
	for i, op := range ops {
		if r := s.Apply(uint64(i+10), Command{ID: CommandID{15: byte(i + 1)}, Op: op}); r.Err == nil {
			taken++
		}
	}
	if s.image.topics.count != 1 || s.image.deletions.count != 1 || taken != len(ops)-4 {
		t.Fatalf("the sample has %d topics, %d deleted, %d of %d commands taken", s.image.topics.count, s.image.deletions.count, taken, len(ops))
	}
	return s
}

// TestSnapshotsKeepTheirBytes compares with testdata/snapshot.golden.
func TestSnapshotsKeepTheirBytes(t *testing.T) {
	s := sample(t)
	b := s.Snapshot().Encode()
	compareGolden(t, "testdata/snapshot.golden", hex.Dump(b))
	back, err := DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if back.Hash() != s.Hash() {
		t.Error("the restored state has another hash")
	}
	got, _ := back.Image().Topic("kept")
	want, _ := s.Image().Topic("kept")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("restored %+v, want %+v", got.Description, want.Description)
	}
	for _, n := range s.Image().Nodes() {
		if restored, _ := back.Image().Node(n.ID); restored != n {
			t.Errorf("restored %+v, want %+v", restored, n)
		}
	}
}

// TestUnknownBytesAreAnError changes each byte, cuts at each length and appends one.
func TestUnknownBytesAreAnError(t *testing.T) {
	entry := EncodeEntry([][]byte{Command{ID: CommandID{1}, Op: everyOp()[2]}.Encode()})
	snapshot := sample(t).Snapshot().Encode()
	decoders := map[string]struct {
		bytes  []byte
		decode func([]byte) error
	}{
		"entry":    {entry, func(b []byte) error { _, err := DecodeEntry(b); return err }},
		"snapshot": {snapshot, func(b []byte) error { _, err := DecodeSnapshot(b); return err }},
	}
	for name, d := range decoders {
		if err := d.decode(d.bytes); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range d.bytes {
			bad := bytes.Clone(d.bytes)
			bad[i] ^= 0x10
			if err := d.decode(bad); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s with byte %d changed: %v", name, i, err)
			}
			if err := d.decode(d.bytes[:i]); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s cut at %d: %v", name, i, err)
			}
		}
		if err := d.decode(append(bytes.Clone(d.bytes), 0)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
	}
}

// TestANewerFormatSaysSo gives sound bytes of a later program a sentence of their own.
func TestANewerFormatSaysSo(t *testing.T) {
	command := Command{ID: CommandID{1}, Op: DeleteTopic{ID: idOf("a", 1)}}.Encode()
	with := func(at int, v byte) []byte {
		b := bytes.Clone(command)
		b[at] = v
		return EncodeEntry([][]byte{b})
	}
	rewritten := func(b []byte, at int, v byte) []byte {
		w := writer{b: bytes.Clone(b[:len(b)-4])}
		w.b[at] = v
		w.checksum()
		return w.b
	}
	for name, decode := range map[string]func() error{
		"command version":  func() error { _, err := DecodeEntry(with(0, 2)); return err },
		"command kind":     func() error { _, err := DecodeEntry(with(1, 99)); return err },
		"entry format":     func() error { _, err := DecodeEntry(rewritten(EncodeEntry([][]byte{command}), 0, 2)); return err },
		"snapshot version": func() error { _, err := DecodeSnapshot(rewritten(sample(t).Snapshot().Encode(), 8, 2)); return err },
	} {
		if err := decode(); !fault.Is(err, fault.Corrupt) || !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecodeEntry: what is understood has one form only.
func FuzzDecodeEntry(f *testing.F) {
	for _, op := range everyOp() {
		b := EncodeEntry([][]byte{Command{ID: CommandID{1}, Op: op}.Encode()})
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := writer{b: bytes.Clone(b)}
		w.checksum() // chance never finds the right one
		commands, err := DecodeEntry(w.b)
		if err != nil {
			return
		}
		var encoded [][]byte
		for _, c := range commands {
			encoded = append(encoded, c.Encode())
		}
		if again := EncodeEntry(encoded); !bytes.Equal(again, w.b) {
			t.Fatalf("%x was read and is written as %x", w.b, again)
		}
		s := NewState()
		for _, c := range commands {
			s.Apply(1, c)
		}
	})
}

// FuzzDecodeSnapshot: what is understood has one form only.
func FuzzDecodeSnapshot(f *testing.F) {
	empty := NewState().Snapshot().Encode()
	f.Add(empty[:len(empty)-4])
	s := NewState()
	for i, op := range append([]Op{RegisterNode{Node: 1, At: 5}, RegisterNode{Node: 2}, RegisterNode{Node: 3}}, everyOp()...) {
		s.Apply(uint64(i), Command{ID: CommandID{byte(i + 1)}, Op: op})
		b := s.Snapshot().Encode()
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := writer{b: bytes.Clone(b)}
		w.checksum()
		s, err := DecodeSnapshot(w.b)
		if err != nil {
			return
		}
		if again := s.Snapshot().Encode(); !bytes.Equal(again, w.b) {
			t.Fatalf("%x was read and is written as %x", w.b, again)
		}
	})
}
