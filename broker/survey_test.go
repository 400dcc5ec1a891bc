package broker

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func put(t *testing.T, fsys vfs.FS, name, content string) {
	t.Helper()
	if err := fsys.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, fsys vfs.FS) Survey {
	t.Helper()
	found, err := Look(fsys, "data")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// without starts a node on metadata that was made anew from the directories alone.
func without(t *testing.T, fsys vfs.FS) (*oneNode, []cluster.LeftOut) {
	t.Helper()
	state, _, left := cluster.Revive(nil, "test", 1, 1, look(t, fsys).Topics)
	c := newOneNode()
	c.state, c.image, c.index = state, state.Image(), state.Image().Index()
	return c, left
}

// TestTheDirectoriesAreEnough: all metadata is lost, and the topics are as they were, settings and all.
func TestTheDirectoriesAreEnough(t *testing.T) {
	r, mem := beginMem(t)
	orders := r.create("orders", 2, "retention.bytes", "99000000", "segment.bytes", "1048576")
	plain := r.create("plain", 1)
	dropped := r.create("dropped", 1)
	for i := range 5 {
		r.produce("orders", to(0, fmt.Sprint("v", i)), to(1, fmt.Sprint("v", i)))
		r.produce("plain", to(0, fmt.Sprint("v", i)))
	}
	settings := map[string]*string{"retention.ms": new("12345"), "segment.bytes": nil}
	if _, err := r.AlterTopic(t.Context(), "orders", topic.Alteration{Settings: settings, Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteTopic(t.Context(), "dropped"); err != nil {
		t.Fatal(err)
	}
	was, _ := r.hall.find("orders")
	r.stop()

	c, left := without(t, mem)
	if len(left) > 0 {
		t.Errorf("left out: %+v", left)
	}
	r = begin(t, mem, c, testConfig("data"))
	is, err := r.hall.find("orders")
	if err != nil || is.ID != orders.ID || is.Settings != was.Settings || is.CreatedAt != was.CreatedAt ||
		is.Creator != was.Creator || !slices.Equal(is.Growth, was.Growth) {
		t.Errorf("%+v instead of %+v, %v", is, was, err)
	}
	for _, p := range []topic.Path{{Topic: "orders"}, {Topic: "orders", Partition: 1}, {Topic: "plain"}} {
		if got := r.values(p.Topic, p.Partition, 0); !slices.Equal(got, numbered(0, 5)) {
			t.Errorf("%s: %v", p, got)
		}
		if got := r.produce(p.Topic, to(p.Partition, "v5")); got[0].Offset != 5 {
			t.Errorf("%s goes on at %d", p, got[0].Offset)
		}
	}
	if d, err := r.TopicByID(plain.ID); err != nil || d.Name != "plain" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := r.TopicByID(dropped.ID); err == nil {
		t.Errorf("a deleted topic is there again: %+v", d)
	}
	r.stop()
}

// TestWhatDirectoriesSay: each file is believed for what it is, and what cannot be told is left alone.
func TestWhatDirectoriesSay(t *testing.T) {
	r, mem := beginMem(t)
	ids := map[string]topic.ID{}
	for _, name := range []string{"sound", "torn", "flipped", "swapped", "silent", "disputed", "stray"} {
		ids[name] = r.create(topic.Name(name), 2, "retention.ms", "7000").ID
		r.produce(topic.Name(name), to(1, "v0"))
	}
	r.stop()
	dir := func(name string) string {
		id := ids[name]
		return filepath.Join("data/topics", hex.EncodeToString(id[:]))
	}
	read := func(name string) string {
		b, err := vfs.ReadFile(mem, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put(t, mem, dir("torn")+"/topic.json", read(dir("torn") + "/topic.json")[:50])
	put(t, mem, dir("flipped")+"/topic.json", strings.Replace(read(dir("flipped")+"/topic.json"), "7000", "3000", 1))
	put(t, mem, dir("swapped")+"/topic.json", read(dir("sound")+"/topic.json"))
	if err := mem.Remove(dir("swapped") + "/0/partition.json"); err != nil { // the other one is witness enough
		t.Fatal(err)
	}
	put(t, mem, dir("silent")+"/topic.json", "")
	put(t, mem, dir("silent")+"/0/partition.json", "{")
	put(t, mem, dir("silent")+"/1/partition.json", strings.Repeat("\x00", 100))
	put(t, mem, dir("disputed")+"/topic.json", "{}")
	put(t, mem, dir("disputed")+"/1/partition.json", strings.Replace(read(dir("disputed")+"/1/partition.json"), "disputed", "other", 1))
	put(t, mem, dir("stray")+"/5000/partition.json", "{}")
	put(t, mem, dir("stray")+"/01/partition.json", "{}")
	put(t, mem, dir("stray")+"/notes/x", "")
	put(t, mem, dir("stray")+".deleted/0/partition.json", "{}")
	put(t, mem, "data/topics/README", "")
	put(t, mem, "data/topics/"+strings.Repeat("AB", 16)+"/0/x", "")

	found := look(t, mem)
	got := map[topic.ID]cluster.Survivor{}
	for _, s := range found.Topics {
		got[s.ID] = s
	}
	for name, want := range map[string]struct {
		name      topic.Name
		described bool
	}{
		"sound": {"sound", true}, "torn": {"torn", false}, "flipped": {"flipped", false}, "swapped": {"swapped", false},
		"silent": {"", false}, "disputed": {"", false}, "stray": {"stray", true},
	} {
		if s := got[ids[name]]; s.Name != want.name || s.Described != want.described || s.Partitions != 2 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if len(found.Topics) != 7 || len(found.Others) != 3 {
		t.Errorf("%d topics, others: %+v", len(found.Topics), found.Others)
	}

	c, left := without(t, mem)
	if len(left) != 2 {
		t.Errorf("left out: %+v", left)
	}
	r = begin(t, mem, c, testConfig("data"))
	for name, retention := range map[string]string{"sound": "7000", "torn": "-1", "flipped": "-1", "swapped": "-1"} {
		d, err := r.Topic(topic.Name(name))
		if err != nil || d.Overrides["retention.ms"] != retention {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if got := r.values(topic.Name(name), 1, 0); !slices.Equal(got, []string{"v0"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
	r.stop()
	for _, name := range []string{"silent", "disputed"} {
		if there, err := vfs.Exists(mem, dir(name)+setAside+"/1"); !there {
			t.Errorf("%s was not kept: %v", name, err)
		}
	}
}

// TestADirectoryComesBackWithItsTopic: older metadata had set it aside, newer knows it again.
func TestADirectoryComesBackWithItsTopic(t *testing.T) {
	mem, c := newMem(t), newOneNode()
	r := begin(t, mem, c, testConfig("data"))
	old := c.clone()
	r.create("orders", 1)
	r.produce("orders", to(0, "v0"))
	r.stop()
	r = begin(t, mem, old, testConfig("data"))
	if _, err := r.Topic("orders"); err == nil {
		t.Fatal("the older metadata knows the topic")
	}
	r.stop()
	r = begin(t, mem, c, testConfig("data"))
	if got := r.produce("orders", to(0, "v1")); got[0].Offset != 1 {
		t.Errorf("went on at %d", got[0].Offset)
	}
	if got := r.values("orders", 0, 0); !slices.Equal(got, numbered(0, 2)) {
		t.Errorf("read %v", got)
	}
	r.stop()
}

// TestASecondDirectoryIsSetAsideBesideTheFirst: nothing is in the way of a start.
func TestASecondDirectoryIsSetAsideBesideTheFirst(t *testing.T) {
	mem := newMem(t)
	unknown := "data/topics/" + strings.Repeat("ab", 16)
	for range 3 {
		put(t, mem, unknown+"/0/x", "")
		begin(t, mem, newOneNode(), testConfig("data")).stop()
	}
	for _, kept := range []string{".aside", "-2.aside", "-3.aside"} {
		if there, err := vfs.Exists(mem, unknown+kept+"/0/x"); !there {
			t.Errorf("%s: %v", kept, err)
		}
	}
}

// TestTopicsServeWithoutTheirDescription: a disk that refuses topic.json keeps no topic from serving, and
// the next start writes it.
func TestTopicsServeWithoutTheirDescription(t *testing.T) {
	mem, c := newMem(t), newOneNode()
	for _, ops := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpRename} {
		failing := vfs.NewFailing(mem, vfs.Fault{Ops: ops, Match: topicFileName + ".new", Err: syscall.ENOSPC, Nth: 1})
		r := begin(t, failing, c, testConfig("data"))
		name := topic.Name(fmt.Sprint("t", int(ops)))
		d := r.create(name, 1)
		r.await(ops.String()+" fails", func() bool { return failing.Fired() > 0 })
		r.produce(name, to(0, "v0"))
		if found := look(t, mem); slices.ContainsFunc(found.Topics, func(s cluster.Survivor) bool { return s.ID == d.ID && s.Described }) {
			t.Errorf("%v: it is described", ops)
		}
		r.stop()
		begin(t, mem, c, testConfig("data")).stop()
		if found := look(t, mem); !slices.ContainsFunc(found.Topics, func(s cluster.Survivor) bool { return s.ID == d.ID && s.Described }) {
			t.Errorf("%v: it is not described by the next start", ops)
		}
	}
}
