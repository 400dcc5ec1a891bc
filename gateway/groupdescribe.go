package gateway

import (
	"strconv"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/topic"
)

// described is a group as the contract shows it.
func (g groups) described(d *topic.GroupDescription) api.Group {
	out := api.Group{
		Group: string(d.Name), State: string(d.State), Epoch: int64(d.Epoch), Start: startText(d.Start),
		Settings: d.Overrides, EffectiveSettings: d.Settings.Values(),
		Members: make([]api.GroupMember, len(d.Members)), Partitions: make([]api.GroupPartition, len(d.Partitions)),
	}
	if out.Settings == nil {
		out.Settings = map[string]string{}
	}
	if d.EmptySince != topic.NoTimestamp && len(d.Members) == 0 {
		out.EmptySince = new64(d.EmptySince)
	}
	names := make(map[topic.ID]topic.Name)
	for i := range d.Partitions {
		p := &d.Partitions[i]
		names[p.Ref.ID] = p.Path.Topic
		out.Partitions[i] = describedPartition(p)
		out.Lag += max(0, p.Lag)
	}
	missing := make(map[topic.Name]bool) // of a group's many members most name the same topics
	for i := range d.Members {
		m := &d.Members[i]
		out.Members[i] = describedMember(m, names)
		var lacks []string
		for _, name := range m.Subscription.Topics {
			lacking, known := missing[name]
			if !known {
				lacking = session.Missing(g.s.node, name)
				missing[name] = lacking
			}
			if lacking {
				lacks = append(lacks, string(name))
			}
		}
		if lacks != nil {
			out.Members[i].MissingTopics = &lacks
		}
	}
	return out
}

func describedPartition(p *topic.GroupPartition) api.GroupPartition {
	out := api.GroupPartition{Topic: string(p.Path.Topic), Partition: int32(p.Path.Partition)}
	if p.Member != "" {
		member := string(p.Member)
		out.Member = &member
	}
	if p.Committed != topic.NoOffset {
		out.CommittedOffset, out.CommittedAt = new64(p.Committed), new64(p.CommitAt)
	}
	if p.LogStart != topic.NoOffset {
		out.LogStartOffset = new64(p.LogStart)
	}
	if p.End != topic.NoOffset {
		out.EndOffset = new64(p.End)
	}
	if p.Lag >= 0 {
		out.Lag = &p.Lag
	}
	if p.Metadata != "" {
		out.Metadata = &p.Metadata
	}
	return out
}

func describedMember(m *topic.MemberDescription, names map[topic.ID]topic.Name) api.GroupMember {
	out := api.GroupMember{
		Member: string(m.Name), Kind: "polling", Epoch: int64(m.Epoch), Principal: m.Principal, Node: int32(m.Node),
		JoinedAt: int64(m.JoinedAt), LastPoll: int64(m.LastSeen), SessionEnds: int64(m.SessionEnds), Polling: m.Polling,
		Assignment: byTopic(m.Assignment, names), Leaving: byTopic(m.Leaving, names), WaitingFor: make([]api.WaitingFor, len(m.Waiting)),
	}
	if m.Kind == topic.ConnectedMember {
		out.Kind = "connected"
	}
	switch s := &m.Subscription; {
	case s.Prefix != "":
		out.TopicPrefix = &s.Prefix
	case s.Pattern != "":
		out.TopicPattern = &s.Pattern
	default:
		topics := make([]string, len(s.Topics))
		for i, name := range s.Topics {
			topics[i] = string(name)
		}
		out.Topics = &topics
	}
	for i, w := range m.Waiting {
		out.WaitingFor[i] = api.WaitingFor{Topic: string(w.Topic), Partition: int32(w.Ref.Partition), Member: string(w.Holder)}
	}
	return out
}

// byTopic puts the partitions of a topic together. One whose topic has no name any more is left out.
func byTopic(refs []topic.Ref, names map[topic.ID]topic.Name) []api.AssignedPartitions {
	out := []api.AssignedPartitions{}
	for _, ref := range refs {
		name := string(names[ref.ID])
		if name == "" {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Topic != name {
			out = append(out, api.AssignedPartitions{Topic: name})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, int32(ref.Partition))
	}
	return out
}

func startText(at topic.At) string {
	switch at.Kind {
	case topic.AtLatest:
		return "latest"
	case topic.AtTime:
		return "ts:" + strconv.FormatInt(int64(at.Time), 10)
	default:
		return "earliest"
	}
}

// notCommitted is what did not count, as the contract shows it.
func notCommitted(not []topic.NotCommitted) []api.NotCommitted {
	out := make([]api.NotCommitted, len(not))
	for i, n := range not {
		out[i] = api.NotCommitted{Partition: int32(n.Ref.Partition), NextOffset: int64(n.Next), Reason: string(n.Reason)}
		if n.Topic != "" {
			name := string(n.Topic)
			out[i].Topic = &name
		}
	}
	return out
}
