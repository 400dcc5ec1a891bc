package view

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func open(t testing.TB, path string) *View {
	t.Helper()
	v, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func newView(t testing.TB) *View {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "groups", "view.db"))
}

// load returns the rows of a partition and its position.
func load(t testing.TB, v *View, p topic.Partition) (map[string]string, Position) {
	t.Helper()
	rows := map[string]string{}
	last := ""
	at, err := v.Load(p, func(key, value []byte) error {
		if string(key) <= last {
			t.Errorf("%q after %q", key, last)
		}
		last = string(key)
		rows[last] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if alone, err := v.Position(p); err != nil || alone != at {
		t.Errorf("the position is %+v with the rows and %+v alone (%v)", at, alone, err)
	}
	return rows, at
}

func set(key, value string) Change { return Change{[]byte(key), []byte(value)} }
func gone(key string) Change       { return Change{[]byte(key), nil} }

var life = topic.ID{1, 2, 3}

func to(end topic.Offset) Position {
	return Position{ID: life, End: end, Epoch: topic.Epoch(end / 3), At: topic.Millis(end * 1000)}
}

func TestRowsAndPosition(t *testing.T) {
	v := newView(t)
	if rows, at := load(t, v, 3); len(rows) > 0 || at != (Position{}) {
		t.Errorf("of a new file: %v %+v", rows, at)
	}
	apply := func(p topic.Partition, at Position, changes ...Change) {
		t.Helper()
		if err := v.Apply(p, at, changes); err != nil {
			t.Fatal(err)
		}
	}
	apply(3, to(10), set("b", "1"), set("a", "2"), set("c", ""), set("b", "3"))
	apply(3, to(12), gone("a"), gone("never"), set("d", "4"), gone("d"))
	apply(4, Position{ID: life, End: 1, Epoch: topic.NoEpoch, At: topic.NoTimestamp})
	check := func() {
		t.Helper()
		if rows, at := load(t, v, 3); !reflect.DeepEqual(rows, map[string]string{"b": "3", "c": ""}) || at != to(12) {
			t.Errorf("%v %+v", rows, at)
		}
		if rows, at := load(t, v, 4); len(rows) > 0 || at != (Position{life, 1, topic.NoEpoch, topic.NoTimestamp}) {
			t.Errorf("%v %+v", rows, at)
		}
	}
	check()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Position(3); !fault.Is(err, fault.Closed) {
		t.Errorf("after Close: %v", err)
	}
	if err := v.Apply(3, to(13), nil); !fault.Is(err, fault.Closed) {
		t.Errorf("after Close: %v", err)
	}
	v = open(t, v.path)
	check()

	// What cannot be applied whole is not applied.
	if err := v.ApplyAll([]Update{{3, to(20), []Change{set("x", "1")}}, {5, to(20), []Change{set("", "1")}}}); !fault.Is(err, fault.Internal) {
		t.Errorf("with a row without a key: %v", err)
	}
	check()
	if err := v.ApplyAll([]Update{{3, to(20), []Change{set("x", "1")}}, {5, to(21), []Change{set("y", "1")}}}); err != nil {
		t.Fatal(err)
	}
	if rows, at := load(t, v, 5); rows["y"] != "1" || at != to(21) {
		t.Errorf("%v %+v", rows, at)
	}

	// A reset is of one partition.
	if err := errors.Join(v.Reset(3), v.Reset(3), v.Reset(9)); err != nil {
		t.Fatal(err)
	}
	if rows, at := load(t, v, 3); len(rows) > 0 || at != (Position{}) {
		t.Errorf("after its reset: %v %+v", rows, at)
	}
	if rows, at := load(t, v, 5); rows["y"] != "1" || at != to(21) {
		t.Errorf("after the reset of another: %v %+v", rows, at)
	}
	apply(3, to(2), set("b", "again"))
	if rows, at := load(t, v, 3); !reflect.DeepEqual(rows, map[string]string{"b": "again"}) || at != to(2) {
		t.Errorf("%v %+v", rows, at)
	}
}

func TestTheCallersFunction(t *testing.T) {
	v := newView(t)
	if err := v.Apply(0, to(5), []Change{set("a", "1"), set("b", "2")}); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	calls := 0
	if _, err := v.Load(0, func(_, _ []byte) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	// It may call the View, and what it does to its slices is its own affair.
	_, err := v.Load(0, func(key, value []byte) error {
		err := v.Apply(0, to(6), []Change{{key, append(value, '!')}})
		key[0], value[0] = 'z', 'z'
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows, _ := load(t, v, 0); !reflect.DeepEqual(rows, map[string]string{"a": "1!", "b": "2!"}) {
		t.Error(rows)
	}
	defer func() {
		if recover() == nil {
			t.Error("its panic is gone")
		}
	}()
	_, _ = v.Load(0, func(_, _ []byte) error { panic("a defect") })
}

// TestAgainstAModel does anything in any order, and opens the file anew now and then.
func TestAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 9))
	v := newView(t)
	rows := [3]map[string]string{{}, {}, {}}
	var at [3]Position
	for step := range 300 {
		p := topic.Partition(rng.IntN(3))
		switch rng.IntN(12) {
		case 0:
			if err := v.Reset(p); err != nil {
				t.Fatal(err)
			}
			rows[p], at[p] = map[string]string{}, Position{}
		case 1:
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			v = open(t, v.path)
		default:
			var changes []Change
			for range rng.IntN(40) {
				key := fmt.Sprint("key-", rng.IntN(200))
				if rng.IntN(4) == 0 {
					changes = append(changes, gone(key))
					delete(rows[p], key)
					continue
				}
				value := strings.Repeat("v", rng.IntN(300)*rng.IntN(2)) + fmt.Sprint(step)
				changes = append(changes, set(key, value))
				rows[p][key] = value
			}
			at[p] = to(topic.Offset(step))
			if err := v.Apply(p, at[p], changes); err != nil {
				t.Fatal(err)
			}
		}
		if got, where := load(t, v, p); !maps.Equal(got, rows[p]) || where != at[p] {
			t.Fatalf("step %d, partition %d: %d rows at %+v, want %d at %+v", step, p, len(got), where, len(rows[p]), at[p])
		}
	}
}

// TestRowsThatDoNotFitTheirPosition changes rows behind the ledger's back, as damage would that no page shows.
func TestRowsThatDoNotFitTheirPosition(t *testing.T) {
	for name, spoil := range map[string]func(rows, positions *bbolt.Bucket) error{
		"a changed value": func(rows, _ *bbolt.Bucket) error { return rows.Put([]byte("a"), []byte("9")) },
		"a lost row":      func(rows, _ *bbolt.Bucket) error { return rows.Delete([]byte("b")) },
		"one row more":    func(rows, _ *bbolt.Bucket) error { return rows.Put([]byte("c"), nil) },
		"a byte that went from key to value": func(rows, _ *bbolt.Bucket) error {
			return errors.Join(rows.Delete([]byte("aa")), rows.Put([]byte("a"), []byte("a1")), rows.Put([]byte("aa"), []byte("")))
		},
		"a table for a row": func(rows, _ *bbolt.Bucket) error { _, err := rows.CreateBucket([]byte("t")); return err },
		"another end": func(_, positions *bbolt.Bucket) error {
			b := bytes.Clone(positions.Get(number(7)))
			b[20]++
			return positions.Put(number(7), b)
		},
		"another version": func(_, positions *bbolt.Bucket) error {
			b := bytes.Clone(positions.Get(number(7)))
			b[0]++
			return positions.Put(number(7), b)
		},
		"another's position": func(_, positions *bbolt.Bucket) error {
			return positions.Put(number(7), bytes.Clone(positions.Get(number(8))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t)
			err := v.ApplyAll([]Update{
				{7, to(10), []Change{set("a", "1"), set("aa", "1"), set("b", "2")}},
				{8, to(11), []Change{set("a", "1"), set("aa", "1"), set("b", "2")}},
			})
			err = errors.Join(err, v.db.Update(func(tx *bbolt.Tx) error { return spoil(rowsOf(tx, 7), tx.Bucket(positionTable)) }))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Load(7, func(_, _ []byte) error { t.Error("it was given a row"); return nil }); !fault.Is(err, fault.Corrupt) {
				t.Errorf("Load: %v", err)
			}
			if rows, at := load(t, v, 8); len(rows) != 3 || at != to(11) {
				t.Errorf("the other partition: %v %+v", rows, at)
			}
			whole, err := os.ReadFile(v.path)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Reset(7); err != nil {
				t.Fatal(err)
			}
			if rows, at := load(t, v, 7); len(rows) > 0 || at != (Position{}) {
				t.Errorf("after its reset: %v %+v", rows, at)
			}
			other := filepath.Join(t.TempDir(), "view.db")
			if err := os.WriteFile(other, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if rows, at := load(t, open(t, other), 8); len(rows) > 0 || at != (Position{}) {
				t.Errorf("opened with it: %v %+v", rows, at)
			}
		})
	}
}

// TestTheFileStaysSmall writes the same rows over and over.
func TestTheFileStaysSmall(t *testing.T) {
	v := newView(t)
	const keys, rounds, most = 1000, 200, 2 << 20
	changes := make([]Change, keys)
	var early int64
	for round := range rounds {
		for i := range changes {
			changes[i] = set(fmt.Sprintf("group-%d/topic/%d", i%50, i), strings.Repeat("x", 100+(i+round)%20))
		}
		if err := v.Apply(topic.Partition(round%16), to(topic.Offset(round*keys)), changes[:keys/16]); err != nil {
			t.Fatal(err)
		}
		if err := v.Apply(0, to(topic.Offset(round*keys)), changes); err != nil {
			t.Fatal(err)
		}
		if file, _ := v.Size(); round == rounds/4 {
			early = file
		}
	}
	file, free := v.Size()
	t.Logf("%d bytes, %d of them free", file, free)
	if file > most || file > 2*early || free <= 0 || free >= file {
		t.Errorf("the file has %d bytes, %d of them free; early on it had %d", file, free, early)
	}
	if err := v.Reset(0); err != nil {
		t.Fatal(err)
	}
	if after, more := v.Size(); after != file || more <= free {
		t.Errorf("after a reset the file has %d bytes, %d of them free", after, more)
	}
}

func TestManyAtOnce(t *testing.T) {
	v := newView(t)
	var wg sync.WaitGroup
	for p := range topic.Partition(4) {
		wg.Go(func() {
			for i := range 25 {
				text := fmt.Sprint(i)
				if err := v.Apply(p, to(topic.Offset(i)), []Change{set("a", text), set(fmt.Sprint("k", i%7), text), set("z", text)}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				got := map[string]string{}
				at, err := v.Load((p+1)%4, func(key, value []byte) error { got[string(key)] = string(value); return nil })
				if text := fmt.Sprint(at.End); err != nil || at != (Position{}) && (got["a"] != text || got["z"] != text) {
					t.Errorf("%v at %+v (%v)", got, at, err)
				}
				v.Size()
			}
		})
	}
	wg.Wait()
}

func FuzzParseLedger(f *testing.F) {
	l := ledger{at: to(9), rows: 1, bytes: 2, sum: 3}
	f.Add(l.append(nil, 7))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLedger(b, 7)
		if err == nil && !slices.Equal(l.append(nil, 7), b) {
			t.Fatalf("%x is read as %+v", b, l)
		}
	})
}
