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
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/topic"
)

// small is a file with a few partitions, and what is in it.
func small(t testing.TB) (file []byte, rows map[string]string) {
	t.Helper()
	v := newView(t)
	rows = map[string]string{}
	var changes []Change
	for i := range 60 {
		key, value := fmt.Sprintf("key-%02d", i), strings.Repeat(fmt.Sprint(i), 1+i)
		rows[key] = value
		changes = append(changes, set(key, value))
	}
	for end := range topic.Offset(3) {
		if err := v.ApplyAll([]Update{{0, to(end), changes}, {5, to(end), changes[:2]}, {6, to(end), nil}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(v.path)
	if err != nil {
		t.Fatal(err)
	}
	return file, rows
}

// outcome opens the bytes as a view, which must work, and says whether it was made anew.
func outcome(t *testing.T, file []byte, rows map[string]string) (anew bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "view.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	v := open(t, path)
	got, at := load(t, v, 0)
	aside, err := os.ReadFile(path + asideSuffix + "1")
	switch {
	case err == nil:
		anew = true
		if len(got) > 0 || at != (Position{}) || !bytes.Equal(aside, file) {
			t.Errorf("made anew with %d rows at %+v; aside are %d bytes of %d", len(got), at, len(aside), len(file))
		}
	case !errors.Is(err, os.ErrNotExist):
		t.Error(err)
	// Without the newest head the file is as it was one transaction before.
	case !maps.Equal(got, rows) || at != to(2) && at != to(1):
		t.Errorf("%d rows of %d at %+v", len(got), len(rows), at)
	}
	err = errors.Join(v.Apply(0, to(9), []Change{set("key-00", "new")}), v.Close(), os.RemoveAll(dir))
	if err != nil {
		t.Error(err)
	}
	return anew
}

func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

func TestEveryCutIsMadeAnew(t *testing.T) {
	file, rows := small(t)
	step := 509
	if soak() {
		step = 7
	}
	for n := 0; n < len(file); n += step {
		if !outcome(t, file[:n], rows) && n < len(file)/2 { // behind the last page in use there may be room
			t.Fatalf("cut to %d of %d bytes it was taken for whole", n, len(file))
		}
	}
}

// TestAnyDamageIsMadeAnewOrHarmless changes a bit of every byte: what can be read afterwards is what was there.
func TestAnyDamageIsMadeAnewOrHarmless(t *testing.T) {
	file, rows := small(t)
	rng := rand.New(rand.NewPCG(1, 4))
	path := filepath.Join(t.TempDir(), "view.db")
	anew, whole, looked := 0, 0, 0
	for i := range file {
		if !soak() && rng.IntN(32) > 0 {
			continue
		}
		bit := byte(1) << rng.IntN(8)
		file[i] ^= bit
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		err := boltfile.Walk(path, checkAll)
		if err != nil && !boltfile.IsDamage(err) {
			t.Fatal(err)
		}
		looked++
		if rng.IntN(20) == 0 { // some, files are made and synced for each
			if outcome(t, file, rows) != (err != nil) {
				t.Errorf("byte %d: the walk says %v", i, err)
			}
			if err != nil {
				anew++
			} else {
				whole++
			}
		}
		file[i] ^= bit
	}
	t.Logf("of %d bytes %d were changed by a bit and walked; of those that were opened %d were made anew, %d were as they had been", len(file), looked, anew, whole)
	if anew < 3 || whole < 20 {
		t.Error("too few of a kind")
	}
}

func TestNoiseIsMadeAnew(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 8))
	for n := 0; n < 100_000; n += 1 + rng.IntN(8000) {
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		if !outcome(t, noise, nil) {
			t.Errorf("%d bytes of noise were taken for whole", n)
		}
	}
}

// TestAPowerCutLeavesOneTransaction makes what a disk may hold after one: of the pages that a transaction
// wrote any sectors, and its head only when all of them are there.
func TestAPowerCutLeavesOneTransaction(t *testing.T) {
	const sector = 512
	rng := rand.New(rand.NewPCG(6, 6))
	v := newView(t)
	state := func(end int) []Change {
		changes := make([]Change, 50)
		for i := range changes {
			changes[i] = set(fmt.Sprintf("key-%02d", i), fmt.Sprintf("%d:%s", end, strings.Repeat("x", (i*end)%300)))
		}
		if end%3 == 0 {
			changes[end%50].Value = nil
		}
		return changes
	}
	head := 2 * os.Getpagesize()
	before, err := os.ReadFile(v.path)
	if err != nil {
		t.Fatal(err)
	}
	kept := [2]int{}
	for end := 1; end <= 60; end++ {
		if err := v.Apply(0, to(topic.Offset(end)), state(end)); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(v.path)
		if err != nil {
			t.Fatal(err)
		}
		torn := bytes.Clone(after)
		copy(torn, before[:head])
		written := rng.IntN(2) == 0 // all of the transaction's pages are on the disk
		for at := head; at < len(before) && !written; at += sector {
			if rng.IntN(2) == 0 {
				copy(torn[at:at+sector], before[at:])
			}
		}
		if !written && rng.IntN(2) == 0 {
			torn = torn[:len(before)]
		}
		for at := 0; at < head && written; at += sector {
			if rng.IntN(2) == 0 {
				copy(torn[at:at+sector], after[at:])
			}
		}
		path := filepath.Join(t.TempDir(), "view.db")
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		other := open(t, path)
		rows, at := load(t, other, 0)
		if at != to(topic.Offset(end)) && (at != to(topic.Offset(end-1)) || end == 1) && (end != 1 || at != Position{}) {
			t.Fatalf("after transaction %d the position is %+v", end, at)
		}
		want := map[string]string{}
		if at.End > 0 {
			for _, c := range state(int(at.End)) {
				if c.Value != nil {
					want[string(c.Key)] = string(c.Value)
				}
			}
		}
		if !maps.Equal(rows, want) {
			t.Fatalf("after transaction %d the rows are not those of %+v", end, at)
		}
		kept[end-int(at.End)]++
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		before = after
	}
	t.Logf("%d transactions were there, %d were not", kept[0], kept[1])
	if kept[0] < 5 || kept[1] < 5 {
		t.Error("too few of a kind")
	}
}

// TestACopyUnderWritesIsNeverMixed copies the file, page by page, while it is written to: some copies are of
// several moments. They may be made anew, and never be mixed.
func TestACopyUnderWritesIsNeverMixed(t *testing.T) {
	v := newView(t)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for end := topic.Offset(1); ; end++ {
			select {
			case <-done:
				return
			default:
			}
			var changes []Change
			for i := range 100 {
				changes = append(changes, set(fmt.Sprint("key-", i), fmt.Sprint(end)))
			}
			if err := v.Apply(3, to(end), changes); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	anew := 0
	for range 60 {
		info, err := os.Stat(v.path)
		if err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(v.path)
		if err != nil {
			t.Fatal(err)
		}
		file := make([]byte, info.Size())
		for _, page := range rng.Perm(len(file) / 4096) {
			if _, err := from.ReadAt(file[page*4096:(page+1)*4096], int64(page)*4096); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "view.db")
		if err := errors.Join(from.Close(), os.WriteFile(path, file, 0o600)); err != nil {
			t.Fatal(err)
		}
		other := open(t, path)
		rows, at := load(t, other, 3)
		if at == (Position{}) {
			anew++
		} else if len(rows) != 100 {
			t.Fatalf("%d rows at %+v", len(rows), at)
		}
		for key, value := range rows {
			if value != fmt.Sprint(at.End) {
				t.Fatalf("%s is %s at %+v", key, value, at)
			}
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	<-stopped
	t.Logf("%d of 60 copies were made anew", anew)
}

func TestAFewFilesAreKeptAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "view.db")
	for _, other := range []string{"view.db.aside-x", "view.db.aside-007", "other.db.aside-1"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	for n := range 6 {
		if err := os.WriteFile(path, fmt.Append(nil, "damage ", n), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), fmt.Sprint("aside-", n+1)) {
			t.Errorf("not said: %s", log.String())
		}
	}
	numbers, err := asides(path)
	if err != nil || fmt.Sprint(numbers) != "[4 5 6]" {
		t.Errorf("kept are %v (%v)", numbers, err)
	}
	if b, err := os.ReadFile(path + ".aside-6"); err != nil || string(b) != "damage 5" {
		t.Errorf("%q %v", b, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1+3+3 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestOpenReportsTheDiskAndOtherProcesses(t *testing.T) {
	v := newView(t)
	if err := v.Apply(1, to(4), []Change{set("a", "1")}); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if _, err := Open(v.path, logger); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	if rows, at := load(t, v, 1); len(rows) != 1 || at != to(4) {
		t.Errorf("%v %+v", rows, at)
	}
	dir := t.TempDir()
	if _, err := Open(dir, logger); err == nil {
		t.Error("a directory was opened")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "view.db"), logger); err == nil {
		t.Error("a file was taken for a directory")
	}

	// What a crash left half made is no trouble.
	half := filepath.Join(dir, "groups", "view.db")
	err := errors.Join(os.Mkdir(filepath.Dir(half), 0o700), os.WriteFile(half+newSuffix, []byte("half"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	open(t, half)
	if _, err := os.Stat(half + newSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
