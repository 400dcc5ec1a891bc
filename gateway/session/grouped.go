package session

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// GroupSpec says what a reader reads for a member of a group.
type GroupSpec struct {
	Group      topic.GroupName
	Epoch      topic.GroupEpoch   // of the member
	Assignment []topic.Assignment // what it holds, in the order in which it is read; nothing is read of what is leaving
	Start      topic.GroupStart   // where to go on when records that should come are not there any more
	// After, when not nil, is where to go on in the partitions that are still assigned as it says, and that
	// it is further in than what is committed. The others begin at their commit.
	After  *topic.GroupCursor
	Format Format
}

// grouped is what a [Reader] has that reads for a member of a group.
type grouped struct {
	cursor topic.GroupCursor  // behind what was passed and is not known to be committed
	start  topic.GroupStart   // see GroupSpec
	reads  []topic.Assignment // what is to be read, in order
	aside  []topic.Assignment // of reads, what this node does not know, yet or any more
}

var (
	errDeleted = fault.Newf("session.Reader", fault.NotLeader, nil, "a topic was deleted, and the group has not yet heard of it")
	errAside   = fault.Newf("session.Reader", fault.NotLeader, nil, "a partition of the group is not known here yet")
)

// OpenGroup makes a reader of what a member of a group is assigned. Which partition comes first depends on
// the positions alone, so that who opens it again at the same ones reads the same records.
func (h *Hub) OpenGroup(spec GroupSpec) *Reader {
	r := &Reader{log: h.log, cache: h.cache, tails: &h.tails, metrics: h.metrics, format: spec.Format, group: &grouped{}}
	if spec.After != nil {
		for _, c := range spec.After.Commits() {
			r.group.cursor.Advance(c.Ref, c.Next, c.LastEpoch, c.Assigned)
		}
	}
	r.group.cursor.Group = topic.GroupSum(spec.Group)
	r.Retarget(spec.Epoch, spec.Assignment, spec.Start)
	if len(r.parts) > 0 {
		var sum uint64
		for _, p := range r.parts {
			sum += uint64(max(p.next, 0))
		}
		r.turn = int(sum % uint64(len(r.parts)))
	}
	return r
}

// GroupCursor is where the member of a group that this reader reads for stands: what it would acknowledge
// if it had done with everything passed. It is valid until the next call of a method.
func (r *Reader) GroupCursor() *topic.GroupCursor { return &r.group.cursor }

// Retarget has the reader of a group read what is assigned now. Partitions that stay assigned as they were
// go on where they stand; new ones begin at their commit. It returns what is new and what is gone: a
// partition that was assigned anew is both.
func (r *Reader) Retarget(epoch topic.GroupEpoch, assignment []topic.Assignment, start topic.GroupStart) (added, removed []topic.Assignment) {
	g := r.group
	g.cursor.Epoch, g.start = epoch, start
	if r.onGap = GapEarliest; start.Kind == topic.AtLatest {
		r.onGap = GapLatest
	}
	g.trim(assignment)
	reads := slices.DeleteFunc(slices.Clone(assignment), func(a topic.Assignment) bool { return a.Leaving })
	removed, added = lacking(g.reads, reads), lacking(reads, g.reads)
	if g.reads = reads; len(added)+len(removed) == 0 {
		return nil, nil
	}
	for i := range removed {
		r.stopReading(&removed[i])
	}
	g.aside = append(g.aside, added...)
	r.readAside()
	return added, removed
}

// trim takes out of the cursor what is committed, and what the member does not hold any more.
func (g *grouped) trim(assignment []topic.Assignment) {
	if len(g.cursor.Topics) == 0 {
		return
	}
	held := make(map[topic.Ref]*topic.Assignment, len(assignment))
	for i := range assignment {
		held[assignment[i].Ref] = &assignment[i]
	}
	for _, c := range g.cursor.Commits() {
		if a := held[c.Ref]; a == nil || a.Assigned != c.Assigned || a.Committed >= c.Next {
			g.cursor.Remove(c.Ref)
		}
	}
}

// lacking are those of all that are not among others, as they were assigned.
func lacking(all, others []topic.Assignment) []topic.Assignment {
	assigned := make(map[topic.Ref]topic.GroupEpoch, len(others))
	for i := range others {
		assigned[others[i].Ref] = others[i].Assigned
	}
	var found []topic.Assignment
	for i := range all {
		if e, there := assigned[all[i].Ref]; !there || e != all[i].Assigned {
			found = append(found, all[i])
		}
	}
	return found
}

// stopReading takes a partition from the reader, and what was fetched and announced of it.
func (r *Reader) stopReading(a *topic.Assignment) {
	g := r.group
	g.aside = slices.DeleteFunc(g.aside, func(other topic.Assignment) bool { return other.Ref == a.Ref })
	if i := slices.IndexFunc(r.parts, func(p *part) bool { return p.ref == a.Ref }); i >= 0 {
		r.removePart(i)
	}
}

func (r *Reader) removePart(i int) {
	p := r.parts[i]
	r.unlisten(p)
	if r.held.part == p {
		r.held = piecer{}
	}
	if r.chunk.part == p {
		r.chunk.close()
	}
	r.notices = slices.DeleteFunc(r.notices, func(n Notice) bool { return n.Gap != nil && n.Gap.part == p })
	r.parts = slices.Delete(r.parts, i, i+1)
	if !slices.ContainsFunc(r.parts, func(other *part) bool { return other.topic == p.topic }) {
		r.topics = slices.DeleteFunc(r.topics, func(f *following) bool { return f == p.topic })
	}
	if r.turn > i {
		r.turn--
	}
	if r.turn >= len(r.parts) {
		r.turn = 0
	}
}

// followGroup looks for topics that are gone and for partitions that are there now. The group has the last
// word on both: a topic that is gone does not end its reader.
func (r *Reader) followGroup() (trouble, err error) {
	for _, f := range slices.Clone(r.topics) {
		switch _, err := r.log.TopicByID(f.id); {
		case err == nil:
		case fault.Is(err, fault.NoTopic):
			r.setAside(f)
		case fault.KindOf(err).Retryable():
			trouble = err
		default:
			return nil, err
		}
	}
	if r.readAside(); len(r.group.aside) > 0 {
		trouble = errAside
	}
	return trouble, nil
}

// setAside takes the parts of a topic from the reader until they are there again or the group says otherwise.
func (r *Reader) setAside(f *following) {
	for i := len(r.parts) - 1; i >= 0; i-- {
		p := r.parts[i]
		if p.topic != f {
			continue
		}
		r.group.aside = append(r.group.aside, topic.Assignment{
			Topic: f.name, Ref: p.ref, Assigned: p.assigned, Committed: p.next, LastEpoch: p.last,
		})
		r.removePart(i)
	}
}

// readAside reads on in what was set aside, where that can be done by now.
func (r *Reader) readAside() {
	g := r.group
	if len(g.aside) == 0 {
		return
	}
	before := len(r.parts)
	g.aside = slices.DeleteFunc(g.aside, func(a topic.Assignment) bool { return r.beginReading(&a) == nil })
	if len(r.parts) == before {
		return
	}
	place := make(map[topic.Ref]int, len(g.reads))
	for i := range g.reads {
		place[g.reads[i].Ref] = i
	}
	slices.SortFunc(r.parts, func(a, b *part) int { return place[a.ref] - place[b.ref] })
}

// beginReading adds a partition where the cursor says, else where the group has committed.
func (r *Reader) beginReading(a *topic.Assignment) error {
	d, err := r.log.TopicByID(a.Ref.ID)
	if err != nil {
		return err
	}
	if int(a.Ref.Partition) >= len(d.Partitions) {
		return errAside
	}
	f := &following{name: d.Name, id: d.ID, count: len(d.Partitions), known: d}
	i := slices.IndexFunc(r.topics, func(f *following) bool { return f.id == d.ID })
	if i >= 0 {
		f = r.topics[i]
	}
	p := &part{
		topic: f, number: a.Ref.Partition, ref: a.Ref, next: a.Committed, last: a.LastEpoch,
		until: topic.NoOffset, leader: topic.NoEpoch, assigned: a.Assigned,
	}
	if at, ok := r.group.cursor.Part(a.Ref); ok && at.Assigned == a.Assigned {
		p.next, p.last = at.Next, at.LastEpoch
	}
	if p.next == topic.NoOffset {
		p.last = topic.NoEpoch
	}
	if r.bell != nil {
		if err := r.listen(p); err != nil {
			return err
		}
	}
	if i < 0 {
		r.topics = append(r.topics, f)
	}
	r.parts = append(r.parts, p)
	return nil
}

// misplaced is [Reader.outOfRange] where a group may have chosen a time to go on at. What is before the
// time is left out, and nothing of what the reader could go on with else comes twice.
func (r *Reader) misplaced(ctx context.Context, p *part, err error) error {
	var out *topic.RangeError
	if r.group == nil || r.group.start.Kind != topic.AtTime || !fault.Is(err, fault.OffsetRange) || !errors.As(err, &out) {
		return r.outOfRange(p, err)
	}
	found, err := r.log.Offsets(ctx, p.topic.name, r.group.start)
	if err != nil {
		return Gone(p.topic.name, err)
	}
	to := out.ResumeAt
	for _, at := range found {
		if at.Partition == p.number {
			to = max(to, at.Offset)
		}
	}
	r.skip(p, out, to)
	return nil
}

// acked takes out of the cursor what a commit of it covers.
func (r *Reader) acked(c *topic.GroupCommit) {
	if at, ok := r.group.cursor.Part(c.Ref); ok && at.Assigned == c.Assigned && at.Next <= c.Next {
		r.group.cursor.Remove(c.Ref)
	}
}

// unacked says that records of a partition were passed and not acknowledged.
func (r *Reader) unacked(ref topic.Ref, assigned topic.GroupEpoch) bool {
	at, ok := r.group.cursor.Part(ref)
	return ok && at.Assigned == assigned
}
