package topic_test

import (
	"bytes"
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

func id(b byte) topic.ID { return topic.ID(bytes.Repeat([]byte{b}, 16)) }

// The texts are a promise: a client may keep one for years.
func TestCursorGoldenTexts(t *testing.T) {
	for text, c := range map[string]topic.Cursor{
		"c1.AADxYXfS":                        {},
		"c1.AAEBAQEBAQEBAQEBAQEBAQEBAeLy1AE": {Topics: []topic.CursorTopic{{ID: id(1), Whole: true}}},
		"c1.AAEBAQEBAQEBAQEBAQEBAQEBAwACbAhuAQEHtEP1": {Topics: []topic.CursorTopic{{ID: id(1), Whole: true, Parts: []topic.CursorPart{
			{Partition: 0, Next: 54, LastEpoch: 7}, {Partition: 1, Next: 55, LastEpoch: 0}, {Partition: 2, Next: 0, LastEpoch: 0},
		}}}},
	} {
		if got := c.String(); got != text {
			t.Errorf("%+v is %s, want %s", c, got, text)
		}
		got, err := topic.ParseCursor(text)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s is %+v, want %+v (%v)", text, got, c, err)
		}
	}
}

func cursors() *rapid.Generator[topic.Cursor] {
	part := rapid.Custom(func(t *rapid.T) topic.CursorPart {
		return topic.CursorPart{
			Partition: topic.Partition(rapid.OneOf(rapid.Int32Range(0, 9), rapid.Int32Range(0, math.MaxInt32)).Draw(t, "partition")),
			Next:      topic.Offset(rapid.OneOf(rapid.Int64Range(0, 99), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "next")),
			LastEpoch: topic.Epoch(rapid.OneOf(rapid.Int32Range(-1, 2), rapid.Int32Range(-1, math.MaxInt32)).Draw(t, "epoch")),
		}
	})
	return rapid.Custom(func(t *rapid.T) topic.Cursor {
		var c topic.Cursor
		for _, b := range rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "topics") {
			position := c.Add(id(b))
			position.Whole = rapid.Bool().Draw(t, "whole")
			for _, p := range rapid.SliceOfN(part, 0, 20).Draw(t, "parts") {
				position.Advance(p.Partition, p.Next, p.LastEpoch)
			}
		}
		return c
	})
}

func TestCursorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cursors().Draw(t, "cursor")
		text := c.String()
		if strings.ContainsFunc(text, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
		}) {
			t.Fatalf("%s does not go into a URL as it is", text)
		}
		got, err := topic.ParseCursor(text)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v came back as %+v (%v)", c, got, err)
		}
	})
}

// A cursor goes into queries and headers, which have 16 KiB.
func TestCursorOfAThousandPartitions(t *testing.T) {
	var c topic.Cursor
	for p := range topic.Partition(1000) {
		c.Advance(topic.Ref{ID: id(9), Partition: p}, 1<<40+topic.Offset(p)*987654321, topic.Epoch(p%5))
	}
	if n := len(c.String()); n > 10<<10 {
		t.Errorf("offsets of a trillion and many epochs take %d bytes", n)
	}
	for i := range c.Topics[0].Parts {
		c.Topics[0].Parts[i].LastEpoch = 3
	}
	if n := len(c.String()); n > 8200 {
		t.Errorf("one epoch: %d bytes", n)
	}
	if _, err := topic.ParseCursor(c.String()); err != nil {
		t.Error(err)
	}
}

// text makes the text of bytes that need not be a cursor.
func cursorText(b ...byte) string {
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return "c1." + base64.RawURLEncoding.EncodeToString(b)
}

func TestParseCursorRefuses(t *testing.T) {
	one, two := id(1), id(2)
	with := func(parts ...[]byte) string { return cursorText(slices.Concat(parts...)...) }
	good := with([]byte{0, 1}, one[:], []byte{2 << 1, 0, 0, 9, 3, 0, 9})
	if c, err := topic.ParseCursor(good); err != nil || len(c.Topics[0].Parts) != 2 || c.Topics[0].Parts[1].Partition != 5 {
		t.Fatal("the cursor that the others differ from:", c, err)
	}
	for name, text := range map[string]string{
		"nothing":                    "",
		"half a prefix":              "c1",
		"another version":            "c2." + good[3:],
		"only a prefix":              "c1.",
		"no checksum":                "c1.AAA",
		"padding":                    good + "=",
		"a line end":                 good[:9] + "\n" + good[9:],
		"the other base64":           strings.Replace(good, "_", "/", 1) + "+",
		"cut":                        good[:len(good)-4],
		"one letter changed":         good[:8] + "z" + good[9:],
		"too long":                   "c1." + strings.Repeat("A", topic.MaxCursorBytes),
		"another kind":               with([]byte{1, 1}, one[:], []byte{0}),
		"no kind":                    with(nil),
		"no number of topics":        with([]byte{0}),
		"more topics than bytes":     with([]byte{0, 9}, one[:], []byte{0}),
		"a huge number of topics":    with([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}),
		"half an id":                 with([]byte{0, 1}, one[:9]),
		"topics out of order":        with([]byte{0, 2}, two[:], []byte{0}, one[:], []byte{0}),
		"a topic twice":              with([]byte{0, 2}, one[:], []byte{0}, one[:], []byte{0}),
		"something behind":           with([]byte{0, 1}, one[:], []byte{0, 0}),
		"a long zero":                with([]byte{0, 1}, one[:], []byte{0x80, 0}),
		"more runs than bytes":       with([]byte{0, 1}, one[:], []byte{9 << 1, 0, 0, 9}),
		"more partitions than bytes": with([]byte{0, 1}, one[:], []byte{1 << 1, 0, 9, 9}),
		"no offset":                  with([]byte{0, 1}, one[:], []byte{1 << 1, 0, 0, 8}),
		"a number of eleven bytes":   with([]byte{0, 1}, one[:], []byte{1 << 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}),
		"a huge partition":           with([]byte{0, 1}, one[:], []byte{1 << 1, 0x80, 0x80, 0x80, 0x80, 0x08, 0, 9}),
		"partitions beyond the last": with([]byte{0, 1}, one[:], []byte{1 << 1, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 9, 9}),
		"a huge epoch":               with([]byte{0, 1}, one[:], []byte{1 << 1, 0, 0, 8, 0x81, 0x80, 0x80, 0x80, 0x08}),
		"an epoch said twice":        with([]byte{0, 1}, one[:], []byte{1 << 1, 0, 1, 8, 4, 8, 4}),
	} {
		if c, err := topic.ParseCursor(text); !fault.Is(err, fault.InvalidCursor) {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
}

func TestCursorSteps(t *testing.T) {
	var c topic.Cursor
	c.Advance(topic.Ref{ID: id(2), Partition: 3}, 10, 1)
	c.Advance(topic.Ref{ID: id(1), Partition: 0}, 5, topic.NoEpoch)
	c.Advance(topic.Ref{ID: id(2), Partition: 1}, 7, 1)
	c.Advance(topic.Ref{ID: id(2), Partition: 3}, 11, 2)
	want := topic.Cursor{Topics: []topic.CursorTopic{
		{ID: id(1), Parts: []topic.CursorPart{{0, 5, topic.NoEpoch}}},
		{ID: id(2), Parts: []topic.CursorPart{{1, 7, 1}, {3, 11, 2}}},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Fatalf("%+v", c)
	}
	if part, found := c.Topic(id(2)).Part(3); !found || part.Next != 11 {
		t.Error(part, found)
	}
	if _, found := c.Topic(id(2)).Part(2); found {
		t.Error("there is a partition 2")
	}
	if c.Topic(id(3)) != nil {
		t.Error("there is a topic 3")
	}
	other := c.Clone()
	c.Topic(id(2)).Remove(1)
	c.Topic(id(2)).Remove(1)
	c.Advance(topic.Ref{ID: id(2), Partition: 3}, 12, 2)
	if _, found := c.Topic(id(2)).Part(1); found || !reflect.DeepEqual(other, want) {
		t.Error("a clone shares with its origin, or nothing was removed")
	}
}

// FuzzParseCursor: what is read has one text, and that is the one that was read.
func FuzzParseCursor(f *testing.F) {
	for _, c := range []topic.Cursor{{}, {Topics: []topic.CursorTopic{{ID: id(1), Whole: true, Parts: []topic.CursorPart{{0, 5, 1}, {1, 1 << 40, 2}, {9, 0, -1}}}}}} {
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
			text = cursorText(b...)
		}
		c, err := topic.ParseCursor(text)
		if err != nil {
			if !fault.Is(err, fault.InvalidCursor) {
				t.Fatal(err)
			}
			return
		}
		if c.String() != text {
			t.Fatalf("%s is also %s", text, c)
		}
		for i, position := range c.Topics {
			if !slices.IsSortedFunc(position.Parts, func(a, b topic.CursorPart) int { return int(a.Partition) - int(b.Partition) }) {
				t.Fatalf("topic %d is out of order", i)
			}
			for _, part := range position.Parts {
				if part.Next < 0 || part.Partition < 0 || part.LastEpoch < topic.NoEpoch {
					t.Fatalf("%+v", part)
				}
			}
		}
	})
}

func BenchmarkCursor(b *testing.B) {
	var c topic.Cursor
	for p := range topic.Partition(12) {
		c.Advance(topic.Ref{ID: id(9), Partition: p}, 1<<30+topic.Offset(p), 3)
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
			if _, err := topic.ParseCursor(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
