package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyGroupsKeepUp: groups of four members each, of which each member polls once a second, is given what
// came since, and acknowledges what it was given before. Nobody falls behind, and what the node keeps of
// them stays small; after a stop and after a kill all of them go on where they were.
func TestManyGroupsKeepUp(t *testing.T) {
	groups, span := 100, 15*time.Second
	switch {
	case soak():
		groups, span = 1000, 10*time.Minute
	case raceEnabled:
		groups, span = 25, 5*time.Second
	}
	data := filepath.Join(t.TempDir(), "data")
	// A disk that does not answer for a while is not what this is about.
	args := []string{"--data", data, "--log-level", "warn", "--set", "storage.stall=1m"}
	n := serve(t, args...)
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"t","partitions":4,"settings":{"segment.bytes":1048576,"retention.bytes":4194304}}`, nil, "Content-Type", "application/json")
	c := newGroupCrowd(n, groups, 4)
	began := time.Now()
	c.each(t, func(m *crowdMember) error { return m.join(t.Context()) })
	c.settle(t)
	t.Logf("%d members of %d groups joined and settled in %v", len(c.members), groups, time.Since(began))

	// A record for each member a second; its value is the time at which it was sent.
	ctx, cancel := context.WithCancel(t.Context())
	var producing sync.WaitGroup
	producing.Go(func() {
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
			now := time.Now().UnixMilli()
			for p := range 4 {
				if a, err := ask(ctx, http.MethodPost, fmt.Sprintf("%s/v1/topics/t/partitions/%d/records", n.base, p), fmt.Sprintf(`{"records":[{"value":%d}]}`, now), "Content-Type", "application/json"); ctx.Err() == nil && (err != nil || a.status != http.StatusOK) {
					t.Errorf("produce: %v, %d %s", err, a.status, a.body)
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	cpu := processCPU(t, n)
	began = time.Now()
	polls, late := c.pace(t, span)
	took := time.Since(began)
	cpu = processCPU(t, n) - cpu
	cancel()
	producing.Wait()
	slices.Sort(late)
	view, topics := sizeOf(t, filepath.Join(data, "groups")), sizeOf(t, filepath.Join(data, "topics"))
	t.Logf("%d polls in %v, due in %v, server CPU a poll %v; a record is given %v after it was sent at p50, %v at p99, %v at most; the view has %d KiB, the topics %d MiB",
		polls, took, span, cpu/time.Duration(max(polls, 1)), late[len(late)/2], late[len(late)*99/100], late[len(late)-1], view>>10, topics>>20)
	stalls := 0
	for _, m := range c.members {
		stalls += m.unknown
	}
	if stalls > 0 { // whose times are then the disk's, which others share
		t.Logf("the disk kept %d polls waiting for 10 s", stalls)
	} else if took > span+10*time.Second {
		t.Errorf("%d polls that were due in %v took %v", polls, span, took)
	}
	// A member polls once a second, so a record is that old on its way; the rest is the node's, or the machine's.
	if worst := late[len(late)*99/100]; worst > 5*time.Second && stalls == 0 {
		t.Errorf("of a hundred records one was older than %v when it was given", worst)
	}
	if most := int64(groups)*16<<10 + 4<<20; view > most {
		t.Errorf("the view of %d groups has %d bytes, at most %d are meant", groups, view, most)
	}
	if most := int64(16*3*16+4*8) << 20; topics > most { // 16 partitions of segments of 16 MiB: one written, one full, one compacted
		t.Errorf("the topics have %d bytes, at most %d are meant", topics, most)
	}

	c.drain(t)
	for _, kill := range []bool{false, true} {
		if kill {
			n.kill()
		} else if err := n.stop(t); err != nil {
			t.Fatalf("the node ended with %v: %s", err, n.stderr)
		}
		began = time.Now()
		n = serve(t, args...)
		ready := time.Since(began)
		c.node = n
		c.each(t, func(m *crowdMember) error { return m.resume(t.Context()) })
		t.Logf("killed %v: ready after %v, all members served after %v", kill, ready, time.Since(began))
		if !raceEnabled && ready > 10*time.Second {
			t.Errorf("a start with %d groups took %v", groups, ready)
		}
		calm(t, n)
	}
	if got := listGroups(t, n.base); len(got) != groups {
		t.Errorf("%d of %d groups are listed", len(got), groups)
	}
}

// TestANodeOfAThousandGroupsStarts: quickly, and each group is as it was.
func TestANodeOfAThousandGroupsStarts(t *testing.T) {
	groups := 1000
	if raceEnabled {
		groups = 200
	}
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"--data", data, "--log-level", "warn", "--set", "storage.stall=1m"}
	n := serve(t, args...)
	makeTopic(t, n.base, "t", 2, 6)
	c := newGroupCrowd(n, groups, 1)
	c.each(t, func(m *crowdMember) error { return m.join(t.Context()) })
	c.each(t, func(m *crowdMember) error { return m.resume(t.Context()) })
	for _, way := range []struct{ kill, rebuild bool }{{}, {kill: true}, {kill: true, rebuild: true}} {
		if way.kill {
			n.kill()
		} else if err := n.stop(t); err != nil {
			t.Fatalf("the node ended with %v: %s", err, n.stderr)
		}
		if way.rebuild {
			if err := os.Remove(filepath.Join(data, "groups", "view.db")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		n = serve(t, args...)
		ready := time.Since(began)
		if got := listGroups(t, n.base); len(got) != groups {
			t.Errorf("%+v: %d of %d groups are listed", way, len(got), groups)
		}
		listed := time.Since(began)
		c.node = n
		c.each(t, func(m *crowdMember) error { return m.resume(t.Context()) })
		t.Logf("%+v: ready after %v, all groups listed after %v, and served after %v", way, ready, listed, time.Since(began))
		if !raceEnabled && listed > 20*time.Second {
			t.Errorf("%+v: a start with %d groups took %v", way, groups, listed)
		}
	}
	c.drain(t)
}

// listGroups is the names of all groups, page by page.
func listGroups(t *testing.T, base string) []string {
	t.Helper()
	var names []string
	for token := ""; ; {
		var page struct {
			Groups []struct{ Group string }
			Next   string `json:"next_page_token"`
		}
		for deadline := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
			a, err := ask(t.Context(), http.MethodGet, base+"/v1/groups?page_size=300&page_token="+token, "")
			if err == nil && a.status == http.StatusServiceUnavailable && time.Now().Before(deadline) {
				continue // the coordinators load
			}
			if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &page) != nil {
				t.Fatalf("list groups: %v, %d %s", err, a.status, a.body)
			}
			break
		}
		for _, g := range page.Groups {
			names = append(names, g.Group)
		}
		if token = page.Next; token == "" {
			break
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("groups are not listed by name: %.300v", names)
	}
	return names
}

// groupCrowd is many members of many groups, served by a few goroutines.
type groupCrowd struct {
	node    *node
	members []*crowdMember
	size    int // of a group
}

// crowdMember is one of them. It remembers what it was given, and checks that nothing is missing or twice.
type crowdMember struct {
	crowd *groupCrowd
	groupClient
	next  map[int]int64
	owns  int
	delay []time.Duration // of each record, from its producer to here
}

// crowdHands is how many calls are under way at once, so that a poll of 10 ms holds up nobody.
const crowdHands = 128

func newGroupCrowd(n *node, groups, size int) *groupCrowd {
	c := &groupCrowd{node: n, size: size}
	for i := range groups * size {
		m := &crowdMember{crowd: c, next: map[int]int64{}}
		m.group, m.name, m.topics = fmt.Sprintf("group-%04d", i/size), "member-"+strconv.Itoa(i%size), []string{"t"}
		c.members = append(c.members, m)
	}
	return c
}

// each lets the hands do something for every member; those of one hand are not neighbours.
func (c *groupCrowd) each(t *testing.T, do func(*crowdMember) error) {
	t.Helper()
	var wg sync.WaitGroup
	for hand := range crowdHands {
		wg.Go(func() {
			for i := hand; i < len(c.members); i += crowdHands {
				c.members[i].base = c.node.base
				if err := do(c.members[i]); err != nil {
					t.Errorf("%s/%s: %v", c.members[i].group, c.members[i].name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (m *crowdMember) join(ctx context.Context) error {
	got, err := m.tryPoll(ctx, map[string]any{"max_records": 1})
	m.owns = got.partitions()
	return err
}

// resume polls with what it has, and takes what it is given for new.
func (m *crowdMember) resume(ctx context.Context) error {
	got, err := m.tryPoll(ctx, m.acking(map[string]any{"max_records": 1}))
	if err != nil {
		return err
	}
	m.owns = got.partitions()
	return m.take(got)
}

// take checks that what came begins where the last answer ended.
func (m *crowdMember) take(got groupAnswer) error {
	if len(got.NotCommitted) > 0 {
		return fmt.Errorf("%v were not committed", got.NotCommitted)
	}
	for _, r := range got.Records {
		if want, ok := m.next[r.Partition]; ok && r.Offset != want {
			return fmt.Errorf("after %d/%d comes %d", r.Partition, want-1, r.Offset)
		}
		m.next[r.Partition] = r.Offset + 1
		if sent, err := strconv.ParseInt(string(r.Value), 10, 64); err == nil {
			m.delay = append(m.delay, time.Since(time.UnixMilli(sent)))
		}
	}
	return nil
}

// settle polls until everybody has one partition.
func (c *groupCrowd) settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		c.each(t, func(m *crowdMember) error { return m.resume(t.Context()) })
		if !slices.ContainsFunc(c.members, func(m *crowdMember) bool { return m.owns != 4/c.size }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("groups do not settle")
		}
	}
}

// pace has each member poll once a second, at a moment of its own, and returns how many polls were answered
// and how old records were when they were given.
func (c *groupCrowd) pace(t *testing.T, span time.Duration) (polls int, late []time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	counts := make([]int, crowdHands)
	began := time.Now()
	for hand := range crowdHands {
		wg.Go(func() {
			for second := range int(span.Seconds()) {
				for i := hand; i < len(c.members); i += crowdHands {
					due := began.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Second/time.Duration(len(c.members)))
					<-time.After(time.Until(due)) // none when it is late
					m := c.members[i]
					got, err := m.tryPoll(t.Context(), m.acking(nil))
					if err == nil {
						err = m.take(got)
					}
					if err != nil {
						t.Errorf("%s/%s: %v", m.group, m.name, err)
						return
					}
					counts[hand]++
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.Fatalf("the node says %s", c.node.stderr)
	}
	for _, n := range counts {
		polls += n
	}
	for _, m := range c.members {
		late = append(late, m.delay...)
	}
	return polls, late
}

// drain polls until there is nothing more, and looks at what the groups say of it.
func (c *groupCrowd) drain(t *testing.T) {
	t.Helper()
	c.each(t, func(m *crowdMember) error {
		for {
			got, err := m.tryPoll(t.Context(), m.acking(nil))
			if err == nil {
				err = m.take(got)
			}
			if err != nil || len(got.Records) == 0 {
				return err
			}
		}
	})
	for i := 0; i < len(c.members); i += c.size {
		if d := describeGroup(t, c.node.base, c.members[i].group); d.Lag == nil || *d.Lag != 0 || d.State != "stable" || len(d.Members) != c.size {
			t.Errorf("everything is read and acknowledged, and the group is %+v", d)
		}
	}
}

// processCPU is the processor time that a node has used.
func processCPU(t *testing.T, n *node) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0 // this system does not say
	}
	var ticks int64
	for _, f := range strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[11:13] {
		k, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += k
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
}

// sizeOf sums the files below a directory. Some may go meanwhile.
func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
