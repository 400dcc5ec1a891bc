package group

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weirlog/weir/topic"
)

// subscriber is a member as the assignors see it.
type subscriber struct {
	Name topic.MemberName
	// Topics are the indexes of what it reads in the list of topics, ascending, each once. Members that
	// read the same may share a slice, which saves time.
	Topics []int
}

// subscribed is a topic that somebody reads.
type subscribed struct {
	Name       topic.Name
	ID         topic.ID
	Partitions int
}

// assign chooses who is to read what. Every partition of a topic that somebody reads gets one owner, who
// reads that topic. The answer depends on the arguments alone and not on their order; each list in it is
// in the order of compareRef, and who gets nothing is not in it.
//
// The sticky and the uniform assignor are as even as can be: nobody could give partitions to somebody
// with at least two fewer, neither directly nor by way of others. Of all such assignments the sticky one
// has one in which the fewest partitions leave who has them in current; owners in current that are gone,
// or do not read the topic any more, count as nobody. The uniform one does not look at current.
//
// The range assignor gives each topic's partitions in blocks to its readers, by name, so that partitions
// of the same number in topics of the same size and readers meet at one member.
func assign(kind topic.Assignor, members []subscriber, topics []subscribed, current map[topic.Ref]topic.MemberName) map[topic.MemberName][]topic.Ref {
	p := newPlan(members, topics)
	switch kind {
	case topic.RangeAssignor:
		p.inBlocks()
	case topic.UniformAssignor:
		p.spread()
	default: // sticky
		p.keep(current)
		p.spread()
	}
	return p.result()
}

const nobody = -1

// plan is an assignment in the making. Members, topics, classes and partitions are numbers, so that
// nothing depends on the order of a map.
type plan struct {
	members []subscriber // by name
	topics  []subscribed // by name and id
	first   []int        // by topic: the number of its partition 0
	classes []class
	classOf []int   // by member
	readers [][]int // by topic: the classes that read it

	topicOf []int // by partition, as the following
	before  []int // who had it and may have it again, or nobody
	owner   []int // who has it in this plan, or nobody
	slot    []int // where it stands in its owner's list
	held    [][]int
}

// class is all members that read the same topics.
type class struct {
	topics  []int // ascending, as the following
	members []int
}

func newPlan(members []subscriber, topics []subscribed) *plan {
	p := &plan{
		members: slices.SortedFunc(slices.Values(members), func(a, b subscriber) int { return cmp.Compare(a.Name, b.Name) }),
		topics:  make([]subscribed, 0, len(topics)),
		first:   make([]int, len(topics)),
		classOf: make([]int, len(members)),
		readers: make([][]int, len(topics)),
		held:    make([][]int, len(members)),
	}
	order := make([]int, len(topics))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { // a topic that was made again is another one
		return cmp.Or(cmp.Compare(topics[a].Name, topics[b].Name), bytes.Compare(topics[a].ID[:], topics[b].ID[:]))
	})
	place := make([]int, len(topics))
	for t, i := range order {
		place[i] = t
		p.topics = append(p.topics, topics[i])
		p.first[t] = len(p.topicOf)
		p.topicOf = append(p.topicOf, slices.Repeat([]int{t}, topics[i].Partitions)...)
	}
	p.classify(place)
	p.before = slices.Repeat([]int{nobody}, len(p.topicOf))
	p.owner = slices.Clone(p.before)
	p.slot = make([]int, len(p.topicOf))
	return p
}

// classify puts members that read the same into one class; most groups have one. place says where the
// topics of the caller's list are in the plan's.
func (p *plan) classify(place []int) {
	shared := map[*int]int{} // by a slice's first element, which members may share
	same := map[string]int{} // by the topics' indexes
	var text []byte
	for m, s := range p.members {
		if len(s.Topics) == 0 {
			p.classOf[m] = nobody
			continue
		}
		c, known := shared[&s.Topics[0]]
		if !known || len(p.classes[c].topics) != len(s.Topics) {
			text = text[:0]
			for _, i := range s.Topics {
				text = binary.LittleEndian.AppendUint32(text, uint32(i))
			}
			if c, known = same[string(text)]; !known {
				c = p.addClass(s.Topics, place)
				same[string(text)] = c
			}
			shared[&s.Topics[0]] = c
		}
		p.classOf[m] = c
		p.classes[c].members = append(p.classes[c].members, m)
	}
}

func (p *plan) addClass(topics, place []int) int {
	c := len(p.classes)
	mine := make([]int, len(topics))
	for at, i := range topics {
		mine[at] = place[i]
		p.readers[place[i]] = append(p.readers[place[i]], c)
	}
	slices.Sort(mine)
	p.classes = append(p.classes, class{topics: mine})
	return c
}

// keep lets every partition stay where it is, if that is somebody who reads it.
func (p *plan) keep(current map[topic.Ref]topic.MemberName) {
	if len(current) == 0 {
		return
	}
	number := make(map[topic.MemberName]int, len(p.members))
	for m, s := range p.members {
		number[s.Name] = m
	}
	for q, t := range p.topicOf {
		name, held := current[p.ref(q)]
		if !held {
			continue
		}
		if m, here := number[name]; here && p.reads(m, t) {
			p.before[q] = m
			p.move(q, m)
		}
	}
}

func (p *plan) reads(member, t int) bool {
	c := p.classOf[member]
	if c == nobody {
		return false
	}
	_, found := slices.BinarySearch(p.classes[c].topics, t)
	return found
}

func (p *plan) ref(partition int) topic.Ref {
	t := p.topicOf[partition]
	return topic.Ref{ID: p.topics[t].ID, Partition: topic.Partition(partition - p.first[t])}
}

// load is the number of partitions that a member has.
func (p *plan) load(member int) int { return len(p.held[member]) }

// move gives a partition to a member, whoever has it.
func (p *plan) move(partition, to int) {
	if from := p.owner[partition]; from != nobody {
		list := p.held[from]
		last := list[len(list)-1]
		list[p.slot[partition]], p.slot[last] = last, p.slot[partition]
		p.held[from] = list[:len(list)-1]
	}
	p.owner[partition] = to
	p.slot[partition] = len(p.held[to])
	p.held[to] = append(p.held[to], partition)
}

// inBlocks is the range assignor.
func (p *plan) inBlocks() {
	var readers []int
	for t, topic := range p.topics {
		readers = readers[:0]
		for _, c := range p.readers[t] {
			readers = append(readers, p.classes[c].members...)
		}
		slices.Sort(readers)
		next := p.first[t]
		for i, m := range readers {
			block := topic.Partitions / len(readers)
			if i < topic.Partitions%len(readers) {
				block++
			}
			for range block {
				p.move(next, m)
				next++
			}
		}
	}
}

func (p *plan) result() map[topic.MemberName][]topic.Ref {
	all := make(map[topic.MemberName][]topic.Ref, len(p.members))
	for m, partitions := range p.held {
		if len(partitions) == 0 {
			continue
		}
		refs := make([]topic.Ref, len(partitions))
		for i, q := range partitions {
			refs[i] = p.ref(q)
		}
		slices.SortFunc(refs, compareRef)
		all[p.members[m].Name] = refs
	}
	return all
}
