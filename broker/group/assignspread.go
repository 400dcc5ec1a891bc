package group

import (
	"cmp"
	"slices"
)

// spread makes the plan as even as can be, and of all plans that are, one that leaves most partitions
// where they were.
//
// It looks for the least sum of the squares of what members have. As with a flow of least cost, such a
// sum is the least when no chain of members, each giving one partition to the next, leads to somebody with
// at least two fewer than where it began; so it is enough to look for chains until there are none.
func (p *plan) spread() {
	p.giveFree()
	p.levelClasses()
	if len(p.classes) > 1 {
		p.evenOut()
		p.bringBack()
	}
}

// giveFree gives what nobody has to who has least, beginning with the topics that the fewest read.
func (p *plan) giveFree() {
	heaps := make([]loadHeap, len(p.classes))
	for c := range heaps {
		heaps[c] = loadHeap{plan: p, members: slices.Clone(p.classes[c].members)}
		heaps[c].build()
	}
	count := make([]int, len(p.topics))
	for t, classes := range p.readers {
		for _, c := range classes {
			count[t] += len(p.classes[c].members)
		}
	}
	order := make([]int, len(p.topics))
	for t := range order {
		order[t] = t
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(count[a], count[b]) })
	for _, t := range order {
		if count[t] == 0 {
			continue
		}
		for q := p.first[t]; q < p.first[t]+p.topics[t].Partitions; q++ {
			if p.owner[q] != nobody {
				continue
			}
			best := p.readers[t][0]
			for _, c := range p.readers[t][1:] {
				if p.lighter(heaps[c].members[0], heaps[best].members[0]) {
					best = c
				}
			}
			p.move(q, heaps[best].members[0])
			heaps[best].sink(0)
		}
	}
}

// lighter says that a member has fewer partitions than another, or as many and the lesser name.
func (p *plan) lighter(a, b int) bool {
	if la, lb := p.load(a), p.load(b); la != lb {
		return la < lb
	}
	return a < b
}

// loadHeap has the member with the fewest partitions on top.
type loadHeap struct {
	plan    *plan
	members []int
}

func (h *loadHeap) build() {
	for i := len(h.members)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// sink moves a member that has become heavier to its place.
func (h *loadHeap) sink(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h.members) && h.plan.lighter(h.members[child], h.members[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.members[i], h.members[least] = h.members[least], h.members[i]
		i = least
	}
}

// levelClasses evens out each class for itself: everybody in it can read everything in it, so no chains
// are needed. One partition more than others is left to those who have most.
func (p *plan) levelClasses() {
	for _, c := range p.classes {
		total := 0
		for _, m := range c.members {
			total += p.load(m)
		}
		share, more := total/len(c.members), total%len(c.members)
		members := slices.Clone(c.members)
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(p.load(b), p.load(a)) })
		due := func(i int) int {
			if i < more {
				return share + 1
			}
			return share
		}
		to := len(members) - 1
		for from := range members {
			for p.load(members[from]) > due(from) {
				for p.load(members[to]) >= due(to) {
					to--
				}
				p.move(p.cheapest(members[from]), members[to])
			}
		}
	}
}

// cheapest is the partition that a member parts with most easily: one that was not its own before.
func (p *plan) cheapest(member int) int {
	list := p.held[member]
	for _, q := range list {
		if p.before[q] != member {
			return q
		}
	}
	return list[len(list)-1]
}

// evenOut follows chains to loads lower by at least two until there are none. It begins with those who
// have most: what they are left with is looked at again on the way down.
func (p *plan) evenOut() {
	s := newSearch(p)
	for found := true; found; {
		found = false
		for load := p.nextLoad(s.most()); load >= 2; load = p.nextLoad(load - 1) {
			for s.chain(load) {
				found = true
			}
		}
	}
}

// nextLoad is the highest load of a member that is not above most; 0 when there is none.
func (p *plan) nextLoad(most int) int {
	next := 0
	for m := range p.held {
		if load := p.load(m); load <= most {
			next = max(next, load)
		}
	}
	return next
}

// bringBack follows rings in which partitions go back to who had them before: each gives one to the next,
// or takes the load of somebody who had one more, so that the plan stays as even as it is.
//
// It ends when no ring brings back more than it takes away: then no plan that is as even moves less. The
// work is bounded all the same. Past the bound, which thousands of different subscriptions could reach,
// the plan is as even and moves perhaps more than it must.
func (p *plan) bringBack() {
	s := newSearch(p)
	s.work = 1 << 24
	for s.rings() {
	}
}
