package broker

import "github.com/weirlog/weir/topic"

// What a production keeps for the next call: nothing of a call that was unusually large.
const (
	mostKeptRecords = 4096
	mostKeptDrafts  = 64
)

// takeProduction takes one of the node's own: none outlives its node.
func (n *Node) takeProduction() *production {
	if p, ok := n.spare.Get().(*production); ok {
		p.node = n
		return p
	}
	return &production{node: n, call: call{done: make(chan struct{}, 1)}}
}

// release lets the production be used again. One whose parts an owner may still have is left to the
// garbage collector.
func (p *production) release() {
	if !p.call.ended || cap(p.where) > mostKeptRecords || len(p.parts)+len(p.spare) > mostKeptDrafts {
		return
	}
	for _, d := range p.parts {
		d.clear()
	}
	spare := append(p.spare, p.parts...)
	clear(p.parts)
	clear(p.slots)
	n := p.node
	*p = production{
		call:  call{done: p.call.done},
		parts: p.parts[:0], spare: spare, slots: p.slots, where: p.where[:0],
	}
	n.spare.Put(p)
}

// newDraft makes a draft for a partition, of a used one where there is one.
func (p *production) newDraft(number topic.Partition) *draft {
	last := len(p.spare) - 1
	if last < 0 {
		return &draft{number: number}
	}
	d := p.spare[last]
	p.spare[last], p.spare = nil, p.spare[:last]
	d.number = number
	return d
}

// clear forgets what a call left in a draft.
func (d *draft) clear() {
	clear(d.batches)
	*d = draft{part: part{batches: d.batches[:0]}}
}
