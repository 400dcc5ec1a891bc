package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

const testPage = 1024

// sample is a small file with all that a file may have: tables with branches, small tables within a page,
// tables in tables, values over several pages, empty ones, pages that are free.
func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	options := Options()
	options.PageSize = testPage
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		db.Update(func(tx *bbolt.Tx) error {
			wide, err := tx.CreateBucket([]byte("wide"))
			for i := range 150 {
				err = errors.Join(err, wide.Put(fmt.Appendf(nil, "key-%03d", i), bytes.Repeat([]byte{byte(i)}, i%40)))
			}
			long, err2 := tx.CreateBucket([]byte("long"))
			err = errors.Join(err, err2, long.Put([]byte("a"), bytes.Repeat([]byte("a"), 3*testPage)), long.Put([]byte("b"), nil))
			outer, err2 := tx.CreateBucket([]byte("outer"))
			err = errors.Join(err, err2)
			for i := range 3 {
				inner, err2 := outer.CreateBucket([]byte{'0' + byte(i)})
				err = errors.Join(err, err2, inner.Put([]byte("x"), bytes.Repeat([]byte("x"), i*400)), inner.Put([]byte("y"), []byte("z")))
			}
			_, err2 = tx.CreateBucket([]byte("empty"))
			return errors.Join(err, err2)
		}),
		db.Update(func(tx *bbolt.Tx) error {
			wide := tx.Bucket([]byte("wide"))
			return errors.Join(wide.Delete([]byte("key-007")), wide.Put([]byte("key-100"), []byte("new")), tx.Bucket([]byte("long")).Put([]byte("a"), []byte("short")),
				tx.Bucket([]byte("long")).Put([]byte("c"), bytes.Repeat([]byte("c"), 2*testPage)))
		}),
		db.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHead(bytes.NewReader(b), testPage)
	if err != nil || int(h.end)*testPage > len(b) {
		t.Fatal(h, len(b), err)
	}
	return b[:int(h.end)*testPage]
}

// use opens the bytes as a file, for writing, and writes in every table. It is where bbolt would panic.
func use(t testing.TB, path string, b []byte) error {
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := Open(path, nil)
	if err != nil {
		return err
	}
	err = Guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, table *bbolt.Bucket) error {
				if table == nil {
					return nil // a row in the place of a table: the owner's check is there for that
				}
				if err := Rows(table, func(_, _ []byte) error { return nil }); err != nil {
					return err
				}
				first, _ := table.Cursor().First()
				if first = bytes.Clone(first); first != nil && table.Bucket(first) == nil {
					if err := table.Delete(first); err != nil {
						return err
					}
				}
				return table.Put([]byte("zzz"), bytes.Repeat([]byte{1}, 700))
			})
		})
	})
	return errors.Join(err, db.Close())
}

func TestASoundFile(t *testing.T) {
	b := sample(t)
	if err := checkPages(bytes.NewReader(b), int64(len(b)), testPage); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f.db")
	if err := use(t, path, b); err != nil {
		t.Fatal(err)
	}
	if err := Walk(path, nil); err != nil {
		t.Errorf("after it was written to: %v", err)
	}

	// One that was made and never written to has its free pages in a list.
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	db, err := bbolt.Open(fresh, 0o600, Options())
	if err := errors.Join(err, Walk(fresh, nil)); !errors.Is(err, ErrLocked) || IsDamage(err) {
		t.Errorf("while it is open: %v", err)
	}
	if err := errors.Join(db.Close(), Walk(fresh, nil)); err != nil {
		t.Error(err)
	}
	synced := filepath.Join(t.TempDir(), "synced.db")
	db, err = bbolt.Open(synced, 0o600, nil) // bbolt's own options write that list each time
	err = errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("a"))
		return err
	}), db.Close(), Walk(synced, nil))
	if err != nil {
		t.Error(err)
	}

	if err := Walk(filepath.Join(t.TempDir(), "nowhere.db"), nil); !errors.Is(err, os.ErrNotExist) || IsDamage(err) {
		t.Errorf("without a file: %v", err)
	}
	if err := Walk(t.TempDir(), nil); err == nil || IsDamage(err) {
		t.Errorf("a directory: %v", err)
	}
	bad := errors.New("a row is wrong")
	if err := Walk(path, func(*bbolt.Tx) error { return bad }); !errors.Is(err, bad) || IsDamage(err) {
		t.Errorf("with an error of the check: %v", err)
	}
	if err := Walk(path, func(*bbolt.Tx) error { panic("at a row") }); !IsDamage(err) {
		t.Errorf("with a panic of the check: %v", err)
	}
	if err := Walk(path, nil); err != nil { // the panic has let go of the lock
		t.Error(err)
	}
}

func TestEveryCutIsDamage(t *testing.T) {
	b := sample(t)
	for n := range b {
		if err := checkPages(bytes.NewReader(b[:n]), int64(n), testPage); !IsDamage(err) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	path := filepath.Join(t.TempDir(), "f.db")
	for n := 0; n <= len(b); n += 97 {
		if err := use(t, path, b[:min(n, len(b)-1)]); !IsDamage(err) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestAnyDamageIsRefusedOrHarmless changes a bit of every byte. Of the files that pass, some are used: a panic
// of bbolt, in a goroutine of its own, would end the test.
func TestAnyDamageIsRefusedOrHarmless(t *testing.T) {
	b := sample(t)
	path := filepath.Join(t.TempDir(), "f.db")
	rng := rand.New(rand.NewPCG(3, 7))
	refused, used := 0, 0
	bits := []int{-1}
	if os.Getenv("WEIR_SOAK") != "" {
		bits = []int{0, 1, 2, 3, 4, 5, 6, 7}
	}
	for i := range b {
		for _, bit := range bits {
			if bit < 0 {
				bit = rng.IntN(8)
			}
			b[i] ^= 1 << bit
			switch err := checkPages(bytes.NewReader(b), int64(len(b)), testPage); {
			case IsDamage(err):
				refused++
			case err != nil:
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			case rng.IntN(200) == 0: // some, a file is made and synced for each
				used++
				if err := use(t, path, b); err != nil {
					t.Errorf("bit %d of byte %d passed the walk, and then: %v", bit, i, err)
				}
			}
			b[i] ^= 1 << bit
		}
	}
	t.Logf("of %d bytes with a bit changed %d were refused, %d of the others used", len(b), refused, used)
	if refused < 300 || used < 20 {
		t.Error("too few were refused or used")
	}
}

func TestNoiseIsDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "f.db")
	for n := 0; n < 40_000; n += 1 + rng.IntN(3000) {
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		if err := use(t, path, noise); !IsDamage(err) {
			t.Fatalf("%d bytes of noise: %v", n, err)
		}
	}
}

// TestWhatBboltWouldStumbleOver makes mistakes that a changed bit hardly makes, and names what is said of each.
func TestWhatBboltWouldStumbleOver(t *testing.T) {
	whole := sample(t)
	find := func(kind uint16, least int) int { // a page of a kind with so many elements
		h, _ := readHead(bytes.NewReader(whole), testPage)
		p := pages{file: bytes.NewReader(whole), pageSize: testPage, end: h.end, met: make([]bool, h.end)}
		if err := p.tree(h.root, nil, nil, 0); err != nil {
			t.Fatal(err)
		}
		for number := 2; number < int(h.end); number++ {
			at := number * testPage
			if p.met[number] && order.Uint16(whole[at+8:]) == kind && int(order.Uint16(whole[at+10:])) >= least && order.Uint64(whole[at:]) == uint64(number) {
				return at
			}
		}
		t.Fatal("no such page")
		return 0
	}
	branch, leaf := find(branchPage, 3), find(leafPage, 5)
	for name, scene := range map[string]struct {
		spoil func(b []byte)
		says  string
	}{
		"one page for two":                    {func(b []byte) { copy(b[branch+pageHead+8:branch+pageHead+16], b[branch+pageHead+24:]) }, "belongs to the page after it"},
		"a circle":                            {func(b []byte) { order.PutUint64(b[branch+pageHead+8:], order.Uint64(b[branch:])) }, "in two places"},
		"a page that is not there":            {func(b []byte) { order.PutUint64(b[branch+pageHead+8:], 1<<40) }, "refers to page"},
		"a head as a page":                    {func(b []byte) { order.PutUint64(b[branch+pageHead+8:], 1) }, "refers to page"},
		"pages that overlap":                  {func(b []byte) { order.PutUint32(b[leaf+12:], 2) }, "in two places"},
		"more pages than there are":           {func(b []byte) { order.PutUint32(b[leaf+12:], 1<<31) }, "more, of"},
		"fewer elements":                      {func(b []byte) { order.PutUint16(b[leaf+10:], order.Uint16(b[leaf+10:])-1) }, "not packed"},
		"no elements in a branch":             {func(b []byte) { order.PutUint16(b[branch+10:], 0) }, "refers to nothing"},
		"a key without end":                   {func(b []byte) { order.PutUint32(b[leaf+pageHead+8:], 1<<31) }, "not packed"},
		"an empty key":                        {func(b []byte) { order.PutUint32(b[leaf+pageHead+8:], 0) }, "not packed"},
		"another kind":                        {func(b []byte) { order.PutUint16(b[leaf+8:], 0x20) }, "of kind"},
		"another number":                      {func(b []byte) { order.PutUint64(b[leaf:], 3) }, "says that it is page"},
		"a table within a page with a number": {func(b []byte) { b[bytes.LastIndex(b, []byte("empty"))+5+tableHead+2] = 4 }, "a table within page"},
		"both heads":                          {func(b []byte) { b[pageHead+20]++; b[testPage+pageHead+20]++ }, "neither head"},
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(whole)
			scene.spoil(b)
			if err := checkPages(bytes.NewReader(b), int64(len(b)), testPage); !IsDamage(err) || !strings.Contains(err.Error(), scene.says) {
				t.Errorf("%q is not in: %v", scene.says, err)
			}
			if err := use(t, filepath.Join(t.TempDir(), "f.db"), b); !IsDamage(err) {
				t.Errorf("used: %v", err)
			}
		})
	}
	disk := errors.New("input/output error")
	if err := checkPages(failing{disk}, int64(len(whole)), testPage); !errors.Is(err, disk) || IsDamage(err) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestDirectoriesAndNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := errors.Join(MakeDir(dir), MakeDir(dir)); err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(dir, "new"), filepath.Join(dir, "name")
	if err := errors.Join(os.WriteFile(from, []byte("x"), 0o600), Rename(from, to)); err != nil {
		t.Fatal(err)
	}
	if err := Rename(from, to); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzOpen writes anything anywhere into a sound file.
func FuzzOpen(f *testing.F) {
	b := sample(f)
	f.Add(uint16(0), []byte{})
	f.Add(uint16(2*testPage), []byte{9, 0, 0, 0, 0, 0, 0, 0, 2, 0})
	f.Add(uint16(4*testPage+8), []byte{1, 0, 3, 0, 1, 0, 0, 0, 16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, at uint16, over []byte) {
		bad := bytes.Clone(b)
		copy(bad[min(int(at), len(bad)):], over)
		if err := use(t, filepath.Join(t.TempDir(), "f.db"), bad); err != nil && !IsDamage(err) {
			t.Fatal(err)
		}
	})
}
