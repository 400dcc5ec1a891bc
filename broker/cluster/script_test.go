package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlog/weir/topic"
)

var update = flag.Bool("update", false, "rewrite the scripts' answers and the golden bytes in testdata")

// TestScripts plays testdata/*.script: commands, a line of dashes, what they answered.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if played != string(text) {
				t.Errorf("the answers differ (rewrite them with -update):\n%s", played)
			}
		})
	}
}

// play returns the script with the answers that its commands get now.
func play(t *testing.T, text string) string {
	scene := &scene{t: t, state: NewState(), lives: map[string]int{}}
	var out strings.Builder
	var answers []string
	answering := false
	flush := func() {
		if answering {
			fmt.Fprintf(&out, "----\n%s\n", strings.Join(answers, "\n"))
		}
		answers, answering = nil, false
	}
	skipping := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			flush()
			skipping = false
			out.WriteByte('\n')
		case skipping:
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		case line == "----":
			skipping = true
			flush()
		default:
			out.WriteString(line + "\n")
			answers, answering = append(answers, scene.do(line)), true
		}
	}
	flush()
	return out.String()
}

// scene is a state and what a script has named so far.
type scene struct {
	t        *testing.T
	state    *State
	index    uint64
	commands []Command
	images   []*Image
	lives    map[string]int
}

// idOf is the id of the n-th life of a topic: its name, then the number.
func idOf(name string, life int) (id topic.ID) {
	copy(id[:15], name)
	id[15] = byte(life)
	return id
}

func (s *scene) do(line string) string {
	words := strings.Fields(line)
	named, plain := map[string]string{}, []string{}
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			named[name] = value
		} else {
			plain = append(plain, w)
		}
	}
	number := func(name string, otherwise int64) int64 {
		text, ok := named[name]
		if !ok {
			return otherwise
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	life := func(name string) topic.ID { return idOf(name, int(number("life", int64(s.lives[name])))) }
	settings := func() map[string]string {
		found := map[string]string{}
		for name, value := range named {
			if strings.Contains(name, ".") {
				found[name] = value
			}
		}
		return found
	}
	switch at := topic.Millis(number("at", 1000)); words[0] {
	case "found":
		return s.apply(FoundCluster{ClusterID: plain[0]})
	case "register":
		return s.apply(RegisterNode{Node: topic.NodeID(number("node", 1)), At: at})
	case "create":
		name := plain[0]
		if _, given := named["life"]; !given {
			named["life"] = strconv.Itoa(s.lives[name] + 1)
		}
		op := CreateTopic{
			ID: life(name), Name: topic.Name(name), Partitions: int(number("partitions", 1)), Replication: int(number("replication", 1)),
			Overrides: settings(), Creator: named["creator"], At: at,
		}
		for _, row := range plain[1:] {
			op.Assignment = append(op.Assignment, s.nodes(row))
		}
		answer := s.apply(op)
		if !strings.Contains(answer, "refused") {
			s.lives[name] = int(op.ID[15])
		}
		return answer
	case "alter":
		op := AlterTopic{ID: life(plain[0]), Settings: map[string]*string{}, Partitions: int(number("partitions", 0)), At: at}
		for name, value := range settings() {
			op.Settings[name] = &value
		}
		for _, name := range plain[1:] {
			op.Settings[strings.TrimPrefix(name, "-")] = nil
		}
		return s.apply(op)
	case "delete":
		return s.apply(DeleteTopic{ID: life(plain[0])})
	case "change":
		return s.apply(ChangePartition{
			Partition: s.ref(plain[0], life), Epoch: topic.Epoch(number("epoch", 0)),
			Changes: topic.PartitionEpoch(number("changes", 0)), By: topic.NodeID(number("by", 1)),
			Incarnation: topic.Incarnation(number("incarnation", 1)), Leader: topic.NodeID(number("leader", 1)), InSync: s.nodes(named["isr"]),
		})
	case "raise":
		return s.apply(RaiseEpoch{
			Partition: s.ref(plain[0], life), By: topic.NodeID(number("by", 1)), Incarnation: topic.Incarnation(number("incarnation", 1)),
			Above: topic.Epoch(number("above", 0)),
		})
	case "put":
		return s.apply(PutEntry{Kind: plain[0], Name: plain[1], Expect: s.expect(named), Value: []byte(named["value"])})
	case "remove":
		return s.apply(DeleteEntry{Kind: plain[0], Name: plain[1], Expect: s.expect(named)})
	case "repeat":
		return s.commit(s.commands[number("command", 0)-1])
	case "restore":
		return s.restore()
	case "show":
		return s.show()
	case "since":
		d := s.state.Image().Since(s.images[number("command", 0)-1])
		return fmt.Sprintf("changed %v, gone %v", names(d.Changed), names(d.Gone))
	default:
		s.t.Fatalf("%s: no such word", line)
		return ""
	}
}

func names(topics []*Topic) []topic.Name {
	list := []topic.Name{}
	for _, t := range topics {
		list = append(list, t.Name)
	}
	return list
}

// ref reads "orders/1".
func (s *scene) ref(text string, life func(string) topic.ID) topic.Ref {
	name, partition, _ := strings.Cut(text, "/")
	p, err := strconv.Atoi(partition)
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return topic.Ref{ID: life(name), Partition: topic.Partition(p)}
}

func (s *scene) nodes(list string) (nodes []topic.NodeID) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			s.t.Fatalf("nodes %q: %v", list, err)
		}
		nodes = append(nodes, topic.NodeID(n))
	}
	return nodes
}

func (s *scene) expect(named map[string]string) uint64 {
	text, ok := named["expect"]
	if !ok {
		return AnyVersion
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scene) apply(op Op) string {
	c := Command{ID: CommandID{byte(len(s.commands) + 1), byte((len(s.commands) + 1) >> 8)}, Op: op}
	s.commands = append(s.commands, c)
	answer := s.commit(c)
	s.images = append(s.images, s.state.Image())
	return fmt.Sprintf("%d: %s", len(s.commands), answer)
}

// commit sends a command through its bytes, as the log does.
func (s *scene) commit(c Command) string {
	s.index++
	decoded, err := DecodeEntry(EncodeEntry([][]byte{c.Encode()}))
	if err != nil {
		s.t.Fatalf("%#v: %v", c, err)
	}
	before := s.state.Image()
	r := s.state.Apply(s.index, decoded[0])
	repeated := ""
	if r.Repeated {
		repeated = "repeated, "
	}
	if r.Err != nil {
		if d := s.state.Image().Since(before); len(d.Changed)+len(d.Gone) > 0 {
			s.t.Errorf("a refused command changed %v and %v", names(d.Changed), names(d.Gone))
		}
		return fmt.Sprintf("%srefused: %v", repeated, r.Err)
	}
	text := fmt.Sprintf("%sok, version %d", repeated, r.Version)
	if r.Incarnation != 0 {
		text += fmt.Sprintf(", incarnation %d", r.Incarnation)
	}
	if r.Topic != nil {
		text += ", " + describe(r.Topic)
	}
	return text
}

func (s *scene) restore() string {
	bytes := s.state.Snapshot().Encode()
	restored, err := DecodeSnapshot(bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	if restored.Hash() != s.state.Hash() {
		s.t.Error("the restored state has another hash")
	}
	s.state = restored
	return "restored"
}

func (s *scene) show() string {
	m := s.state.Image()
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s, index %d, version %d, %d topics, %d partitions", m.ClusterID(), m.Index(), m.Version(), m.TopicCount(), m.PartitionCount())
	for _, n := range m.Nodes() {
		fmt.Fprintf(&b, "\n  node %d: incarnation %d at %d, %d partitions", n.ID, n.Incarnation, n.RegisteredAt, n.Partitions)
	}
	for t := range m.AllTopics() {
		fmt.Fprintf(&b, "\n  %s", describe(t))
	}
	for key, e := range m.entries.all() {
		fmt.Fprintf(&b, "\n  entry %v: version %d, %q", key, e.Version, e.Value)
	}
	return b.String()
}

func describe(t *Topic) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s life %d by %q, settings %v, growth %v", t.Name, t.ID[15], t.Creator, t.Overrides, t.Growth)
	for _, p := range t.Partitions {
		fmt.Fprintf(&b, ", %d:{leader %d epoch %d changes %d replicas %v isr %v}", p.Partition, p.Leader, p.Epoch, p.Changes, p.Replicas, p.InSync)
	}
	return b.String()
}
