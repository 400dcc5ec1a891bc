package group

import "slices"

// search looks for changes of a plan that make it better. Its graph says who could give what to whom:
//
//	member → topic    by a partition of the topic that the member has; it costs 1 when it was its own before
//	topic  → class    of those who read it
//	class  → member   of the class
//	member → member   by a partition that the first has and the second had before; it costs -1
//	member → load → member with a load higher by one: they change places
//
// The last two kinds are for rings only.
type search struct {
	p     *plan
	nodes int
	work  int // steps that rings may still take

	cost   []int  // by node, of the best way to it so far
	parent []int  // by node: the node before it on that way, or nobody
	via    []int  // by node: the partition that is given by the step to it, or nobody
	done   []bool // by node, in chain
	near   []int  // nodes to go on from, in chain: at this cost,
	far    []int  // and at a cost higher by 1
}

func newSearch(p *plan) *search {
	loads := 1
	for m := range p.held {
		loads = max(loads, p.load(m)+1)
	}
	s := &search{p: p, nodes: len(p.members) + len(p.topics) + len(p.classes) + loads}
	s.cost = make([]int, s.nodes)
	s.parent = make([]int, s.nodes)
	s.via = make([]int, s.nodes)
	s.done = make([]bool, s.nodes)
	return s
}

func (s *search) topicNode(t int) int { return len(s.p.members) + t }
func (s *search) classNode(c int) int { return s.topicNode(len(s.p.topics)) + c }
func (s *search) loadNode(l int) int  { return s.classNode(len(s.p.classes)) + l }

// most is the highest load that there is a node for.
func (s *search) most() int { return s.nodes - s.loadNode(0) - 1 }

// own is what it costs that a member gives a partition away.
func (s *search) own(partition, member int) int {
	if s.p.before[partition] == member {
		return 1
	}
	return 0
}

// chain looks for the cheapest chain from a member with this load to one with at least two fewer, and
// follows it.
func (s *search) chain(load int) bool {
	const unreached = int(^uint(0) >> 1)
	p := s.p
	s.near, s.far = s.near[:0], s.far[:0]
	for n := range s.nodes {
		s.cost[n], s.parent[n], s.via[n], s.done[n] = unreached, nobody, nobody, false
	}
	for m := range p.members {
		if p.load(m) == load {
			s.cost[m] = 0
			s.near = append(s.near, m)
		}
	}
	for cost := 0; ; cost++ {
		for len(s.near) > 0 {
			n := s.near[len(s.near)-1]
			s.near = s.near[:len(s.near)-1]
			if s.done[n] {
				continue
			}
			s.done[n] = true
			switch {
			case n < len(p.members):
				if p.load(n) <= load-2 {
					s.follow(n)
					return true
				}
				for _, q := range p.held[n] {
					s.reach(s.topicNode(p.topicOf[q]), n, q, cost, s.own(q, n))
				}
			case n < s.classNode(0):
				for _, c := range p.readers[n-s.topicNode(0)] {
					s.reach(s.classNode(c), n, nobody, cost, 0)
				}
			default:
				for _, m := range p.classes[n-s.classNode(0)].members {
					s.reach(m, n, nobody, cost, 0)
				}
			}
		}
		if len(s.far) == 0 {
			return false
		}
		s.near, s.far = s.far, s.near
	}
}

// reach notes a step of a chain.
func (s *search) reach(node, from, partition, cost, step int) {
	if cost+step >= s.cost[node] {
		return
	}
	s.cost[node], s.parent[node], s.via[node] = cost+step, from, partition
	if step == 0 {
		s.near = append(s.near, node)
	} else {
		s.far = append(s.far, node)
	}
}

// follow gives the partitions of a chain on, from its end to its beginning.
func (s *search) follow(end int) {
	to := end
	for n := end; s.parent[n] != nobody; n = s.parent[n] {
		if q := s.via[n]; q != nobody {
			from := s.p.owner[q]
			s.p.move(q, to)
			to = from
		}
	}
}

// rings looks for rings whose costs are together below zero, and follows them. It is the method of
// Bellman and Ford: where ways get ever cheaper, the steps back from a node come round to it again.
func (s *search) rings() bool {
	p := s.p
	for n := range s.nodes {
		s.cost[n], s.parent[n], s.via[n] = 0, nobody, nobody
	}
	byLoad := make([][]int, s.most()+2)
	var active, next []int
	for m := range p.members {
		byLoad[p.load(m)] = append(byLoad[p.load(m)], m)
		if slices.ContainsFunc(p.held[m], func(q int) bool { return p.before[q] != m && p.before[q] != nobody }) {
			active = append(active, m) // only here a step can cost less than nothing
		}
	}
	queued := s.done
	clear(queued)
	relax := func(node, from, partition, step int) {
		s.work--
		if s.cost[from]+step >= s.cost[node] {
			return
		}
		s.cost[node], s.parent[node], s.via[node] = s.cost[from]+step, from, partition
		if !queued[node] {
			queued[node] = true
			next = append(next, node)
		}
	}
	for len(active) > 0 && s.work > 0 {
		for _, n := range active {
			queued[n] = false
			switch {
			case n < len(p.members):
				for _, q := range p.held[n] {
					relax(s.topicNode(p.topicOf[q]), n, q, s.own(q, n))
					if b := p.before[q]; b != nobody && b != n {
						relax(b, n, q, -1)
					}
				}
				relax(s.loadNode(p.load(n)), n, nobody, 0)
			case n < s.classNode(0):
				for _, c := range p.readers[n-s.topicNode(0)] {
					relax(s.classNode(c), n, nobody, 0)
				}
			case n < s.loadNode(0):
				for _, m := range p.classes[n-s.classNode(0)].members {
					relax(m, n, nobody, 0)
				}
			default:
				for _, m := range byLoad[n-s.loadNode(0)+1] {
					relax(m, n, nobody, 0)
				}
			}
		}
		active, next = next, active[:0]
		if s.turn() {
			return true
		}
	}
	return false
}

// turn follows all rings among the steps so far. No node is in two of them, and no member gives or takes
// more than one partition.
func (s *search) turn() bool {
	const (
		fresh = iota
		walked
	)
	found := false
	seen := make([]int, s.nodes) // the walk that came by, from 1 on
	var ring []int
	for start := range s.nodes {
		n := start
		for n != nobody && seen[n] == fresh {
			seen[n] = start + walked
			n = s.parent[n]
		}
		if n == nobody || seen[n] != start+walked {
			continue
		}
		ring = ring[:0]
		for at := n; ; {
			ring = append(ring, at)
			if at = s.parent[at]; at == n {
				break
			}
		}
		s.follows(ring)
		found = true
	}
	return found
}

// follows gives the partitions of a ring on; ring has its nodes in the order of the steps back.
func (s *search) follows(ring []int) {
	// Who takes a partition is the member at or after the step that gives it.
	type gift struct{ partition, to int }
	var gifts []gift
	// Begin at a member: the partition of the step to a topic is taken by the member that comes after it.
	first := slices.IndexFunc(ring, func(n int) bool { return n < len(s.p.members) })
	taker := nobody
	for i := range ring {
		n := ring[(first+i)%len(ring)]
		if n < len(s.p.members) {
			taker = n
		}
		if q := s.via[n]; q != nobody {
			gifts = append(gifts, gift{q, taker})
		}
	}
	for _, g := range gifts {
		s.p.move(g.partition, g.to)
	}
}
