package group

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// TestScripts plays testdata/*.script: calls, a line of dashes, what came of them. After each call the
// group is made again from its records, and has to be the same.
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
			var out strings.Builder
			for i, scene := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
				if i > 0 {
					out.WriteString("\n")
				}
				playScene(t, &out, scene)
			}
			compareGolden(t, file, out.String(), "the answers differ")
		})
	}
}

func playScene(t *testing.T, out *strings.Builder, text string) {
	script, _, _ := strings.Cut(text+"\n", "----\n")
	out.WriteString(script + "----\n")
	s := &scene{t: t, world: newWorld(), now: time.UnixMilli(1_000_000), cfg: testConfig()}
	s.group = New("billing", s.cfg)
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if answer := s.do(line); answer != "" {
			fmt.Fprintf(out, "%s: %s\n", line, answer)
		}
		if err := errors.Join(checkGroup(s.group), sameAfterReplay(s.group, &s.kept)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

type scene struct {
	t     *testing.T
	world *world
	now   time.Time
	cfg   Config
	group *Group
	kept  kept
}

// words of a line: the command, what stands alone, and what is name=value.
type words struct {
	plain []string
	named map[string]string
}

func split(line string) words {
	w := words{named: map[string]string{}}
	for _, word := range strings.Fields(line) {
		if name, value, ok := strings.Cut(word, "="); ok {
			w.named[name] = value
		} else {
			w.plain = append(w.plain, word)
		}
	}
	return w
}

func (w *words) at(i int) string {
	if i < len(w.plain) {
		return w.plain[i]
	}
	return ""
}

func (s *scene) number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// path reads "orders/0", and "orders'/0" of the topic's life before.
func (s *scene) path(text string) topic.Ref {
	name, n, _ := strings.Cut(text, "/")
	life := s.world.lives[topic.Name(strings.TrimRight(name, "'"))] - strings.Count(name, "'")
	return topic.Ref{ID: idOf(topic.Name(strings.TrimRight(name, "'")), life), Partition: topic.Partition(s.number(n))}
}

// positions reads "orders/0:10@3,orders/1:20,orders/2:5@3e7": offsets, with the epoch of the assignment where
// it is given, and that of the last record.
func (s *scene) positions(text string) (commits []topic.GroupCommit) {
	for _, one := range strings.Split(text, ",") {
		if one == "" {
			continue
		}
		path, rest, _ := strings.Cut(one, ":")
		next, assigned, _ := strings.Cut(rest, "@")
		assigned, last, read := strings.Cut(assigned, "e")
		c := topic.GroupCommit{
			Ref: s.path(path), Next: topic.Offset(s.number(next)), LastEpoch: topic.NoEpoch, Assigned: topic.GroupEpoch(s.number(assigned)),
		}
		if read {
			c.LastEpoch = topic.Epoch(s.number(last))
		}
		commits = append(commits, c)
	}
	return commits
}

func (s *scene) start(text string) topic.GroupStart {
	switch {
	case text == "latest":
		return topic.GroupStart{Kind: topic.AtLatest}
	case strings.HasPrefix(text, "ts:"):
		return topic.GroupStart{Kind: topic.AtTime, Time: topic.Millis(s.number(text[3:]))}
	}
	return topic.GroupStart{}
}

func (s *scene) do(line string) string {
	w := split(line)
	name, member, epoch := topic.Name(w.at(1)), topic.MemberName(w.at(1)), topic.GroupEpoch(s.number(w.named["epoch"]))
	switch w.at(0) {
	case "config":
		s.cfg.MaxMembers = int(s.number(w.named["members"]))
		s.group = New("billing", s.cfg)
	case "topic":
		s.world.make(name, int(s.number(w.at(2))))
	case "untopic":
		delete(s.world.topics, name)
	case "partitions":
		s.world.topics[name].partitions = int(s.number(w.at(2)))
	case "end":
		s.world.ends[s.path(w.at(1))] = topic.Offset(s.number(w.at(2)))
	case "changed":
		return s.wrote(s.group.TopicsChanged(s.world, s.now))
	case "affected":
		id, _, _ := s.world.Topic(name)
		return strconv.FormatBool(s.group.Affected(name, id))
	case "poll", "heartbeat", "again":
		return s.poll(w, member, epoch)
	case "leave":
		refused, records, err := s.group.Leave(member, epoch, s.positions(w.named["ack"]), s.world, s.now)
		return s.refused(refused) + s.done(records, err)
	case "seek":
		var to []Position
		for _, c := range s.positions(w.at(1)) {
			to = append(to, Position{Ref: c.Ref, Offset: c.Next, LastEpoch: topic.NoEpoch})
		}
		return s.done(s.group.Seek(to, s.world, s.now))
	case "alter":
		overrides := map[string]*string{}
		for name, value := range w.named {
			if overrides[name] = &value; value == "" {
				overrides[name] = nil
			}
		}
		return s.done(s.group.Alter(overrides, s.now))
	case "delete":
		return s.done(s.group.Delete(s.now))
	case "alive":
		s.group.Alive(member, epoch, s.now)
	case "disconnect":
		s.group.Disconnect(member, epoch, s.now)
	case "endpoll":
		s.group.EndPoll(member, w.named["alive"] != "no", s.now)
	case "after":
		return s.after(w.at(1))
	case "load":
		var err error
		if s.group, err = s.kept.replay("billing", s.cfg); err != nil {
			s.t.Fatal(err)
		}
		return s.wrote(s.group.Loaded(s.world, s.now))
	case "moved":
		return fmt.Sprint(s.group.Moved())
	case "show":
		return s.show()
	default:
		s.t.Fatalf("no such call: %q", line)
	}
	return ""
}

// after lets time pass, and ends what ends meanwhile.
func (s *scene) after(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	until, said := s.now.Add(d), []string{}
	for {
		at, ok := s.group.NextExpiry()
		if !ok || at.After(until) {
			break
		}
		at = later(at, s.now)
		passed := at.Sub(until.Add(-d))
		s.now = at
		if records := s.group.Expire(at); records != nil {
			said = append(said, fmt.Sprintf("at %s %s", passed, s.wrote(records)))
		}
		if next, again := s.group.NextExpiry(); again && !next.After(at) {
			s.t.Fatalf("at %s nothing more ends, and Expire is to be called again", passed)
		}
	}
	s.now = until
	return strings.Join(said, "\n  ")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (s *scene) poll(w words, member topic.MemberName, epoch topic.GroupEpoch) string {
	p := &topic.GroupPoll{
		Group: "billing", Member: member, Epoch: epoch, Node: 1, Principal: "User:ann", Heartbeat: w.at(0) == "heartbeat",
		Start: s.start(w.named["start"]), Ack: s.positions(w.named["ack"]),
	}
	if w.at(0) == "again" {
		p.Turn = 1
	}
	if w.named["kind"] == "connected" {
		p.Kind = topic.ConnectedMember
	}
	if n := s.number(w.named["metadata"]); n > 0 {
		for i := range p.Ack {
			p.Ack[i].Metadata = strings.Repeat("x", int(n))
		}
	}
	var sub topic.Subscription
	for _, name := range strings.Split(w.named["topics"], ",") {
		if name != "" {
			sub.Topics = append(sub.Topics, topic.Name(name))
		}
	}
	sub.Prefix, sub.Pattern = w.named["prefix"], w.named["pattern"]
	if n := s.number(w.named["longpattern"]); n > 0 {
		sub.Pattern = strings.Repeat("a", int(n))
	}
	if _, empty := w.named["nothing"]; !sub.IsZero() || empty {
		p.Subscription = &sub
	}
	asks := ""
	starts := map[topic.Ref]topic.Offset{}
	if _, refs := s.group.Unstarted(p, s.world); len(refs) > 0 {
		asks = "asks where " + s.refs(refs) + " start; "
		for _, ref := range refs {
			if end, ok := s.world.ends[ref]; ok {
				starts[ref] = end
			}
		}
	}
	turn, records, err := s.group.Poll(p, starts, s.world, s.now)
	if err != nil {
		return s.done(records, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%sepoch %d", asks, turn.Epoch)
	if turn.AssignmentChanged {
		b.WriteString(" changed")
	}
	b.WriteString(":")
	for _, a := range turn.Assignment {
		fmt.Fprintf(&b, " %s/%d@%d", a.Topic, a.Ref.Partition, a.Assigned)
		if a.Committed != topic.NoOffset {
			fmt.Fprintf(&b, " from %d", a.Committed)
		}
		if a.Leaving {
			b.WriteString(" leaving")
		}
		b.WriteString(",")
	}
	for _, waits := range turn.Waiting {
		fmt.Fprintf(&b, " waits for %s/%d of %s,", waits.Topic, waits.Ref.Partition, waits.Holder)
	}
	answer := strings.TrimSuffix(b.String(), ",")
	return answer + "; " + s.refused(turn.NotCommitted) + s.wrote(records)
}

func (s *scene) refs(refs []topic.Ref) string {
	var all []string
	for _, ref := range refs {
		name, _, _ := s.world.TopicByID(ref.ID)
		all = append(all, topic.Path{Topic: name, Partition: ref.Partition}.String())
	}
	return strings.Join(all, " ")
}

func (s *scene) refused(refused []topic.NotCommitted) string {
	var b strings.Builder
	for _, n := range refused {
		fmt.Fprintf(&b, "%s/%d:%d does not count, %s; ", n.Topic, n.Ref.Partition, n.Next, n.Reason)
	}
	return b.String()
}

func (s *scene) done(records []Record, err error) string {
	if err != nil {
		if records != nil {
			s.t.Fatal("a refused call has records")
		}
		return fault.KindOf(err).String() + ": " + fault.Sentence(err)
	}
	return s.wrote(records)
}

// wrote keeps records and says what they are.
func (s *scene) wrote(records []Record) string {
	s.kept.add(records)
	if len(records) == 0 {
		return "writes nothing"
	}
	said := []string{}
	for _, r := range records {
		k, err := decodeKey(r.Key)
		if err != nil {
			s.t.Fatal(err)
		}
		word := ""
		switch k.Kind {
		case groupKind:
			word = "group"
		case memberKind:
			word = string(k.Member)
		case topicKind:
			word = s.named(k.Topic)
		case offsetKind:
			word = fmt.Sprintf("%s/%d", s.named(k.Topic), k.Partition)
		}
		if r.Value == nil {
			word = "no " + word
		}
		said = append(said, word)
	}
	return "writes " + strings.Join(said, ", ")
}

func (s *scene) named(id topic.ID) string { return strings.TrimRight(string(id[:15]), "\x00") }

func (s *scene) show() string {
	d := s.group.Describe()
	if !s.group.Exists() {
		return fmt.Sprintf("no group, gone %t", s.group.Gone())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s in epoch %d", d.State, d.Epoch)
	if len(d.Overrides) > 0 {
		fmt.Fprintf(&b, ", %v", d.Overrides)
	}
	for _, m := range d.Members {
		fmt.Fprintf(&b, "\n  %s epoch %d ends in %s:", m.Name, m.Epoch, time.UnixMilli(int64(m.SessionEnds)).Sub(s.now))
		for _, ref := range m.Assignment {
			b.WriteString(" " + s.refs([]topic.Ref{ref}))
			if slices.Contains(m.Leaving, ref) {
				b.WriteString(" leaving")
			}
		}
	}
	for _, p := range d.Partitions {
		fmt.Fprintf(&b, "\n  %s of %q at %d", p.Path, p.Member, p.Committed)
	}
	return b.String()
}
