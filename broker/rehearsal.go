package broker

import (
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// rehearse checks an append to a topic that does not exist against what the topic would be like. A typo
// in a partition or a record that is too large must not leave a topic behind. It says whether any record
// would be stored; the results of those that would not be say why.
//
// It looks at what is certain before the topic has an ID. Where an idempotency key would send its
// records depends on the ID, and is not asked.
func (n *Node) rehearse(a *topic.Append) (worthwhile bool, err error) {
	settings := topic.DefaultSettings()
	p := production{node: n, in: a, now: topic.Millis(time.Now().UnixMilli()), settings: &settings}
	count := n.cfg.DefaultPartitions
	if err := p.place(make([]*partition, count), int32(count), &sticky{}); err != nil {
		return false, err
	}
	if a.IfLast == nil || *a.IfLast == topic.NoOffset {
		return len(p.parts) > 0, nil
	}
	for i, slot := range p.where {
		if slot >= 0 {
			path := topic.Path{Topic: a.Topic, Partition: p.parts[slot].number}
			a.Results[i].Err = lastIsNot(path, *a.IfLast, topic.NoOffset)
		}
	}
	return false, nil
}

func lastIsNot(path topic.Path, expected, last topic.Offset) error {
	return fault.Newf("broker.Produce", fault.OffsetMismatch, path, "the last offset is %d, not %d", last, expected)
}
