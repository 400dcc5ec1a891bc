package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGroupsOutliveTheirNode: members, commits and lag are the same after a stop and after a kill, also when
// the file that a node keeps of its groups is gone or holds something else.
func TestGroupsOutliveTheirNode(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	view := filepath.Join(data, "groups", "view.db")
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	n := serve(t, "--data", data)
	makeTopic(t, n.base, "t", 3, 5)
	var members []*groupClient
	for _, group := range []string{"g", "h ü", "i"} {
		m := &groupClient{base: n.base, group: group, name: "w", topics: []string{"t"}}
		m.poll(t, map[string]any{"max_records": 4})
		members = append(members, m)
	}
	must(t, http.MethodPatch, n.base+"/v1/groups/i", `{"settings":{"assignor":"range"}}`, nil, "Content-Type", "application/json")
	if status, code := commit(t, members[2], fmt.Sprintf(`{"epoch":%d,"offsets":[{"topic":"t","partition":0,"next_offset":1,"metadata":"my own"}]}`, members[2].epoch)); status != http.StatusOK {
		t.Fatalf("commit: %d %s", status, code)
	}
	for round, way := range []struct {
		name          string
		kill, damaged bool
		file          func() error
	}{
		{"stopped", false, false, nil},
		{"killed", true, false, nil},
		{"stopped, the file's middle noise", false, true, func() error { return scribble(view, rng) }},
		{"stopped, the file deleted", false, false, func() error { return os.Remove(view) }},
		{"killed, the file deleted", true, false, func() error { return os.Remove(view) }},
		{"killed, the file noise", true, true, func() error { return os.WriteFile(view, noise(rng, 64<<10), 0o644) }},
		{"killed, the file cut", true, true, func() error { return os.Truncate(view, 5000) }},
		{"killed, the file empty", true, true, func() error { return os.Truncate(view, 0) }},
		{"killed once more", true, false, nil},
	} {
		for _, m := range members[:2] {
			m.base = n.base
			m.ack(t, map[string]any{"max_records": 1})
		}
		produceNumbers(t, n.base, "t", 3, 5+round, 1)
		before := map[string]string{}
		for _, m := range members {
			before[m.group] = lasting(t, n.base, m.group)
		}
		if way.kill {
			n.kill()
		} else if err := n.stop(t); err != nil {
			t.Fatalf("%s: %v: %s", way.name, err, n.stderr)
		}
		if way.file != nil {
			if err := way.file(); err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
		}
		n = serve(t, "--data", data)
		for _, m := range members {
			if after := lasting(t, n.base, m.group); after != before[m.group] {
				t.Fatalf("%s: group %q was %s and is %s", way.name, m.group, before[m.group], after)
			}
		}
		var lag int64
		for _, m := range members {
			lag += *describeGroup(t, n.base, m.group).Lag
		}
		if got := metric(t, n, "broker_group_lag_records"); int64(got) != lag {
			t.Errorf("%s: the groups are %d records behind, and the metric says %v", way.name, lag, got)
		}
		calm(t, n)
		if log := n.stderr.String(); way.damaged != strings.Contains(log, "view was damaged") {
			t.Errorf("%s: the node's log is to say whether the file was damaged: %s", way.name, log)
		}
		if round == 0 {
			awaitContent(t, view, "h ü") // what is damaged from here on held something
		}
	}
	for _, m := range members {
		m.base = n.base
		seen := 0
		for got := m.ack(t, nil); ; got = m.ack(t, nil) {
			if seen += len(got.Records); len(got.Records) == 0 {
				break
			}
		}
		if d := describeGroup(t, n.base, m.group); *d.Lag != 0 || seen == 0 {
			t.Errorf("%s read %d at last, and the group is %+v", m.group, seen, d)
		}
	}
}

// TestTheLogOfGroupsIsCompacted: a group commits far more than a segment of its log holds. Most of it goes,
// and what is left says what the group is, with the view and without it.
func TestTheLogOfGroupsIsCompacted(t *testing.T) {
	const partitions, commits, segment = 60, 150, 16 << 20
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"--data", data, "--set", "clean.interval=100ms"}
	n := serve(t, args...)
	makeTopic(t, n.base, "t", partitions, commits)
	m := &groupClient{base: n.base, group: "g", name: "w", topics: []string{"t"}}
	m.poll(t, map[string]any{"max_records": 1})
	before := sizeOf(t, filepath.Join(data, "topics"))
	metadata := strings.Repeat("m", 4096-3)
	for i := range commits {
		offsets := make([]string, partitions)
		for p := range offsets {
			offsets[p] = fmt.Sprintf(`{"topic":"t","partition":%d,"next_offset":%d,"metadata":"%03d%s"}`, p, i+1, i, metadata)
		}
		if status, code := commit(t, m, fmt.Sprintf(`{"epoch":%d,"offsets":[%s]}`, m.epoch, strings.Join(offsets, ","))); status != http.StatusOK {
			t.Fatalf("commit %d: %d %s", i, status, code)
		}
	}
	// One segment is written to, and the others hold what is newest of each offset.
	const most = segment * 5 / 4
	var size int64
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		if size = sizeOf(t, filepath.Join(data, "topics")) - before; size <= most {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d commits of %d offsets have %d bytes, at most %d are meant", commits, partitions, size, most)
		}
	}
	t.Logf("%d MiB of commits are %d MiB", commits*partitions*len(metadata)>>20, size>>20)
	was := lasting(t, n.base, "g")
	for _, rebuild := range []bool{false, true} {
		n.kill()
		if rebuild {
			if err := os.Remove(filepath.Join(data, "groups", "view.db")); err != nil {
				t.Fatal(err)
			}
		}
		n = serve(t, args...)
		if is := lasting(t, n.base, "g"); is != was {
			t.Errorf("the view deleted %v: the group was %.2000s and is %.2000s", rebuild, was, is)
		}
		calm(t, n)
	}
	m.base = n.base
	if got := m.poll(t, nil); len(got.Records) != 0 || got.partitions() != partitions || got.Lag != 0 {
		t.Errorf("all is committed, and a poll gives %v with a lag of %d", got.places(), got.Lag)
	}
}

// awaitContent waits until a file holds a text.
func awaitContent(t *testing.T, path, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, []byte(text)) {
			return
		}
	}
	t.Fatalf("%s does not hold %q", path, text)
}

// calm looks for what a node's log must not have.
func calm(t *testing.T, n *node) {
	t.Helper()
	for _, word := range []string{"DATA RACE", "panic", "level=ERROR"} {
		if log := n.stderr.String(); strings.Contains(log, word) {
			t.Errorf("the node's log has %q: %s", word, log)
		}
	}
}

// scribble writes noise into the middle of a file, as a page that was torn.
func scribble(path string, rng *rand.Rand) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for at := 0; at+4096 <= len(content); at += 3 * 4096 {
		copy(content[at+100:at+4096], noise(rng, 3996))
	}
	return os.WriteFile(path, content, 0o644)
}

// lasting is what is to be the same after a start, as text.
func lasting(t *testing.T, base, group string) string {
	t.Helper()
	d := describeGroup(t, base, group)
	var settings struct{ Settings map[string]any }
	must(t, http.MethodGet, base+"/v1/groups/"+url.PathEscape(group), "", &settings)
	text, err := json.Marshal(map[string]any{"group": d, "settings": settings})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(`"t"`)) {
		t.Fatalf("group %s has no partition of t: %s", group, text)
	}
	return string(text)
}
