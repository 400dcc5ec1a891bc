package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// TestTheSameCommandsGiveTheSameState applies commands by chance to two states, of which one is replaced by its
// own snapshot now and then, and compares hashes, derived counts and differences of images.
func TestTheSameCommandsGiveTheSameState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewState(), NewState()
		var sent []Command
		older := a.Image()
		index := uint64(0)
		for range rapid.IntRange(1, 120).Draw(t, "commands") {
			c := Command{Op: drawOp(t, a.Image())}
			if len(sent) > 0 && rapid.IntRange(0, 9).Draw(t, "repeat") == 0 {
				c = rapid.SampledFrom(sent).Draw(t, "which")
			} else {
				c.ID = CommandID{byte(len(sent) + 1), byte((len(sent) + 1) >> 8)}
				sent = append(sent, c)
			}
			index += uint64(rapid.IntRange(0, 2).Draw(t, "step"))
			ra := a.Apply(index, c)
			decoded, err := DecodeEntry(EncodeEntry([][]byte{c.Encode()}))
			if err != nil {
				t.Fatal(err)
			}
			rb := b.Apply(index, decoded[0])
			if fmt.Sprint(ra.Err) != fmt.Sprint(rb.Err) || ra.Version != rb.Version || ra.Repeated != rb.Repeated || !reflect.DeepEqual(ra.Topic, rb.Topic) {
				t.Fatalf("%#v: answered %+v and %+v", c, ra, rb)
			}
			if a.Hash() != b.Hash() {
				t.Fatalf("hashes differ after %#v", c)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				if b, err = DecodeSnapshot(b.Snapshot().Encode()); err != nil {
					t.Fatal(err)
				}
			}
			checkDerived(t, a.Image(), b.Image())
			if rapid.IntRange(0, 9).Draw(t, "look") == 0 {
				checkSince(t, older, a.Image())
				older = a.Image()
			}
		}
		checkSince(t, older, a.Image())
	})
}

// drawOp makes commands of which most are about something that exists.
func drawOp(t *rapid.T, m *Image) Op {
	name := topic.Name(rapid.SampledFrom([]string{"a", "b", "c", "d", "__e"}).Draw(t, "name"))
	id := idOf(string(name), rapid.IntRange(1, 9).Draw(t, "life"))
	if found, ok := m.Topic(name); ok && rapid.IntRange(0, 9).Draw(t, "known") > 0 {
		id = found.ID
	}
	at := topic.Millis(rapid.IntRange(0, 1000).Draw(t, "at"))
	node := topic.NodeID(rapid.IntRange(0, 4).Draw(t, "node"))
	value := rapid.SampledFrom([]string{"1000", "compact", "2", ""}).Draw(t, "value")
	setting := rapid.SampledFrom([]string{"retention.ms", "segment.bytes", "cleanup.policy", "no.such"}).Draw(t, "setting")
	switch rapid.IntRange(0, 9).Draw(t, "op") {
	case 0:
		return FoundCluster{ClusterID: value}
	case 1, 2:
		return RegisterNode{Node: node, At: at}
	case 3, 4:
		return CreateTopic{
			ID: id, Name: name, Partitions: rapid.IntRange(0, 5).Draw(t, "partitions"), Replication: rapid.IntRange(0, 3).Draw(t, "replication"),
			Overrides: map[string]string{setting: value}, Creator: "User:" + value, At: at,
		}
	case 5:
		op := AlterTopic{ID: id, Settings: map[string]*string{setting: nil}, Partitions: rapid.IntRange(0, 8).Draw(t, "partitions"), At: at}
		if rapid.Bool().Draw(t, "set") {
			op.Settings[setting] = &value
		}
		return op
	case 6:
		return DeleteTopic{ID: id}
	case 7:
		op := ChangePartition{Partition: topic.Ref{ID: id}, By: node, Incarnation: 1, Leader: node, InSync: []topic.NodeID{node}}
		if found, ok := m.TopicByID(id); ok {
			p := found.Partitions[0]
			by, _ := m.Node(p.Leader)
			op.Epoch, op.Changes, op.By, op.Incarnation, op.InSync = p.Epoch, p.Changes, p.Leader, by.Incarnation, p.Replicas
		}
		return op
	case 8:
		return PutEntry{Kind: "acl", Name: string(name), Expect: AnyVersion, Value: []byte(value)}
	default:
		return DeleteEntry{Kind: "acl", Name: string(name), Expect: AnyVersion}
	}
}

// checkDerived counts again what images count as they go.
func checkDerived(t *rapid.T, images ...*Image) {
	for _, m := range images {
		partitions, replicas, creators, entryBytes := 0, map[topic.NodeID]int{}, map[string]int{}, 0
		for found := range m.AllTopics() {
			partitions += len(found.Partitions)
			if !found.Name.Internal() {
				creators[found.Creator]++
			}
			for i, p := range found.Partitions {
				if int(p.Partition) != i || !slices.Contains(p.InSync, p.Leader) {
					t.Fatalf("%s: partition %d is %+v", found.Name, i, p)
				}
				for _, n := range p.Replicas {
					replicas[n]++
				}
			}
			if byID, ok := m.TopicByID(found.ID); !ok || byID != found || m.Deleted(found.ID) {
				t.Fatalf("%s is not found by its id, or counts as deleted", found.Name)
			}
			if last := found.Growth[len(found.Growth)-1]; last.Partitions != len(found.Partitions) {
				t.Fatalf("%s has %d partitions and the history %v", found.Name, len(found.Partitions), found.Growth)
			}
		}
		for _, e := range m.Entries("acl") {
			entryBytes += len(e.Value)
		}
		if m.PartitionCount() != partitions || m.entryBytes != entryBytes || m.names.count != m.topics.count {
			t.Fatalf("counts %d, %d and %d are wrong", m.PartitionCount(), m.entryBytes, m.names.count)
		}
		if got := maps.Collect(m.creators.all()); !maps.Equal(got, creators) {
			t.Fatalf("topics of principals are %v, want %v", got, creators)
		}
		for _, n := range m.Nodes() {
			if n.Partitions != replicas[n.ID] {
				t.Fatalf("%+v holds %d", n, replicas[n.ID])
			}
		}
	}
}

func checkSince(t *rapid.T, older, now *Image) {
	var changed, gone []*Topic
	for found := range now.AllTopics() {
		if was, ok := older.Topic(found.Name); !ok || was != found {
			changed = append(changed, found)
		}
	}
	for was := range older.AllTopics() {
		if _, ok := now.TopicByID(was.ID); !ok {
			gone = append(gone, was)
		}
	}
	if d := now.Since(older); !slices.Equal(d.Changed, changed) || !slices.Equal(d.Gone, gone) {
		t.Fatalf("changed %v and gone %v, want %v and %v", names(d.Changed), names(d.Gone), names(changed), names(gone))
	}
}

// apply is for commands that must be taken.
func apply(t *testing.T, s *State, op Op) Result {
	t.Helper()
	r := s.Apply(s.image.index+1, Command{Op: op})
	if r.Err != nil {
		t.Fatalf("%#v: %v", op, r.Err)
	}
	return r
}

func refused(t *testing.T, s *State, kind fault.Kind, op Op) {
	t.Helper()
	if r := s.Apply(s.image.index+1, Command{Op: op}); !fault.Is(r.Err, kind) {
		t.Errorf("%#v: %v, want %v", op, r.Err, kind)
	}
}

func bigID(n int) (id topic.ID) {
	id[0], id[1], id[15] = byte(n), byte(n>>8), 1
	return id
}

func numbered(n int) topic.Name { return topic.Name(fmt.Sprintf("topic-%05d", n)) }

// TestCapsHoldAndAreGivenBack goes to each cap and one step further.
func TestCapsHoldAndAreGivenBack(t *testing.T) {
	s := NewState()
	apply(t, s, RegisterNode{Node: 1})
	for i := range MaxTopicsPerPrincipal {
		apply(t, s, CreateTopic{ID: bigID(i), Name: numbered(i), Partitions: 1, Replication: 1, Creator: "User:ann"})
	}
	more := CreateTopic{ID: bigID(5000), Name: "more", Partitions: 1, Replication: 1, Creator: "User:ann"}
	refused(t, s, fault.Limit, more)
	apply(t, s, CreateTopic{ID: bigID(5001), Name: "__weirs-own", Partitions: 1, Replication: 1, Creator: "User:ann"})
	apply(t, s, CreateTopic{ID: bigID(5002), Name: "bobs", Partitions: 1, Replication: 1, Creator: "User:bob"})
	apply(t, s, DeleteTopic{ID: bigID(0)})
	apply(t, s, more)

	have, _ := s.Image().Node(1)
	for i := 0; have.Partitions+1000 <= MaxPartitionsPerNode; i++ {
		apply(t, s, CreateTopic{ID: bigID(6000 + i), Name: numbered(6000 + i), Partitions: 1000, Replication: 1, Creator: "User:carl"})
		have, _ = s.Image().Node(1)
	}
	room := MaxPartitionsPerNode - have.Partitions
	refused(t, s, fault.Limit, CreateTopic{ID: bigID(7000), Name: "wide", Partitions: room + 1, Replication: 1})
	refused(t, s, fault.Limit, AlterTopic{ID: bigID(5002), Partitions: room + 2})
	refused(t, s, fault.Limit, AlterTopic{ID: bigID(6000), Partitions: MaxPartitionsPerTopic + 1})
	apply(t, s, AlterTopic{ID: bigID(5002), Partitions: room + 1})
	refused(t, s, fault.Limit, CreateTopic{ID: bigID(7000), Name: "wide", Partitions: 1, Replication: 1})
	apply(t, s, DeleteTopic{ID: bigID(6000)})
	apply(t, s, CreateTopic{ID: bigID(7000), Name: "wide", Partitions: 1000, Replication: 1})

	refused(t, s, fault.Limit, PutEntry{Kind: "k", Name: "n", Value: make([]byte, MaxEntryBytes+1)})
	for i := range MaxEntriesBytes / MaxEntryBytes {
		apply(t, s, PutEntry{Kind: "k", Name: fmt.Sprint(i), Value: make([]byte, MaxEntryBytes)})
	}
	refused(t, s, fault.Limit, PutEntry{Kind: "k", Name: "n", Value: []byte{1}})
	apply(t, s, PutEntry{Kind: "k", Name: "1", Expect: AnyVersion, Value: make([]byte, MaxEntryBytes-1)})
	apply(t, s, PutEntry{Kind: "k", Name: "n", Value: []byte{1}})
	apply(t, s, DeleteEntry{Kind: "k", Name: "2", Expect: AnyVersion})
	apply(t, s, PutEntry{Kind: "k", Name: "m", Value: make([]byte, MaxEntryBytes)})
	refused(t, s, fault.Validation, PutEntry{Kind: "", Name: "n"})
	refused(t, s, fault.Validation, PutEntry{Kind: "k", Name: string(bytes.Repeat([]byte("n"), MaxEntryNameBytes+1))})
	refused(t, s, fault.Validation, AlterTopic{ID: bigID(1), Settings: map[string]*string{"cleanup.policy": new(string(bytes.Repeat([]byte("delete,"), 1000)))}})
}

// TestMemoriesAreBounded: the oldest command and the oldest deleted id are forgotten first, after a restore too.
func TestMemoriesAreBounded(t *testing.T) {
	s := NewState()
	command := func(n int) Command {
		return Command{ID: CommandID{byte(n), byte(n >> 8), 1}, Op: RegisterNode{Node: 1}}
	}
	for n := range MaxCommandsRemembered + 2 {
		s.Apply(uint64(n), command(n))
		if n == MaxCommandsRemembered {
			restored, err := DecodeSnapshot(s.Snapshot().Encode())
			if err != nil || restored.Hash() != s.Hash() {
				t.Fatalf("the hash differs after a restore, or %v", err)
			}
			s = restored
		}
	}
	if len(s.recent.ring) != MaxCommandsRemembered || len(s.recent.at) != MaxCommandsRemembered {
		t.Fatalf("%d commands are remembered under %d ids", len(s.recent.ring), len(s.recent.at))
	}
	if r := s.Apply(10_000, command(2)); !r.Repeated || r.Incarnation != 3 {
		t.Errorf("the oldest command that fits was forgotten: %+v", r)
	}
	if r := s.Apply(10_000, command(1)); r.Repeated {
		t.Error("a command beyond the cap is still remembered")
	}

	for n := range MaxDeletedTopicsRemembered + 1 {
		apply(t, s, CreateTopic{ID: bigID(n), Name: "t", Partitions: 1, Replication: 1})
		apply(t, s, DeleteTopic{ID: bigID(n)})
	}
	m := s.Image()
	if m.deleted.count != MaxDeletedTopicsRemembered || m.Deleted(bigID(0)) || !m.Deleted(bigID(1)) {
		t.Errorf("%d ids are remembered; the first: %v, the second: %v", m.deleted.count, m.Deleted(bigID(0)), m.Deleted(bigID(1)))
	}
}

// TestAnImageCostsTheSameWithManyTopics compares the bytes that a change allocates.
func TestAnImageCostsTheSameWithManyTopics(t *testing.T) {
	cost := func(topics int) float64 {
		s := NewState()
		apply(t, s, RegisterNode{Node: 1})
		for i := range topics {
			apply(t, s, CreateTopic{ID: bigID(i), Name: numbered(i), Partitions: 1, Replication: 1, Creator: fmt.Sprint("User:", i%8)})
		}
		const rounds = 500
		values := []string{"1000", "2000"}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range rounds {
			apply(t, s, AlterTopic{ID: bigID(topics / 2), Settings: map[string]*string{"retention.ms": &values[i%2]}})
			s.Image()
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / rounds
	}
	few, many := cost(64), cost(7_000)
	t.Logf("a change allocates %.0f bytes with 64 topics, %.0f with 7,000", few, many)
	if many > 2*few {
		t.Errorf("a change allocates %.0f bytes with 7,000 topics and %.0f with 64", many, few)
	}
}

// TestTopicsArePagedByName walks in steps and at once.
func TestTopicsArePagedByName(t *testing.T) {
	s := NewState()
	apply(t, s, RegisterNode{Node: 1})
	for i := range 300 {
		apply(t, s, CreateTopic{ID: bigID(i), Name: numbered((i * 7) % 300), Partitions: 1, Replication: 1})
	}
	m := s.Image()
	var paged []*Topic
	for after := topic.Name(""); ; after = paged[len(paged)-1].Name {
		page := m.Topics(after, 7)
		paged = append(paged, page...)
		if len(page) < 7 {
			break
		}
	}
	if all := m.Topics("", 0); !slices.Equal(paged, all) || len(all) != 300 || !slices.IsSortedFunc(all, func(a, b *Topic) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) }) {
		t.Errorf("pages have %d topics, all are %d", len(paged), len(all))
	}
	if past := m.Topics("topic-00299", 5); len(past) != 0 {
		t.Errorf("behind the last there are %v", names(past))
	}
}

func BenchmarkAlter(b *testing.B) {
	s := NewState()
	s.Apply(1, Command{Op: RegisterNode{Node: 1}})
	for i := range 1000 {
		s.Apply(1, Command{Op: CreateTopic{ID: bigID(i), Name: numbered(i), Partitions: 1, Replication: 1}})
	}
	values := []string{"1000", "2000"}
	for i := 0; b.Loop(); i++ {
		s.Apply(1, Command{Op: AlterTopic{ID: bigID(i % 1000), Settings: map[string]*string{"retention.ms": &values[i/1000%2]}}})
	}
}
