package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"testing"
)

// TestEveryValueHasItsBytes has the bytes by hand, so that no change of both sides at once goes unseen.
func TestEveryValueHasItsBytes(t *testing.T) {
	id := [16]byte{0: 0xa0, 15: 0xaf}
	for _, c := range []struct {
		name  string
		write func(w *Writer)
		read  func(r *Reader) bool
		want  string
	}{
		{"byte", func(w *Writer) { w.Byte(0xfe) }, func(r *Reader) bool { return r.Byte() == 0xfe }, "fe"},
		{"choice", func(w *Writer) { w.Byte(2) }, func(r *Reader) bool { return r.Choice(2) == 2 }, "02"},
		{"raw", func(w *Writer) { w.Raw([]byte("ab")) }, func(r *Reader) bool { return string(r.Raw(2)) == "ab" }, "6162"},
		{"id", func(w *Writer) { w.ID(id) }, func(r *Reader) bool { return r.ID() == id }, "a00000000000000000000000000000af"},
		{"0", func(w *Writer) { w.Uint(0) }, func(r *Reader) bool { return r.Uint() == 0 }, "00"},
		{"127", func(w *Writer) { w.Uint(127) }, func(r *Reader) bool { return r.Uint() == 127 }, "7f"},
		{"128", func(w *Writer) { w.Uint(128) }, func(r *Reader) bool { return r.Number(128) == 128 }, "8001"},
		{"most", func(w *Writer) { w.Uint(math.MaxUint64) }, func(r *Reader) bool { return r.Uint() == math.MaxUint64 }, "ffffffffffffffffff01"},
		{"-1", func(w *Writer) { w.Int(-1) }, func(r *Reader) bool { return r.Int() == -1 }, "01"},
		{"1", func(w *Writer) { w.Int(1) }, func(r *Reader) bool { return r.Whole() == 1 }, "02"},
		{"least", func(w *Writer) { w.Int(math.MinInt64) }, func(r *Reader) bool { return r.Int() == math.MinInt64 }, "ffffffffffffffffff01"},
		{"least of 32 bits", func(w *Writer) { w.Int(math.MinInt32) }, func(r *Reader) bool { return r.Int32() == math.MinInt32 }, "ffffffff0f"},
		{"count", func(w *Writer) { w.Count(1); w.Raw([]byte("ab")) }, func(r *Reader) bool { return r.Count(2) == 1 && len(r.Raw(2)) == 2 }, "016162"},
		{"bytes", func(w *Writer) { w.Bytes([]byte("ab")) }, func(r *Reader) bool { return string(r.Bytes()) == "ab" }, "026162"},
		{"text", func(w *Writer) { w.Text("ab") }, func(r *Reader) bool { return r.Text() == "ab" }, "026162"},
		{"no text", func(w *Writer) { w.Text("") }, func(r *Reader) bool { return r.Text() == "" }, "00"},
		{
			"texts", func(w *Writer) { w.Texts(map[string]string{"b": "", "": "x"}) },
			func(r *Reader) bool { return maps.Equal(r.Texts(), map[string]string{"b": "", "": "x"}) }, "02000178016200",
		},
		{"no texts", func(w *Writer) { w.Texts(nil) }, func(r *Reader) bool { return r.Texts() == nil }, "00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Writer
			c.write(&w)
			if got := hex.EncodeToString(w); got != c.want {
				t.Fatalf("%s was written, want %s", got, c.want)
			}
			r := NewReader(w)
			if same := c.read(&r); !same || r.End() != nil {
				t.Errorf("it was read as another value, or with %v", r.End())
			}
			for n := range w {
				r := NewReader(w[:n:n])
				c.read(&r)
				if !errors.Is(r.End(), ErrShort) {
					t.Errorf("the first %d of %d bytes: %v, want %v", n, len(w), r.End(), ErrShort)
				}
			}
			r = NewReader(append(w, 0))
			c.read(&r)
			if !errors.Is(r.End(), ErrLong) {
				t.Errorf("a byte more: %v, want %v", r.End(), ErrLong)
			}
		})
	}
}

func TestOtherFormsAreRefused(t *testing.T) {
	number := func(r *Reader) any { return r.Uint() }
	for _, c := range []struct {
		name string
		b    string
		read func(r *Reader) any
		want error
	}{
		{"0 in two bytes", "8000", number, ErrForm},
		{"1 in three bytes", "818000", number, ErrForm},
		{"a long form before a cut", "8080", number, ErrShort},
		{"65 bits", "ffffffffffffffffff02", number, ErrForm},
		{"eleven bytes", "8080808080808080808001", number, ErrForm},
		{"a number in a long form", "8100", func(r *Reader) any { return r.Int() }, ErrForm},
		{"a length in a long form", "810061", func(r *Reader) any { return r.Text() }, ErrForm},
		{"2^31", "8080808010", func(r *Reader) any { return r.Int32() }, ErrForm},
		{"above the most", "09", func(r *Reader) any { return r.Number(8) }, ErrForm},
		{"above the last choice", "03", func(r *Reader) any { return r.Choice(2) }, ErrForm},
		{"more things than bytes", "0361", func(r *Reader) any { return r.Count(1) }, ErrShort},
		{"things larger than the bytes", "02616263", func(r *Reader) any { return r.Count(2) }, ErrShort},
		{"the most things", "ffffffffffffffffff01", func(r *Reader) any { return r.Count(1) }, ErrShort},
		{"keys that descend", "02016200016100", func(r *Reader) any { return len(r.Texts()) }, ErrOrder},
		{"a key twice", "02016100016100", func(r *Reader) any { return len(r.Texts()) }, ErrOrder},
		{"an empty key twice", "0200000000", func(r *Reader) any { return len(r.Texts()) }, ErrOrder},
	} {
		b, err := hex.DecodeString(c.b)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(b)
		v := c.read(&r)
		switch v {
		case uint64(0), int64(0), int32(0), 0, byte(0), "":
		default:
			t.Errorf("%s: %v was returned, want a zero value", c.name, v)
		}
		if !errors.Is(r.Err(), c.want) || !errors.Is(r.End(), c.want) {
			t.Errorf("%s: %v, want %v", c.name, r.Err(), c.want)
		}
	}
}

func TestTheFirstMistakeStays(t *testing.T) {
	r := NewReader([]byte{0x80, 0, 7, 7})
	if v := r.Uint(); v != 0 || !errors.Is(r.Err(), ErrForm) {
		t.Fatalf("%d, %v", v, r.Err())
	}
	r.Fail(ErrOrder)
	if r.Byte() != 0 || r.Int() != 0 || r.Text() != "" || r.Bytes() != nil || r.Texts() != nil || r.ID() != [16]byte{} {
		t.Error("a value came after a mistake")
	}
	if !errors.Is(r.End(), ErrForm) {
		t.Errorf("%v, want %v", r.End(), ErrForm)
	}
}

func TestBytesAreACopyAndAViewIsNone(t *testing.T) {
	b := []byte{1, 'a', 1, 'b'}
	r := NewReader(b)
	copied, view := r.Bytes(), r.View()
	b[1], b[3] = 'x', 'y'
	if string(copied) != "a" || string(view) != "y" {
		t.Errorf("%q and %q, want a and y", copied, view)
	}
}

func TestTheChecksumIsOfTheKeyAndTheBytes(t *testing.T) {
	// The check value of CRC-32C, once whole and once with its beginning as the key.
	for _, key := range []string{"", "1234", "123456789"} {
		w := Writer("123456789"[len(key):])
		w.Checksum([]byte(key))
		if got := hex.EncodeToString(w[len(w)-4:]); got != "839206e3" {
			t.Errorf("key %q: %s", key, got)
		}
		if body, err := Checked([]byte(key), w); err != nil || string(body) != "123456789"[len(key):] {
			t.Errorf("key %q: %q, %v", key, body, err)
		}
		for i := range w {
			bad := bytes.Clone(w)
			bad[i] ^= 4
			if _, err := Checked([]byte(key), bad); !errors.Is(err, ErrChecksum) {
				t.Errorf("key %q, byte %d changed: %v", key, i, err)
			}
		}
		if _, err := Checked([]byte("other"), w); !errors.Is(err, ErrChecksum) {
			t.Errorf("another key than %q: %v", key, err)
		}
		if _, err := Checked([]byte(key), w[:3]); !errors.Is(err, ErrShort) {
			t.Errorf("three bytes: %v", err)
		}
	}
}

// FuzzReader takes values of the kinds that plan names, and writes them again: what was read without a
// mistake has only that form.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6}, []byte("\x05\x80\x01\x01\x02\x02ab\x01c\x02\x00\x01x\x01b\x000123456789abcdef"))
	f.Add([]byte{1}, []byte{0x80, 0})
	f.Add([]byte{6}, []byte{2, 1, 'b', 0, 1, 'a', 0})
	f.Fuzz(func(t *testing.T, plan, b []byte) {
		r := NewReader(b)
		var w Writer
		for _, kind := range plan {
			switch kind % 8 {
			case 0:
				w.Byte(r.Byte())
			case 1:
				w.Uint(r.Uint())
			case 2:
				w.Int(r.Int())
			case 3:
				w.Int(int64(r.Int32()))
			case 4:
				w.Bytes(r.Bytes())
			case 5:
				w.Text(r.Text())
			case 6:
				w.Texts(r.Texts())
			case 7:
				w.ID(r.ID())
			}
			if r.Err() != nil {
				break
			}
		}
		if err := r.End(); err == nil && !bytes.Equal(w, b) {
			t.Fatalf("%x was read and is written as %x", b, w)
		}
	})
}
