package topic_test

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// billing is the cursor that docs/cursor.md takes apart.
func billing() topic.GroupCursor {
	return topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 12, Topics: []topic.GroupCursorTopic{{ID: id(1), Parts: []topic.GroupCursorPart{
		{Partition: 0, Next: 54, LastEpoch: 7, Assigned: 3}, {Partition: 1, Next: 55, LastEpoch: 0, Assigned: 3}, {Partition: 4, Next: 9, LastEpoch: 0, Assigned: 12},
	}}}}
}

// The texts are a promise: a member may keep one while weir is updated.
func TestGroupCursorGoldenTexts(t *testing.T) {
	for text, c := range map[string]topic.GroupCursor{
		"g1.AQAAAAAAANM9RqU": {},
		"g1.AapWbYgBAFUrV4c": {Group: topic.GroupSum("billing"), Epoch: 1},
		"g1.AapWbYgMAQEBAQEBAQEBAQEBAQEBAQECAAFsEANuAwEAEgIMqTgIUQ": billing(),
	} {
		if got := c.String(); got != text {
			t.Errorf("%+v is %s, want %s", c, got, text)
		}
		got, err := topic.ParseGroupCursor(text)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s is %+v, want %+v (%v)", text, got, c, err)
		}
	}
	if sum := topic.GroupSum("billing"); sum != 0xaa566d88 {
		t.Errorf("the sum of the group is %#x", sum)
	}
}

func groupCursors() *rapid.Generator[topic.GroupCursor] {
	return rapid.Custom(func(t *rapid.T) topic.GroupCursor {
		c := topic.GroupCursor{Group: rapid.Uint32().Draw(t, "group"), Epoch: topic.GroupEpoch(rapid.Int64Range(0, math.MaxInt64).Draw(t, "epoch"))}
		for range rapid.IntRange(0, 30).Draw(t, "parts") {
			c.Advance(
				topic.Ref{
					ID:        id(rapid.ByteRange(0, 3).Draw(t, "topic")),
					Partition: topic.Partition(rapid.OneOf(rapid.Int32Range(0, 9), rapid.Int32Range(0, math.MaxInt32)).Draw(t, "partition")),
				},
				topic.Offset(rapid.OneOf(rapid.Int64Range(0, 99), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "next")),
				topic.Epoch(rapid.OneOf(rapid.Int32Range(-1, 1), rapid.Int32Range(-1, math.MaxInt32)).Draw(t, "epoch")),
				topic.GroupEpoch(rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "assigned")),
			)
		}
		return c
	})
}

func TestGroupCursorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := groupCursors().Draw(t, "cursor")
		text := c.String()
		if strings.ContainsFunc(text, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
		}) {
			t.Fatalf("%s does not go into a URL as it is", text)
		}
		got, err := topic.ParseGroupCursor(text)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v came back as %+v (%v)", c, got, err)
		}
		commits := c.Commits()
		for _, one := range commits {
			part, found := c.Part(one.Ref)
			if !found || one.Next != part.Next || one.LastEpoch != part.LastEpoch || one.Assigned != part.Assigned || one.Metadata != "" {
				t.Fatalf("%+v asks for %+v", part, one)
			}
			got.Remove(one.Ref)
			if _, found := got.Part(one.Ref); found {
				t.Fatalf("%v is still there", one.Ref)
			}
		}
		if len(got.Topics) != 0 {
			t.Fatalf("beside its commits the cursor has %+v", got.Topics)
		}
	})
}

// A member that reads everything there may be still gets an answer whose cursor goes into a query.
func TestGroupCursorOfAThousandPartitions(t *testing.T) {
	var c topic.GroupCursor
	for p := range topic.Partition(1000) {
		c.Advance(topic.Ref{ID: id(9), Partition: p}, 1<<40+topic.Offset(p)*987654321, 3, 700)
	}
	if n := len(c.String()); n > 8300 {
		t.Errorf("%d bytes", n)
	}
}

func TestGroupCursorSteps(t *testing.T) {
	c := topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 4}
	c.Advance(topic.Ref{ID: id(2), Partition: 3}, 10, 1, 4)
	c.Advance(topic.Ref{ID: id(1), Partition: 0}, 5, topic.NoEpoch, 2)
	c.Advance(topic.Ref{ID: id(2), Partition: 1}, 7, 1, 4)
	c.Advance(topic.Ref{ID: id(2), Partition: 3}, 11, 2, 4)
	c.Remove(topic.Ref{ID: id(2), Partition: 2})
	c.Remove(topic.Ref{ID: id(3), Partition: 2})
	want := []topic.GroupCommit{
		{Ref: topic.Ref{ID: id(1), Partition: 0}, Next: 5, LastEpoch: topic.NoEpoch, Assigned: 2},
		{Ref: topic.Ref{ID: id(2), Partition: 1}, Next: 7, LastEpoch: 1, Assigned: 4},
		{Ref: topic.Ref{ID: id(2), Partition: 3}, Next: 11, LastEpoch: 2, Assigned: 4},
	}
	if got := c.Commits(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, nowhere := range []topic.Ref{{ID: id(2), Partition: 2}, {ID: id(3), Partition: 1}} {
		if part, found := c.Part(nowhere); found {
			t.Errorf("%v is %+v", nowhere, part)
		}
	}
	if err := c.CheckGroup("billing"); err != nil {
		t.Error(err)
	}
	if err := c.CheckGroup("billing2"); !fault.Is(err, fault.InvalidCursor) || !strings.Contains(err.Error(), `"billing2"`) {
		t.Error(err)
	}
}

// A cursor of the other kind is refused by a sentence that says which is which.
func TestCursorsOfTheOtherKind(t *testing.T) {
	_, err := topic.ParseGroupCursor(topic.Cursor{}.String())
	if !fault.Is(err, fault.InvalidCursor) || !strings.Contains(err.Error(), `reader without a group; those of a group begin with "g1."`) {
		t.Error(err)
	}
	_, err = topic.ParseCursor(billing().String())
	if !fault.Is(err, fault.InvalidCursor) || !strings.Contains(err.Error(), `consumer group; those of a reader without a group begin with "c1."`) {
		t.Error(err)
	}
	// Somebody who mends the first letter alone gets no position either.
	if c, err := topic.ParseCursor("c" + billing().String()[1:]); !fault.Is(err, fault.InvalidCursor) {
		t.Error(c, err)
	}
	if c, err := topic.ParseGroupCursor("g" + topic.Cursor{}.String()[1:]); !fault.Is(err, fault.InvalidCursor) {
		t.Error(c, err)
	}
}

// groupCursorText makes the text of bytes that need not be a cursor.
func groupCursorText(b ...byte) string {
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return "g1." + base64.RawURLEncoding.EncodeToString(b)
}

func TestParseGroupCursorRefuses(t *testing.T) {
	one, two := id(1), id(2)
	with := func(parts ...[]byte) string { return groupCursorText(slices.Concat(parts...)...) }
	head := []byte{1, 0xde, 0xad, 0xbe, 0xef, 12, 1}
	most := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}
	part := []byte{1, 0, 0, 108, 16, 3}
	good := with(head, one[:], []byte{2, 0, 0, 108, 16, 3, 0, 0, 9})
	if c, err := topic.ParseGroupCursor(good); err != nil || c.Group != 0xdeadbeef || c.Epoch != 12 || len(c.Topics[0].Parts) != 2 ||
		c.Topics[0].Parts[1] != (topic.GroupCursorPart{Partition: 2, Next: 4, LastEpoch: 7, Assigned: 3}) {
		t.Fatal("the cursor that the others differ from:", c, err)
	}
	for name, text := range map[string]string{
		"nothing":                    "",
		"another version":            "g2." + good[3:],
		"only a prefix":              "g1.",
		"no checksum":                "g1.AAA",
		"padding":                    good + "=",
		"a line end":                 good[:9] + "\n" + good[9:],
		"cut":                        good[:len(good)-4],
		"one letter changed":         good[:8] + "z" + good[9:],
		"too long":                   "g1." + strings.Repeat("A", topic.MaxCursorBytes),
		"no kind":                    with(nil),
		"another kind":               with([]byte{0}, head[1:], one[:], part),
		"half a group":               with(head[:3]),
		"no epoch":                   with(head[:5]),
		"no number of topics":        with(head[:6]),
		"more topics than bytes":     with(head[:6], []byte{9}, one[:], part),
		"a huge number of topics":    with(head[:6], most),
		"a huge epoch":               with(head[:5], most, []byte{0}),
		"half an id":                 with(head, one[:9]),
		"topics out of order":        with(head[:6], []byte{2}, two[:], part, one[:], part),
		"a topic twice":              with(head[:6], []byte{2}, one[:], part, one[:], part),
		"a topic without partitions": with(head, one[:], []byte{0, 0, 0, 0}),
		"something behind":           with(head, one[:], part, []byte{0}),
		"a long zero":                with(head, one[:], []byte{1, 0x80, 0, 0, 108, 16, 3}),
		"more runs than bytes":       with(head, one[:], []byte{9, 0, 0, 108, 16, 3}),
		"more partitions than bytes": with(head, one[:], []byte{1, 0, 9, 108, 16, 3}),
		"no last epoch":              with(head, one[:], []byte{1, 0, 0, 108}),
		"no assignment":              with(head, one[:], []byte{1, 0, 0, 108, 16}),
		"a huge partition":           with(head, one[:], []byte{1, 0x80, 0x80, 0x80, 0x80, 0x08, 0, 108, 16, 3}),
		"partitions beyond the last": with(head, one[:], []byte{1, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 108, 16, 3, 9}),
		"a huge last epoch":          with(head, one[:], []byte{1, 0, 0, 108, 0x82, 0x80, 0x80, 0x80, 0x10, 3}),
		"a huge assignment":          with(head, one[:], []byte{1, 0, 0, 108, 16}, most),
		"epochs said twice":          with(head, one[:], []byte{1, 0, 1, 108, 16, 3, 108, 17}),
		"an assignment said twice":   with(head, one[:], []byte{1, 0, 1, 108, 16, 3, 108, 18, 3}),
		"a gap that is too wide":     with(head, one[:], []byte{2, 0, 0, 108, 16, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 9}),
	} {
		if c, err := topic.ParseGroupCursor(text); !fault.Is(err, fault.InvalidCursor) {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
}

// FuzzParseGroupCursor: what is read has one text, and that is the one that was read.
func FuzzParseGroupCursor(f *testing.F) {
	for _, c := range []topic.GroupCursor{{}, billing(), {Group: 7, Epoch: math.MaxInt64, Topics: []topic.GroupCursorTopic{{ID: id(1), Parts: []topic.GroupCursorPart{{0, 5, 1, 1}, {1, 1 << 40, 2, 1}, {9, 0, -1, 0}}}}}} {
		b, err := base64.RawURLEncoding.DecodeString(c.String()[3:])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-4], true)
		f.Add([]byte(c.String()), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, payload bool) {
		text := string(b)
		if payload { // sealed, or the checksum would stop every change
			text = groupCursorText(b...)
		}
		c, err := topic.ParseGroupCursor(text)
		if err != nil {
			if !fault.Is(err, fault.InvalidCursor) {
				t.Fatal(err)
			}
			return
		}
		if c.String() != text {
			t.Fatalf("%s is also %s", text, c)
		}
		last := topic.Ref{}
		for i, one := range c.Commits() {
			if one.Next < 0 || one.Ref.Partition < 0 || one.LastEpoch < topic.NoEpoch || one.Assigned < topic.NoGroupEpoch || c.Epoch < 0 {
				t.Fatalf("%+v", one)
			}
			if order := slices.Compare(last.ID[:], one.Ref.ID[:]); i > 0 && (order > 0 || order == 0 && last.Partition >= one.Ref.Partition) {
				t.Fatalf("%v stands before %v", last, one.Ref)
			}
			last = one.Ref
		}
	})
}

func BenchmarkGroupCursor(b *testing.B) {
	c := topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 700}
	for p := range topic.Partition(12) {
		c.Advance(topic.Ref{ID: id(9), Partition: p}, 1<<30+topic.Offset(p), 3, 690)
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var text []byte
		for b.Loop() {
			text = c.Append(text[:0])
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		text := c.String()
		for b.Loop() {
			if _, err := topic.ParseGroupCursor(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
