package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/wire"
	"github.com/weirlog/weir/topic"
)

// sample is a record with what is in it.
type sample struct {
	name   string
	key    recordKey
	value  value // nil: a tombstone
	record Record
}

// samples has records of each kind, with every field set, and with as few as there can be.
func samples() []sample {
	const g = "billing"
	orders, returns := topic.ID{0: 1, 15: 2}, topic.ID{0: 1, 15: 3}
	at := func(id topic.ID, q topic.Partition) topic.Ref { return topic.Ref{ID: id, Partition: q} }
	var all []sample
	add := func(name string, k recordKey, v value) {
		k.Group = g
		s := sample{name: name, key: k, value: v}
		switch v := v.(type) {
		case *groupRecord:
			s.record = v.record(g)
		case *memberRecord:
			s.record = v.record(g, k.Member)
		case *topicRecord:
			s.record = v.record(g, k.Topic)
		case *offsetRecord:
			s.record = v.record(g, at(k.Topic, k.Partition))
		default:
			s.record = tombstone(k.encode())
		}
		all = append(all, s)
	}
	add("group", recordKey{Kind: groupKind}, &groupRecord{
		Epoch: 12, Overrides: map[string]string{"session.timeout.ms": "10000", "assignor": "range"},
		Start: topic.GroupStart{Kind: topic.AtTime, Time: 1_762_077_600_000}, CreatedAt: 1_762_077_600_123, EmptySince: topic.NoTimestamp,
	})
	add("group from its end", recordKey{Kind: groupKind}, &groupRecord{
		Epoch: 1, Start: topic.GroupStart{Kind: topic.AtLatest}, CreatedAt: 1_762_077_600_123, EmptySince: 1_762_077_700_000,
	})
	add("deleted group", recordKey{Kind: groupKind}, &groupRecord{
		Epoch: math.MaxInt64, Deleted: true, CreatedAt: topic.NoTimestamp, EmptySince: 1_762_077_700_000,
	})
	add("member", recordKey{Kind: memberKind, Member: "worker-1"}, &memberRecord{
		Epoch: 12, Since: 9, Also: 3, Kind: topic.ConnectedMember, Principal: "User:ann", Node: 2, JoinedAt: 1_762_077_600_456,
		Subscription: topic.Subscription{Topics: []topic.Name{"orders", "returns"}},
		Assignment: []heldPartition{
			{Ref: at(orders, 0), Assigned: 9},
			{Ref: at(orders, 1), Assigned: 300},
			{Ref: at(orders, 5), Assigned: 9, Leaving: 12},
			{Ref: at(returns, 0), Assigned: 10},
		},
	})
	add("member at the limits", recordKey{Kind: memberKind, Member: topic.MemberName(strings.Repeat("m", topic.MaxNameBytes))}, &memberRecord{
		Epoch: math.MaxInt64, Since: math.MaxInt64, Also: math.MaxInt64, Node: math.MaxInt32, JoinedAt: math.MinInt64,
		Subscription: topic.Subscription{Topics: []topic.Name{"a"}},
		Assignment: []heldPartition{
			{Ref: at(orders, math.MaxInt32), Assigned: math.MaxInt64},
			{Ref: at(returns, math.MaxInt32), Assigned: math.MaxInt64, Leaving: math.MaxInt64},
		},
	})
	add("member by prefix", recordKey{Kind: memberKind, Member: "ä"}, &memberRecord{
		Epoch: 2, Since: 2, JoinedAt: 1, Subscription: topic.Subscription{Prefix: "ord"},
	})
	add("member by pattern", recordKey{Kind: memberKind, Member: "b"}, &memberRecord{
		Epoch: 2, Since: 2, JoinedAt: 1, Subscription: topic.Subscription{Pattern: "(orders|returns)-.*"},
	})
	add("member of nothing", recordKey{Kind: memberKind, Member: "c"}, &memberRecord{})
	add("topic", recordKey{Kind: topicKind, Topic: orders}, &topicRecord{Name: "orders", Partitions: 6})
	add("offset", recordKey{Kind: offsetKind, Topic: orders, Partition: 300}, &offsetRecord{
		Next: 10_422, LastEpoch: 7, Assigned: 9, At: 1_762_077_600_789, Metadata: "a note",
	})
	add("first offset", recordKey{Kind: offsetKind, Topic: orders}, &offsetRecord{LastEpoch: topic.NoEpoch, At: topic.NoTimestamp})
	add("last offset", recordKey{Kind: offsetKind, Topic: orders, Partition: math.MaxInt32}, &offsetRecord{
		Next: math.MaxInt64, LastEpoch: math.MaxInt32, Assigned: math.MaxInt64, At: math.MaxInt64,
	})
	add("no group", recordKey{Kind: groupKind}, nil)
	add("no member", recordKey{Kind: memberKind, Member: "worker-1"}, nil)
	add("no offset", recordKey{Kind: offsetKind, Topic: orders, Partition: 1}, nil)
	return all
}

// decode reads a value by the kind of its key.
func decode(kind recordKind, r Record) (value, error) {
	switch kind {
	case groupKind:
		v, err := decodeGroup(r)
		return &v, err
	case memberKind:
		v, err := decodeMember(r)
		return &v, err
	case topicKind:
		v, err := decodeTopic(r)
		return &v, err
	default:
		v, err := decodeOffset(r)
		return &v, err
	}
}

// TestRecordsKeepTheirBytes compares with testdata/records.golden: a log that was written stays readable.
func TestRecordsKeepTheirBytes(t *testing.T) {
	var golden strings.Builder
	for _, s := range samples() {
		fmt.Fprintf(&golden, "# %s\nkey   %x\n", s.name, s.record.Key)
		key, err := decodeKey(s.record.Key)
		if err != nil || key != s.key {
			t.Errorf("%s: the key came back as %+v, %v", s.name, key, err)
		}
		if g, err := GroupOf(s.record.Key); err != nil || g != s.key.Group {
			t.Errorf("%s: is of the group %q, %v", s.name, g, err)
		}
		if s.value == nil {
			if s.record.Value != nil {
				t.Errorf("%s: a tombstone has the value %x", s.name, s.record.Value)
			}
			continue
		}
		fmt.Fprintf(&golden, "value %x\n", s.record.Value)
		back, err := decode(s.key.Kind, s.record)
		if err != nil || !reflect.DeepEqual(back, s.value) {
			t.Errorf("%s came back as %+v, %v", s.name, back, err)
		}
	}
	compareGolden(t, "testdata/records.golden", golden.String(),
		"Written logs must stay readable: take the next version and keep reading the old one.")
}

// TestThePageShowsTheseBytes compares the examples of docs/group-records.md.
func TestThePageShowsTheseBytes(t *testing.T) {
	page, err := os.ReadFile("../../docs/group-records.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for i, block := range strings.Split(string(page), "```") {
		if text, hexadecimal := strings.CutPrefix(block, "hex\n"); i%2 == 1 && hexadecimal {
			var bytes strings.Builder
			for line := range strings.Lines(text) {
				digits, _, _ := strings.Cut(line, "#")
				bytes.WriteString(strings.Join(strings.Fields(digits), ""))
			}
			shown = append(shown, bytes.String())
		}
	}
	all := samples()
	of := func(name string) string {
		at := slices.IndexFunc(all, func(s sample) bool { return s.name == name })
		return fmt.Sprintf("%x%x", all[at].record.Key, all[at].record.Value)
	}
	if want := []string{of("group"), of("member"), of("topic"), of("offset")}; !slices.Equal(shown, want) {
		t.Errorf("the page shows\n%s\nand the bytes are\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}

// TestDamagedRecordsAreAnError changes each byte, cuts at each length and appends one.
func TestDamagedRecordsAreAnError(t *testing.T) {
	for _, s := range samples() {
		key, value := s.record.Key, s.record.Value
		if s.value == nil {
			continue
		}
		read := func(key, value []byte) error {
			_, err := decode(s.key.Kind, Record{Key: key, Value: value})
			return err
		}
		for i := range key {
			bad := bytes.Clone(key)
			bad[i] ^= 0x10
			if err := read(bad, value); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s with byte %d of its key changed: %v", s.name, i, err)
			}
			if _, err := decodeKey(key[:i]); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s with its key cut at %d: %v", s.name, i, err)
			}
		}
		if _, err := decodeKey(append(bytes.Clone(key), 0)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s with a longer key: %v", s.name, err)
		}
		for i := range value {
			bad := bytes.Clone(value)
			bad[i] ^= 0x10
			if err := read(key, bad); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s with byte %d changed: %v", s.name, i, err)
			}
			if err := read(key, value[:i]); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s cut at %d: %v", s.name, i, err)
			}
			// The same with a checksum that fits: the fields tell it.
			if body := value[:len(value)-wire.ChecksumBytes]; i < len(body) {
				if err := read(key, resum(key, body[:i])); !fault.Is(err, fault.Corrupt) {
					t.Errorf("%s cut at %d with a new checksum: %v", s.name, i, err)
				}
			}
		}
		if err := read(key, resum(key, append(value[:len(value)-wire.ChecksumBytes:len(value)-wire.ChecksumBytes], 0))); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s with a byte more: %v", s.name, err)
		}
	}
}

func resum(key, body []byte) []byte {
	w := writer{b: bytes.Clone(body)}
	w.checksum(key)
	return w.b
}

// TestForeignFormsAreRefused: what could be written in two ways, or makes no sense.
func TestForeignFormsAreRefused(t *testing.T) {
	id := strings.Repeat("00", 15) + "01"
	for _, key := range []string{
		"0167" + "00",                       // no name
		"0167" + "022e2e",                   // ".."
		"0167" + "02ff61",                   // not UTF-8
		"0167" + "012f",                     // "/"
		"0167" + "810061",                   // a length in a longer form
		"016d" + "0161" + "00",              // no name of a member
		"016f" + "0161" + id + "8080808008", // partition 2^31
		"016f" + "0161" + id + "8000",       // partition 0 in two bytes
		"0174" + "0161" + strings.Repeat("00", 15),
	} {
		if k, err := decodeKey(unhex(t, key)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("key %s was read as %+v, %v", key, k, err)
		}
	}
	member := "01" + "02" + "02" + "00" // version, epochs
	rest := "00" + "02" + "02"          // principal, node, joined
	for _, c := range []struct {
		kind recordKind
		body string
	}{
		{groupKind, "01" + "ffffffffffffffffff01" + "00" + "00" + "00" + "01" + "01"},                    // epoch 2^64-1
		{groupKind, "01" + "05" + "02" + "00" + "00" + "01" + "01"},                                      // a flag that is not there
		{groupKind, "01" + "05" + "00" + "02016200016100" + "00" + "01" + "01"},                          // settings out of order
		{groupKind, "01" + "05" + "00" + "02016100016100" + "00" + "01" + "01"},                          // one twice
		{groupKind, "01" + "05" + "00" + "00" + "03" + "01" + "01"},                                      // no such start
		{memberKind, member + "02" + rest + "00" + "00"},                                                 // no such kind
		{memberKind, member + "00" + "00" + "8080808010" + "02" + "00" + "00"},                           // node 2^31
		{memberKind, member + "00" + rest + "04" + "00"},                                                 // no such subscription
		{memberKind, member + "00" + rest + "01" + "00" + "00"},                                          // topics, but none
		{memberKind, member + "00" + rest + "01" + "0201620161" + "00"},                                  // out of order
		{memberKind, member + "00" + rest + "01" + "0201610161" + "00"},                                  // one twice
		{memberKind, member + "00" + rest + "01" + "01" + "0120" + "00"},                                 // " " is no topic
		{memberKind, member + "00" + rest + "02" + "00" + "00"},                                          // an empty prefix
		{memberKind, member + "00" + rest + "03" + "00" + "00"},                                          // an empty pattern
		{memberKind, member + "00" + rest + "00" + "01" + id + "00" + "0000"},                            // a topic without partitions
		{memberKind, member + "00" + rest + "00" + "02" + id + "010002" + id + "010002"},                 // a topic twice
		{memberKind, member + "00" + rest + "00" + "01" + id + "01" + "00" + "03" + "00"},                // leaving, but in no epoch
		{memberKind, member + "00" + rest + "00" + "01" + id + "02" + "ffffffff07" + "02" + "00" + "02"}, // partition 2^31
		{topicKind, "01" + "00" + "01"},                                                                  // no name
		{topicKind, "01" + "0161" + "8080808008"},                                                        // 2^31 partitions
		{offsetKind, "01" + "80808080808080808001" + "00" + "00" + "01" + "00"},                          // offset 2^63
		{offsetKind, "01" + "00" + "8180808008" + "00" + "01" + "00"},                                    // leader epoch 2^31
		{offsetKind, "01" + "00" + "8000" + "00" + "01" + "00"},                                          // a longer form
	} {
		key := []byte("k")
		if v, err := decode(c.kind, Record{Key: key, Value: resum(key, unhex(t, c.body))}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%c %s was read as %+v, %v", c.kind, c.body, v, err)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNewerRecordsSaySo gives sound bytes of a later program a sentence of their own.
func TestNewerRecordsSaySo(t *testing.T) {
	for _, key := range [][]byte{[]byte("\x02g\x01a"), []byte("\x01z\x01a")} {
		if _, err := decodeKey(key); !fault.Is(err, fault.Corrupt) || !errors.Is(err, ErrNewer) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	for _, s := range samples() {
		if s.value == nil {
			continue
		}
		body := bytes.Clone(s.record.Value[:len(s.record.Value)-wire.ChecksumBytes])
		body[0]++
		if _, err := decode(s.key.Kind, Record{Key: s.record.Key, Value: resum(s.record.Key, body)}); !fault.Is(err, fault.Corrupt) || !errors.Is(err, ErrNewer) {
			t.Errorf("%s of a later version: %v", s.name, err)
		}
	}
}

// TestALargeAssignmentIsSmall: what one member of 8,000 partitions takes stays well below a batch.
func TestALargeAssignmentIsSmall(t *testing.T) {
	v := memberRecord{Epoch: 5, Since: 5}
	for n := range 1000 {
		for q := range topic.Partition(8) {
			v.Assignment = append(v.Assignment, heldPartition{Ref: topic.Ref{ID: topic.ID{byte(n >> 8), byte(n)}, Partition: q}, Assigned: 5000})
		}
	}
	r := v.record("g", "m")
	if n := len(r.Value); n > 48<<10 {
		t.Errorf("8,000 partitions of 1,000 topics take %d bytes", n)
	}
	back, err := decodeMember(r)
	if err != nil || !slices.Equal(back.Assignment, v.Assignment) {
		t.Errorf("it came back with %d partitions, %v", len(back.Assignment), err)
	}
}

// FuzzRecord: what is read has one form, and that is the one that was read.
func FuzzRecord(f *testing.F) {
	for _, s := range samples() {
		if s.value != nil {
			f.Add(s.record.Key, s.record.Value[:len(s.record.Value)-wire.ChecksumBytes])
		}
	}
	f.Fuzz(func(t *testing.T, key, body []byte) {
		k, err := decodeKey(key)
		if err != nil {
			if !fault.Is(err, fault.Corrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := k.encode(); !bytes.Equal(again, key) {
			t.Fatalf("the key %x was read and is written as %x", key, again)
		}
		r := Record{Key: key, Value: resum(key, body)} // chance never finds the right one
		v, err := decode(k.Kind, r)
		if err != nil {
			if !fault.Is(err, fault.Corrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := seal(key, v); !bytes.Equal(again.Value, r.Value) {
			t.Fatalf("%x was read and is written as %x", r.Value, again.Value)
		}
	})
}
