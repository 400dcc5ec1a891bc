package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// problem is one set of arguments of assign.
type problem struct {
	members []subscriber
	topics  []subscribed
	current map[topic.Ref]topic.MemberName
}

func (p *problem) solve(kind topic.Assignor) map[topic.MemberName][]topic.Ref {
	return assign(kind, p.members, p.topics, p.current)
}

func topicID(n int) topic.ID { return topic.ID{0: byte(n*37 + 11), 1: byte(n >> 8), 15: byte(n)} }

// randomProblem has up to so many members, topics and partitions a topic, and a current assignment that
// knows some members and topics that are gone.
func randomProblem(r *rand.Rand, members, topics, partitions int) problem {
	var p problem
	for t := range 1 + r.IntN(topics) {
		p.topics = append(p.topics, subscribed{
			Name: topic.Name(fmt.Sprintf("t%03d", (t*7919)%1000)), ID: topicID(t), Partitions: 1 + r.IntN(partitions),
		})
	}
	shapes := make([][]int, 1+r.IntN(4))
	for i := range shapes {
		for t := range p.topics {
			if i == 0 || r.IntN(3) > 0 {
				shapes[i] = append(shapes[i], t)
			}
		}
	}
	n := 1 + r.IntN(members)
	for _, m := range r.Perm(n) {
		p.members = append(p.members, subscriber{Name: topic.MemberName(fmt.Sprintf("m%04d", m)), Topics: shapes[r.IntN(len(shapes))]})
	}
	p.current = map[topic.Ref]topic.MemberName{}
	few := 1 + r.IntN(n+2) // members who have had something; some may be gone
	for t, topic := range p.topics {
		for q := range topic.Partitions + 1 {
			if r.IntN(4) > 0 {
				p.current[ref(t, q)] = memberName(r.IntN(few))
			}
		}
	}
	return p
}

func memberName(m int) topic.MemberName { return topic.MemberName(fmt.Sprintf("m%04d", m)) }
func ref(t, q int) topic.Ref            { return topic.Ref{ID: topicID(t), Partition: topic.Partition(q)} }

// owners turns an answer round.
func owners(t testing.TB, answer map[topic.MemberName][]topic.Ref) map[topic.Ref]topic.MemberName {
	t.Helper()
	all := map[topic.Ref]topic.MemberName{}
	for m, refs := range answer {
		if len(refs) == 0 || !slices.IsSortedFunc(refs, compareRef) {
			t.Errorf("%s has %v", m, refs)
		}
		for _, ref := range refs {
			if other, twice := all[ref]; twice {
				t.Errorf("%v belongs to %s and %s", ref, other, m)
			}
			all[ref] = m
		}
	}
	return all
}

// checkComplete: every partition that somebody reads has one owner, who reads it, and nothing else has.
func checkComplete(t testing.TB, p *problem, answer map[topic.MemberName][]topic.Ref) {
	t.Helper()
	all := owners(t, answer)
	count := 0
	for i, s := range p.topics {
		read := slices.ContainsFunc(p.members, func(m subscriber) bool { return slices.Contains(m.Topics, i) })
		for q := range s.Partitions {
			owner, has := all[topic.Ref{ID: s.ID, Partition: topic.Partition(q)}]
			if has != read {
				t.Errorf("%s/%d: has an owner: %v, is read: %v", s.Name, q, has, read)
			}
			if has {
				count++
				at := slices.IndexFunc(p.members, func(m subscriber) bool { return m.Name == owner })
				if at < 0 || !slices.Contains(p.members[at].Topics, i) {
					t.Errorf("%s/%d belongs to %s, who does not read it", s.Name, q, owner)
				}
			}
		}
	}
	if count != len(all) {
		t.Errorf("%d partitions were assigned, %d are there", len(all), count)
	}
}

// checkEven: nobody could give to somebody with at least two fewer, not by way of others either.
func checkEven(t testing.TB, p *problem, answer map[topic.MemberName][]topic.Ref) {
	t.Helper()
	index := map[topic.ID]int{}
	for i, s := range p.topics {
		index[s.ID] = i
	}
	n := len(p.members)
	reach := make([][]bool, n)
	for u, from := range p.members {
		reach[u] = make([]bool, n)
		has := map[int]bool{}
		for _, ref := range answer[from.Name] {
			has[index[ref.ID]] = true
		}
		for v, to := range p.members {
			reach[u][v] = slices.ContainsFunc(to.Topics, func(i int) bool { return has[i] })
		}
	}
	for k := range n {
		for u := range n {
			for v := range n {
				reach[u][v] = reach[u][v] || reach[u][k] && reach[k][v]
			}
		}
	}
	for u, from := range p.members {
		for v, to := range p.members {
			if a, b := len(answer[from.Name]), len(answer[to.Name]); reach[u][v] && a >= b+2 {
				t.Errorf("%s has %d and could give to %s, who has %d", from.Name, a, to.Name, b)
			}
		}
	}
}

// moves counts the partitions that leave somebody who is there and reads them.
func moves(p *problem, answer map[topic.Ref]topic.MemberName) int {
	n := 0
	for i, s := range p.topics {
		for q := range s.Partitions {
			ref := topic.Ref{ID: s.ID, Partition: topic.Partition(q)}
			before, had := p.current[ref]
			if had && answer[ref] != before && slices.ContainsFunc(p.members, func(m subscriber) bool {
				return m.Name == before && slices.Contains(m.Topics, i)
			}) {
				n++
			}
		}
	}
	return n
}

func TestAssignIsCompleteAndEven(t *testing.T) {
	for seed := range uint64(1500) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 1)), 14, 6, 12)
		for _, kind := range []topic.Assignor{topic.StickyAssignor, topic.UniformAssignor} {
			answer := p.solve(kind)
			checkComplete(t, &p, answer)
			checkEven(t, &p, answer)
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, kind)
			}
		}
		checkComplete(t, &p, p.solve(topic.RangeAssignor))
		if t.Failed() {
			t.Fatalf("seed %d, range", seed)
		}
	}
}

// TestStickyMovesTheLeast tries every assignment of small problems.
func TestStickyMovesTheLeast(t *testing.T) {
	for seed := range uint64(2500) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 2)), 5, 3, 3)
		var refs []topic.Ref
		var readers [][]int
		choices := 1
		for i, s := range p.topics {
			for q := range s.Partitions {
				var who []int
				for m := range p.members {
					if slices.Contains(p.members[m].Topics, i) {
						who = append(who, m)
					}
				}
				if len(who) == 0 {
					continue
				}
				refs = append(refs, topic.Ref{ID: s.ID, Partition: topic.Partition(q)})
				readers = append(readers, who)
				choices *= len(who)
			}
		}
		if choices > 20_000 {
			continue
		}
		loads := make([]int, len(p.members))
		bestSquares, bestMoves := 1<<30, 0
		var try func(at, moved int)
		try = func(at, moved int) {
			if at == len(refs) {
				squares := 0
				for _, n := range loads {
					squares += n * n
				}
				if squares < bestSquares || squares == bestSquares && moved < bestMoves {
					bestSquares, bestMoves = squares, moved
				}
				return
			}
			before := p.current[refs[at]]
			could := slices.ContainsFunc(readers[at], func(m int) bool { return p.members[m].Name == before })
			for _, m := range readers[at] {
				loads[m]++
				if could && p.members[m].Name != before {
					try(at+1, moved+1)
				} else {
					try(at+1, moved)
				}
				loads[m]--
			}
		}
		try(0, 0)
		answer := p.solve(topic.StickyAssignor)
		squares := 0
		for _, refs := range answer {
			squares += len(refs) * len(refs)
		}
		if moved := moves(&p, owners(t, answer)); squares != bestSquares || moved != bestMoves {
			t.Fatalf("seed %d: squares %d, %d moves; possible are %d and %d\n%+v\n%v", seed, squares, moved, bestSquares, bestMoves, p, answer)
		}
	}
}

// TestStickyIsStable: what it chose it chooses again, and who comes and goes moves only what must.
func TestStickyIsStable(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := randomProblem(r, 20, 5, 16)
		p.current = owners(t, p.solve(topic.StickyAssignor))
		if again := owners(t, p.solve(topic.StickyAssignor)); !maps.Equal(again, p.current) {
			t.Fatalf("seed %d: asked again, the answer is another one", seed)
		}
		// One goes: where all read the same, nobody else loses anything.
		for i := range p.members {
			p.members[i].Topics = p.members[0].Topics
		}
		p.current = owners(t, p.solve(topic.StickyAssignor))
		if len(p.members) == 1 {
			continue
		}
		all := p.members
		p.members = all[1:]
		answer := p.solve(topic.StickyAssignor)
		if n := moves(&p, owners(t, answer)); n != 0 {
			t.Fatalf("seed %d: one has gone, and %d partitions of others move", seed, n)
		}
		// It comes back: only its share moves.
		p.members, p.current = all, owners(t, answer)
		answer = p.solve(topic.StickyAssignor)
		if n := moves(&p, owners(t, answer)); n != len(answer[all[0].Name]) {
			t.Fatalf("seed %d: one has come, has %d and %d move", seed, len(answer[all[0].Name]), n)
		}
	}
}

// TestAssignDependsOnItsArgumentsAlone: not on their order, nor, but for the sticky one, on the past.
func TestAssignDependsOnItsArgumentsAlone(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := randomProblem(r, 12, 6, 10)
		shuffled := problem{current: maps.Clone(p.current)}
		place := make([]int, len(p.topics))
		for at, i := range r.Perm(len(p.topics)) {
			place[i] = at
			shuffled.topics = append(shuffled.topics, subscribed{})
		}
		for i, s := range p.topics {
			shuffled.topics[place[i]] = s
		}
		for _, i := range r.Perm(len(p.members)) {
			m := p.members[i]
			m.Topics = slices.Clone(m.Topics)
			for at := range m.Topics {
				m.Topics[at] = place[m.Topics[at]]
			}
			slices.Sort(m.Topics)
			shuffled.members = append(shuffled.members, m)
		}
		for _, kind := range []topic.Assignor{topic.StickyAssignor, topic.UniformAssignor, topic.RangeAssignor} {
			if a, b := p.solve(kind), shuffled.solve(kind); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, %s: in another order %v became %v", seed, kind, a, b)
			}
			shuffled.current = nil // the sticky one comes first
		}
	}
}

// TestRangeKeepsNumbersTogether: topics of the same size and readers are divided alike, each to within one.
func TestRangeKeepsNumbersTogether(t *testing.T) {
	for members := 1; members < 9; members++ {
		for partitions := 1; partitions < 20; partitions++ {
			p := problem{topics: []subscribed{{"b", topicID(2), partitions}, {"a", topicID(1), partitions}}}
			for m := range members {
				p.members = append(p.members, subscriber{Name: memberName(m), Topics: []int{0, 1}})
			}
			answer := p.solve(topic.RangeAssignor)
			all := owners(t, answer)
			last := topic.MemberName("")
			for q := range partitions {
				a, b := all[ref(1, q)], all[ref(2, q)]
				if a != b || a < last {
					t.Fatalf("%d members, %d partitions: number %d is with %s and %s after %s", members, partitions, q, a, b, last)
				}
				last = a
			}
			for _, m := range p.members {
				if n := len(answer[m.Name]) / 2; n < partitions/members || n > (partitions+members-1)/members {
					t.Fatalf("%d members, %d partitions: %s has %d of each", members, partitions, m.Name, n)
				}
			}
		}
	}
}

// large has a thousand members and 8,000 partitions. shapes is the number of different subscriptions.
func large(seed uint64, shapes int) problem {
	r := rand.New(rand.NewPCG(seed, 5))
	var p problem
	for t := range 1000 {
		p.topics = append(p.topics, subscribed{Name: topic.Name(fmt.Sprintf("t%04d", t)), ID: topic.ID{byte(t >> 8), byte(t)}, Partitions: 8})
	}
	lists := make([][]int, shapes)
	for i := range lists {
		for t := range 1000 {
			if i == 0 || r.IntN(2) == 0 {
				lists[i] = append(lists[i], t)
			}
		}
	}
	for m := range 1000 {
		p.members = append(p.members, subscriber{Name: memberName(m), Topics: lists[m%shapes]})
	}
	return p
}

// TestAssignOfAThousandMembers logs how long large problems take, without a limit: machines differ.
func TestAssignOfAThousandMembers(t *testing.T) {
	for _, shapes := range []int{1, 10, 100} {
		p := large(1, shapes)
		timed := func(what string) {
			began := time.Now()
			answer := p.solve(topic.StickyAssignor)
			t.Logf("%d subscriptions, %s: %v", shapes, what, time.Since(began).Round(time.Millisecond))
			checkLoads(t, answer, len(p.members))
			p.current = owners(t, answer)
		}
		timed("all new")
		timed("nothing has changed")
		all := p.members
		p.members = all[:900]
		timed("a tenth has gone")
		p.members = all
		timed("and come back")
		for at := range p.current {
			p.current[at] = memberName(int(at.Partition))
		}
		timed("eight had everything")
		p.current = nil
		began := time.Now()
		p.solve(topic.RangeAssignor)
		t.Logf("%d subscriptions, by range: %v", shapes, time.Since(began).Round(time.Millisecond))
	}
}

// checkLoads: the large problems can be solved to within one.
func checkLoads(t *testing.T, answer map[topic.MemberName][]topic.Ref, members int) {
	t.Helper()
	least, most, total := 8000, 0, 0
	for _, refs := range answer {
		least, most, total = min(least, len(refs)), max(most, len(refs)), total+len(refs)
	}
	if total != 8000 || len(answer) != members || most-least > 1 {
		t.Errorf("%d members have %d to %d, together %d", len(answer), least, most, total)
	}
}

// TestAssignTables plays testdata/assign.table: topics, members, what they had; who has what now.
func TestAssignTables(t *testing.T) {
	const file = "testdata/assign.table"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var table assignTable
	answering := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			answering = false
			out.WriteByte('\n')
		case answering:
		case strings.HasPrefix(line, "#"):
			table = assignTable{}
			out.WriteString(line + "\n")
		case line == "----":
			answering = true
			out.WriteString("----\n" + table.answer(t))
		default:
			table.add(t, line)
			out.WriteString(line + "\n")
		}
	}
	compareGolden(t, file, out.String(), "Read the change, then rewrite it with -update.")
}

// assignTable is a problem in words. What members get stays, for what comes next.
type assignTable struct {
	problem
	kind topic.Assignor
}

func (a *assignTable) topic(name string) int {
	return slices.IndexFunc(a.topics, func(s subscribed) bool { return string(s.Name) == name })
}

func (a *assignTable) add(t *testing.T, line string) {
	words := strings.Fields(line)
	switch words[0] {
	case "assignor":
		a.kind = topic.Assignor(words[1])
	case "topic": // topic NAME PARTITIONS
		n, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		if at := a.topic(words[1]); at >= 0 {
			a.topics[at].Partitions = n
		} else {
			a.topics = append(a.topics, subscribed{Name: topic.Name(words[1]), ID: topicID(int(words[1][0])), Partitions: n})
		}
	case "member": // member NAME TOPIC…
		m := subscriber{Name: topic.MemberName(words[1])}
		for _, name := range words[2:] {
			m.Topics = append(m.Topics, a.topic(name))
		}
		slices.Sort(m.Topics)
		a.members = append(slices.DeleteFunc(a.members, func(o subscriber) bool { return o.Name == m.Name }), m)
	case "gone": // gone NAME
		a.members = slices.DeleteFunc(a.members, func(o subscriber) bool { return string(o.Name) == words[1] })
	default:
		t.Fatalf("what is %q?", line)
	}
}

func (a *assignTable) answer(t *testing.T) string {
	answer := a.solve(a.kind)
	moved := moves(&a.problem, owners(t, answer))
	var out strings.Builder
	slices.SortFunc(a.members, func(x, y subscriber) int { return strings.Compare(string(x.Name), string(y.Name)) })
	for _, m := range a.members {
		fmt.Fprintf(&out, "%s:", m.Name)
		for _, s := range a.topics {
			var numbers []string
			for _, ref := range answer[m.Name] {
				if ref.ID == s.ID {
					numbers = append(numbers, strconv.Itoa(int(ref.Partition)))
				}
			}
			if numbers != nil {
				fmt.Fprintf(&out, " %s/%s", s.Name, strings.Join(numbers, ","))
			}
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "moved: %d\n", moved)
	a.current = owners(t, answer)
	return out.String()
}
