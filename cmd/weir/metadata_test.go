package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// account is what was acknowledged in a topic's partition 0: the value of every offset.
type account map[int64]string

// produce stores one record and notes its offset, which nobody may have had before.
func (a account) produce(t *testing.T, base, topic, value string) {
	t.Helper()
	var stored struct {
		Results []struct{ Offset int64 }
	}
	must(t, http.MethodPost, base+"/v1/topics/"+topic+"/records", fmt.Sprintf(`{"records":[{"partition":0,"value":%q}]}`, value), &stored, "Content-Type", "application/json")
	if len(stored.Results) != 1 {
		t.Fatalf("stored %+v", stored)
	}
	offset := stored.Results[0].Offset
	if first, twice := a[offset]; twice {
		t.Fatalf("offset %d of %s was given to %q and to %q", offset, topic, first, value)
	}
	a[offset] = strconv.Quote(value) // it is stored as the JSON that it came as
}

// check reads everything back.
func (a account) check(t *testing.T, base, topic string) {
	t.Helper()
	all := readAll(t, base, topic, 0)
	if len(all) != len(a) {
		t.Errorf("%s has %d records of %d", topic, len(all), len(a))
	}
	for _, r := range all {
		if a[r.Offset] != r.Value {
			t.Errorf("%s has %q at %d instead of %q", topic, r.Value, r.Offset, a[r.Offset])
		}
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestAnOlderCopyOfTheMetadata: somebody puts an older copy of DIR/raft back. Topics that it knows go on
// where they were, also over kills, whose recovery reads the logs again.
func TestAnOlderCopyOfTheMetadata(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	orders, later := account{}, account{}
	n := serve(t, "--data", data)
	orders.produce(t, n.base, "orders", "first")
	if err := n.stop(t); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(data, "raft"), filepath.Join(data, "raft.copy"))
	for round := range 4 {
		n = serve(t, "--data", data)
		orders.produce(t, n.base, "orders", fmt.Sprint("round ", round))
		later.produce(t, n.base, "later", fmt.Sprint("round ", round))
		if err := n.stop(t); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(data, "raft"), filepath.Join(data, "raft.newer")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(data, "raft.copy"), filepath.Join(data, "raft")); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		n = serve(t, "--data", data)
		if said := strings.Contains(n.stderr.String(), "the metadata is older than the log"); said != (round == 0) {
			t.Errorf("start %d: %s", round, n.stderr)
		}
		orders.check(t, n.base, "orders")
		orders.produce(t, n.base, "orders", fmt.Sprint("after ", round))
		orders.check(t, n.base, "orders")
		n.kill()
	}
	// The topic that the copy does not know is made anew from its directory.
	aside, err := filepath.Glob(filepath.Join(data, "topics", "*.aside"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	if err := os.Rename(aside[0], strings.TrimSuffix(aside[0], ".aside")); err != nil {
		t.Fatal(err)
	}
	rebuild(t, "--force", data)
	n = serve(t, "--data", data)
	orders.check(t, n.base, "orders")
	later.check(t, n.base, "later")
	later.produce(t, n.base, "later", "after")
	later.check(t, n.base, "later")
}

// rebuild runs `weir metadata rebuild` and returns what it printed.
func rebuild(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"metadata", "rebuild"}, args...)...)
	cmd.Env = append(os.Environ(), asWeir+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestLostMetadataOfAKilledNode: the node was killed, its metadata is gone, and everything that was
// acknowledged is served again, topic by topic, over further kills and rebuilds.
func TestLostMetadataOfAKilledNode(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	topics := map[string]account{"a": {}, "b": {}, "c": {}}
	for round := range 3 {
		n := serve(t, "--data", data)
		for name, account := range topics {
			if round > 0 {
				account.check(t, n.base, name+"-")
			}
			for i := range 5 {
				account.produce(t, n.base, name+"-", fmt.Sprint(round, "/", i))
			}
		}
		n.kill()
		spoil := []func(string) error{os.RemoveAll, func(dir string) error { return os.Truncate(filepath.Join(dir, "raft.db"), 3000) }, os.RemoveAll}[round]
		if err := spoil(filepath.Join(data, "raft")); err != nil {
			t.Fatal(err)
		}
		if out := rebuild(t, data); !strings.Contains(out, "3 topics with 3 partitions") {
			t.Errorf("round %d: %s", round, out)
		}
	}
	n := serve(t, "--data", data)
	for name, account := range topics {
		account.check(t, n.base, name+"-")
	}
}
