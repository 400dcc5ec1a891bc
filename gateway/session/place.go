package session

import (
	"bytes"
	"context"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// place finds the topics and partitions of a spec and puts the reader where it says.
func (r *Reader) place(ctx context.Context, spec Spec, most int) error {
	if err := r.findTopics(spec); err != nil {
		return err
	}
	var err error
	if spec.From.Kind == Cursor {
		err = r.placeByCursor(spec)
	} else {
		err = r.placeNew(ctx, spec)
	}
	if err != nil {
		return err
	}
	if len(r.parts) > most {
		return fault.Newf("session.Open", fault.Validation, nil, "%d partitions are more than the %d that one reader may follow", len(r.parts), most)
	}
	if len(r.parts) == 0 {
		return fault.Newf("session.Open", fault.Validation, nil, "no partition is named")
	}
	return nil
}

// findTopics fills in r.topics, in the order of the spec, and the topics of the cursor, by id.
func (r *Reader) findTopics(spec Spec) error {
	if len(spec.Topics) == 0 {
		return fault.Newf("session.Open", fault.Validation, nil, "no topic is named")
	}
	if len(spec.Topics) > 1 && (spec.Partitions != nil || spec.From.Kind == Offsets) {
		return fault.Newf("session.Open", fault.Validation, nil, "partitions and offsets can be given for one topic only")
	}
	for _, name := range spec.Topics {
		d, err := r.log.Topic(name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.topics, func(f *following) bool { return f.id == d.ID }) {
			return fault.Newf("session.Open", fault.Validation, name, "the topic is named twice")
		}
		r.topics = append(r.topics, &following{
			name: d.Name, id: d.ID, whole: spec.Partitions == nil && spec.From.Kind != Offsets, count: len(d.Partitions), known: d,
		})
	}
	byID := slices.Clone(r.topics)
	slices.SortFunc(byID, func(a, b *following) int { return bytes.Compare(a.id[:], b.id[:]) })
	for i, f := range byID {
		f.place = i
		r.cursor.Topics = append(r.cursor.Topics, topic.CursorTopic{ID: f.id, Whole: f.whole})
	}
	return nil
}

// numbers are the partitions of a topic that the spec asks for, ascending.
func numbers(f *following, spec Spec) ([]topic.Partition, error) {
	asked := spec.Partitions
	if asked == nil && spec.From.Kind == Offsets {
		for n := range spec.From.Offsets {
			asked = append(asked, n)
		}
	}
	if asked == nil && f.whole {
		all := make([]topic.Partition, f.count)
		for i := range all {
			all[i] = topic.Partition(i)
		}
		return all, nil
	}
	asked = slices.Clone(asked)
	slices.Sort(asked)
	for i, n := range asked {
		if n < 0 || int(n) >= f.count {
			return nil, noPartition(f, n)
		}
		if i > 0 && asked[i-1] == n {
			return nil, fault.Newf("session.Open", fault.Validation, f.name, "partition %d is named twice", n)
		}
	}
	return asked, nil
}

func noPartition(f *following, n topic.Partition) error {
	return fault.Newf("session.Open", fault.NoPartition, topic.Path{Topic: f.name, Partition: n},
		"topic %q has no partition %d, it has %d from 0 on", f.name, n, f.count)
}

// placeNew is for a reader that has read nothing yet.
func (r *Reader) placeNew(ctx context.Context, spec Spec) error {
	for _, f := range r.topics {
		asked, err := numbers(f, spec)
		if err != nil {
			return err
		}
		byTime, err := r.byTime(ctx, f, spec.From)
		if err != nil {
			return err
		}
		for _, n := range asked {
			if err := r.addPart(f, n, topic.NoOffset, topic.NoEpoch); err != nil {
				return err
			}
			if err := r.placePart(r.parts[len(r.parts)-1], spec, byTime); err != nil {
				return err
			}
		}
	}
	return nil
}

// byTime looks up the offsets of a time; nil for other positions.
func (r *Reader) byTime(ctx context.Context, f *following, from From) (map[topic.Partition]topic.Offset, error) {
	if from.Kind != Time {
		return nil, nil
	}
	found, err := r.log.Offsets(ctx, f.name, topic.At{Kind: topic.AtTime, Time: from.Time})
	if err != nil {
		return nil, err
	}
	offsets := make(map[topic.Partition]topic.Offset, len(found))
	for _, at := range found {
		offsets[at.Partition] = at.Offset
	}
	return offsets, nil
}

func (r *Reader) placePart(p *part, spec Spec, byTime map[topic.Partition]topic.Offset) error {
	bounds, err := r.bounds(p)
	if err != nil {
		return err
	}
	p.leader = bounds.LeaderEpoch
	switch spec.From.Kind {
	case Earliest:
		p.next = bounds.LogStart
	case Latest:
		p.next = bounds.HighWatermark
	case Last:
		p.next = max(bounds.LogStart, bounds.HighWatermark-topic.Offset(min(spec.From.Last, int64(bounds.HighWatermark))))
	case Time:
		at, ok := byTime[p.number]
		if !ok {
			return noPartition(p.topic, p.number)
		}
		p.next = at
	case Offsets:
		at, ok := spec.From.Offsets[p.number]
		if !ok {
			return fault.Newf("session.Open", fault.Validation, p.topic.name, "partition %d is read, but no offset is given for it", p.number)
		}
		p.next = at
	}
	r.cursor.Topics[p.topic.place].Parts[p.place].Next = p.next
	return r.inRange(p, bounds)
}

// inRange checks an offset that a reader named. One that is out of range becomes a gap where the
// reader's policy is to go on.
func (r *Reader) inRange(p *part, bounds topic.Bounds) error {
	out := &topic.RangeError{
		Path: topic.Path{Topic: p.topic.name, Partition: p.number}, Offset: p.next, Bounds: bounds,
	}
	switch {
	case p.next < bounds.LogStart:
		out.Reason, out.ResumeAt = topic.Retention, bounds.LogStart
	case p.next > bounds.HighWatermark:
		out.Reason, out.ResumeAt = topic.BeyondEnd, bounds.HighWatermark
	default:
		return nil
	}
	return r.outOfRange(p, fault.New("session.Open", fault.OffsetRange, out.Path, out))
}

// placeByCursor is for a reader that goes on where another stopped.
func (r *Reader) placeByCursor(spec Spec) error {
	gone, err := r.gone(spec.From.Cursor)
	if err != nil {
		return err
	}
	for _, f := range r.topics {
		i := slices.IndexFunc(spec.From.Cursor.Topics, func(t topic.CursorTopic) bool { return t.ID == f.id })
		if i >= 0 {
			err = r.resume(f, spec, spec.From.Cursor.Topics[i])
		} else {
			err = r.restart(f, spec, gone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gone are the topics of a cursor that do not exist any more. One that exists and is not read is an error.
func (r *Reader) gone(c topic.Cursor) ([]topic.CursorTopic, error) {
	var gone []topic.CursorTopic
	for _, t := range c.Topics {
		if slices.ContainsFunc(r.topics, func(f *following) bool { return f.id == t.ID }) {
			continue
		}
		d, err := r.log.TopicByID(t.ID)
		switch {
		case err == nil:
			return nil, fault.Newf("session.Open", fault.InvalidCursor, nil, "the cursor is one of topic %q, which is not asked for", d.Name)
		case fault.Is(err, fault.NoTopic):
			gone = append(gone, t)
		default:
			return nil, err
		}
	}
	return gone, nil
}

// resume puts the parts of a topic where the cursor says.
func (r *Reader) resume(f *following, spec Spec, at topic.CursorTopic) error {
	if spec.Partitions == nil {
		f.whole = at.Whole
		r.cursor.Topics[f.place].Whole = at.Whole
	}
	asked, err := numbers(f, Spec{Partitions: spec.Partitions})
	if err != nil {
		return err
	}
	if spec.Partitions == nil && !at.Whole {
		for _, c := range at.Parts {
			asked = append(asked, c.Partition)
		}
	}
	var added []topic.Partition
	for _, n := range asked {
		if n < 0 || int(n) >= f.count {
			return fault.Newf("session.Open", fault.InvalidCursor, f.name, "the cursor names partition %d, the topic has %d", n, f.count)
		}
		i := slices.IndexFunc(at.Parts, func(c topic.CursorPart) bool { return c.Partition == n })
		switch {
		case i >= 0:
			c := at.Parts[i]
			if err := r.addPart(f, n, c.Next, c.LastEpoch); err != nil {
				return err
			}
			p := r.parts[len(r.parts)-1]
			bounds, err := r.bounds(p)
			if err != nil {
				return err
			}
			if c.LastEpoch == topic.NoEpoch {
				p.leader = bounds.LeaderEpoch
			}
			if err := r.inRange(p, bounds); err != nil {
				return err
			}
		case at.Whole:
			if err := r.addPart(f, n, topic.NoOffset, topic.NoEpoch); err != nil {
				return err
			}
			added = append(added, n)
		default:
			return fault.Newf("session.Open", fault.InvalidCursor, f.name, "the cursor has no position for partition %d", n)
		}
	}
	if len(added) > 0 {
		r.notices = append(r.notices, Notice{Partitions: &Partitions{Topic: f.name, Count: f.count, Added: added}})
	}
	return nil
}

// restart is for a topic that the cursor does not know, because it was deleted and made again since.
func (r *Reader) restart(f *following, spec Spec, gone []topic.CursorTopic) error {
	if len(gone) == 0 {
		return fault.Newf("session.Open", fault.InvalidCursor, f.name, "the cursor has no position in topic %q", f.name)
	}
	var old topic.CursorTopic // stays empty where more than one topic is gone: which it was cannot be told
	if len(gone) == 1 {
		old = gone[0]
	}
	asked, err := numbers(f, Spec{Partitions: spec.Partitions})
	if err != nil {
		return err
	}
	for _, n := range asked {
		from := topic.Offset(0)
		if i := slices.IndexFunc(old.Parts, func(c topic.CursorPart) bool { return c.Partition == n }); i >= 0 {
			from = old.Parts[i].Next
		}
		if err := r.addPart(f, n, from, topic.NoEpoch); err != nil {
			return err
		}
		p := r.parts[len(r.parts)-1]
		bounds, err := r.bounds(p)
		if err != nil {
			return err
		}
		out := &topic.RangeError{
			Path: topic.Path{Topic: f.name, Partition: n}, Offset: from, Reason: topic.Recreated, Bounds: bounds, ResumeAt: bounds.LogStart,
		}
		if err := r.outOfRange(p, fault.New("session.Open", fault.OffsetRange, out.Path, out)); err != nil {
			return err
		}
	}
	return nil
}
