package replica

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts plays the scenes in testdata. A scene is a comment, lines of events, "----" and what came
// of them; each line that has effects prints them, and "show" prints the machine.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for i, scene := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
				if i > 0 {
					got.WriteString("\n")
				}
				play(t, &got, scene)
			}
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(raw) {
				t.Errorf("%s: got\n%s\n(run with -update and read the difference)", path, got.String())
			}
		})
	}
}

func play(t *testing.T, out *strings.Builder, scene string) {
	t.Helper()
	script, _, ok := strings.Cut(scene, "----")
	if !ok {
		t.Fatalf("scene without ----:\n%s", scene)
	}
	out.WriteString(script + "----\n")
	m := New(1)
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		args := parse(t, rest)
		switch word {
		case "show":
			fmt.Fprintf(out, "%s: leading=%t epoch=%d hw=%d settled=%t\n", line, m.Leading(), m.Epoch(), m.HighWatermark(), m.Settled())
		case "admit":
			acks, err := topic.ParseAcks(rest)
			if err != nil {
				t.Fatal(err)
			}
			verdict := "yes"
			if err := m.Admit(acks); err != nil {
				verdict = fault.KindOf(err).String() + ": " + fault.Sentence(err)
			}
			fmt.Fprintf(out, "%s: %s\n", line, verdict)
		default:
			for _, effect := range m.Step(event(t, word, args)) {
				fmt.Fprintf(out, "%s: %s\n", line, text(effect))
			}
		}
	}
}

func text(e Effect) string {
	switch e.Do {
	case Commit:
		return fmt.Sprintf("high watermark %d", e.Offset)
	case Settle:
		return fmt.Sprintf("latest is known, epoch %d", e.Epoch)
	case End:
		return fmt.Sprintf("epoch %d is over", e.Epoch)
	case Fence:
		return fmt.Sprintf("fence node %d, the epoch is %d", e.Node, e.Epoch)
	case Later:
		return fmt.Sprintf("node %d asks again, the epoch here is %d", e.Node, e.Epoch)
	default:
		return fmt.Sprintf("%+v", e)
	}
}

type arguments map[string][]int64

func parse(t *testing.T, s string) arguments {
	t.Helper()
	args := arguments{}
	for _, field := range strings.Fields(s) {
		name, list, ok := strings.Cut(field, "=")
		if !ok {
			continue
		}
		for _, word := range strings.Split(list, ",") {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", field, err)
			}
			args[name] = append(args[name], n)
		}
	}
	return args
}

func (a arguments) one(name string) int64 {
	if len(a[name]) == 0 {
		return 0
	}
	return a[name][0]
}

func (a arguments) offset(name string) topic.Offset { return topic.Offset(a.one(name)) }

func (a arguments) nodes(name string) []topic.NodeID {
	var nodes []topic.NodeID
	for _, n := range a[name] {
		nodes = append(nodes, topic.NodeID(n))
	}
	return nodes
}

func event(t *testing.T, word string, a arguments) Event {
	t.Helper()
	switch word {
	case "lead":
		return Lead{
			Epoch: topic.Epoch(a.one("epoch")), PartitionEpoch: topic.PartitionEpoch(a.one("pe")), InSync: a.nodes("isr"), MinInSync: int(a.one("min")),
			End: a.offset("end"), Synced: a.offset("synced"), HighWatermark: a.offset("hw"),
		}
	case "appended":
		return Appended{End: a.offset("end")}
	case "synced":
		return Synced{End: a.offset("end")}
	case "fetched":
		return Fetched{
			By: topic.NodeID(a.one("by")), Incarnation: topic.Incarnation(a.one("inc")), Epoch: topic.Epoch(a.one("epoch")),
			End: a.offset("end"), Synced: a.offset("synced"),
		}
	case "proposed":
		return Proposed{InSync: a.nodes("isr")}
	case "changed":
		return Changed{PartitionEpoch: topic.PartitionEpoch(a.one("pe")), InSync: a.nodes("isr"), MinInSync: int(a.one("min"))}
	case "refused":
		return Refused{}
	case "stop":
		return Stop{}
	default:
		t.Fatalf("no such event: %q", word)
		return nil
	}
}

// TestPromises throws random events at a machine and checks what the package doc promises, against a
// second, slower account of who has synced what.
func TestPromises(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := New(1)
		var (
			hw, end, synced topic.Offset
			epoch           topic.Epoch
			pe              topic.PartitionEpoch
			inSync          = []topic.NodeID{1, 2, 3}
			pending         []topic.NodeID
			minISR          = 2
			reported        = map[topic.NodeID]topic.Offset{}
		)
		sets := [][]topic.NodeID{{1}, {1, 2}, {1, 3}, {1, 2, 3}}
		for step := range 200 {
			var effects []Effect
			switch rng.IntN(9) {
			case 0:
				if rng.IntN(4) > 0 && step > 0 {
					continue
				}
				epoch, pe, pending = epoch+1, pe+1, nil
				inSync, reported = sets[rng.IntN(len(sets))], map[topic.NodeID]topic.Offset{}
				effects = m.Step(Lead{Epoch: epoch, PartitionEpoch: pe, InSync: inSync, MinInSync: minISR, End: end, Synced: synced, HighWatermark: hw})
			case 1, 2:
				end += topic.Offset(rng.IntN(4))
				effects = m.Step(Appended{End: end})
			case 3, 4:
				synced = max(synced, end-topic.Offset(rng.IntN(3)))
				effects = m.Step(Synced{End: synced})
			case 5, 6:
				node, e := topic.NodeID(2+rng.IntN(2)), epoch-topic.Epoch(rng.IntN(2))
				at := topic.Offset(rng.Int64N(int64(end) + 1))
				effects = m.Step(Fetched{By: node, Epoch: e, Incarnation: 1, End: end, Synced: at})
				if e == epoch && m.Leading() {
					reported[node] = max(reported[node], at)
				}
			case 7:
				pending = sets[rng.IntN(len(sets))]
				effects = m.Step(Proposed{InSync: pending})
			case 8:
				if pending == nil {
					continue
				}
				if rng.IntN(2) == 0 {
					pending = nil
					effects = m.Step(Refused{})
				} else {
					pe++
					inSync, pending = pending, nil
					effects = m.Step(Changed{PartitionEpoch: pe, InSync: inSync, MinInSync: minISR})
				}
			}
			for _, e := range effects {
				if e.Do != Commit {
					continue
				}
				if e.Offset <= hw {
					t.Fatalf("seed %d step %d: high watermark from %d to %d", seed, step, hw, e.Offset)
				}
				hw = e.Offset
				if len(inSync) < minISR {
					t.Fatalf("seed %d step %d: committed %d with %d in sync", seed, step, hw, len(inSync))
				}
				for _, node := range slices.Concat(inSync, pending) {
					has := reported[node]
					if node == 1 {
						has = synced
					}
					if has < hw {
						t.Fatalf("seed %d step %d: committed %d, node %d has synced %d", seed, step, hw, node, has)
					}
				}
			}
			if m.HighWatermark() != hw {
				t.Fatalf("seed %d step %d: high watermark %d moved to %d without an effect", seed, step, hw, m.HighWatermark())
			}
		}
	}
}
