package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// groupHistory is what all processes that were members of a group wrote down, and the log that they read.
type groupHistory struct {
	t       *testing.T
	fail    func(format string, args ...any) // says what is wrong; t.Errorf, but where this is tested itself
	log     map[int][]string                 // by partition: each record's producer and number, as JSON
	ends    map[int]int64
	session time.Duration
	runs    []groupRun
	acks    map[int][]ackSeen // by partition: what was told to be committed, by time
	tries   map[int][]ackSeen // by partition: what was tried, by time
}

// groupRun is the history of one process: its calls, in order.
type groupRun struct {
	journal string
	calls   []groupCall
}

type groupCall struct {
	memberCall
	memberAnswer
	sent, answered int64 // answered is 0 when the process ended before
}

// ackSeen is a commit of one partition, at the time that its answer had come, or that it was sent.
type ackSeen struct{ at, next int64 }

// read adds a process' journal. Its last line may be cut off: a kill does not wait for a write.
func (h *groupHistory) read(journal string) {
	h.t.Helper()
	text, err := os.ReadFile(journal)
	if err != nil {
		h.t.Fatal(err)
	}
	run := groupRun{journal: journal}
	for in := bufio.NewReader(bytes.NewReader(text)); ; {
		row, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var line journalLine
		if err := json.Unmarshal(row, &line); err != nil {
			h.t.Fatalf("%s: %v in %.200s", journal, err, row)
		}
		if line.Call != nil {
			run.calls = append(run.calls, groupCall{memberCall: *line.Call, sent: line.At})
			continue
		}
		last := &run.calls[len(run.calls)-1]
		last.memberAnswer, last.answered = *line.Answer, line.At
	}
	h.runs = append(h.runs, run)
}

// parts is what a cursor says of each partition.
func (h *groupHistory) parts(cursor string) map[int]topic.GroupCommit {
	h.t.Helper()
	all := map[int]topic.GroupCommit{}
	if cursor == "" {
		return all
	}
	c, err := topic.ParseGroupCursor(cursor)
	if err != nil {
		h.t.Fatalf("a node gave the cursor %q: %v", cursor, err)
	}
	for _, part := range c.Commits() {
		all[int(part.Ref.Partition)] = part
	}
	return all
}

// refuses says whether the answer lists the partition as not committed, and why.
func (c *groupCall) refuses(partition int) (reason string, is bool) {
	for _, p := range c.NotCommitted {
		if p.Partition == partition {
			return p.Reason, true
		}
	}
	return "", false
}

// of is what became of the commit of one partition of a call.
func (c *groupCall) of(partition int) outcome {
	if _, is := c.refuses(partition); is && c.Outcome == stored {
		return refused
	}
	return c.Outcome
}

// verifyGroup compares the histories with each other and with the log.
//
//   - No call is stuck, none is refused for a reason that nothing explains.
//   - A poll gives what the log has, without holes, and its cursor is behind what it gave.
//   - What was acknowledged before a poll was sent is not given by it, to nobody, and its offset is not
//     read as an older one; nor is an offset committed that nobody tried to commit.
//   - A record that was given to one process and acknowledged by it is given to no other one after that:
//     duplicates come after a commit that was refused, or of which nobody knows, or that was never sent.
//   - A partition is taken from a process only when it let go of it or was silent for its session.
//   - Each record was given to a process that acknowledged it afterwards, and all is committed at the end.
func verifyGroup(h *groupHistory) groupVerdict {
	h.t.Helper()
	h.index()
	counts, given := map[outcome]int{}, 0
	for _, run := range h.runs {
		for i := range run.calls {
			c := &run.calls[i]
			counts[c.Outcome]++
			h.checkCall(run, i)
			if c.Op == "poll" && c.Outcome == stored {
				h.checkPage(run, c)
				given += len(c.Records)
			}
		}
	}
	total := 0
	for p := range h.log {
		total += len(h.log[p])
		if h.ends[p] != int64(len(h.log[p])) {
			h.fail("partition %d has %d records and is committed up to %d", p, len(h.log[p]), h.ends[p])
		}
	}
	twice := h.checkOwners()
	h.checkAllHandled()
	return groupVerdict{counts, total, given, twice}
}

// groupVerdict counts what the histories hold.
type groupVerdict struct {
	calls                 map[outcome]int
	records, given, twice int
}

// index sorts commits by time, so that what was known at a time is found quickly. Of what was told or tried
// up to a time only the greatest counts.
func (h *groupHistory) index() {
	h.acks, h.tries = map[int][]ackSeen{}, map[int][]ackSeen{}
	for _, run := range h.runs {
		for i := range run.calls {
			c := &run.calls[i]
			for p, part := range h.parts(c.Ack) {
				next := int64(part.Next)
				switch c.of(p) {
				case stored:
					h.acks[p] = append(h.acks[p], ackSeen{c.answered, next})
					fallthrough
				case unknown:
					h.tries[p] = append(h.tries[p], ackSeen{c.sent, next})
				}
			}
		}
	}
	for _, byPartition := range []map[int][]ackSeen{h.acks, h.tries} {
		for _, all := range byPartition {
			slices.SortFunc(all, func(a, b ackSeen) int { return int(a.at - b.at) })
			for i := 1; i < len(all); i++ {
				all[i].next = max(all[i].next, all[i-1].next)
			}
		}
	}
}

// before is the greatest offset that was seen before a time, or 0.
func before(all []ackSeen, at int64) int64 {
	if i := sort.Search(len(all), func(i int) bool { return all[i].at >= at }); i > 0 {
		return all[i-1].next
	}
	return 0
}

// checkCall looks for calls that are stuck and for refusals that nothing explains.
func (h *groupHistory) checkCall(run groupRun, i int) {
	c := &run.calls[i]
	switch {
	case c.Err == errStuck.Error():
		h.fail("%s call %d, a %s, is stuck: %s", run.journal, i, c.Op, c.Err)
	case c.Outcome == unknown && c.Status == 200:
		h.fail("%s call %d: the answer to a %s: %s", run.journal, i, c.Op, c.Err)
	}
	switch c.Code {
	case "", "coordinator_loading", "not_leader", "timeout", "overloaded", "stopping", "fenced_member":
	case "stale_member_epoch", "member_not_found":
		if c.Op == "poll" {
			h.fail("%s call %d: a poll was refused: %s %s", run.journal, i, c.Code, c.Err)
		}
	default:
		h.fail("%s call %d: a %s was refused: %d %s %s", run.journal, i, c.Op, c.Status, c.Code, c.Err)
	}
	if c.Op == "poll" && len(c.Gaps) > 0 {
		h.fail("%s call %d: nothing was deleted, and there are gaps: %v", run.journal, i, c.Gaps)
	}
	for _, p := range c.NotCommitted {
		if p.Reason != string(topic.NotAssigned) && p.Reason != string(topic.Reassigned) {
			h.fail("%s call %d: partition %d was not committed: %s", run.journal, i, p.Partition, p.Reason)
		}
		if !h.mayHaveLost(run, i) {
			h.fail("%s call %d, epoch %d: partition %d was not committed (%s), but the process was never silent and every answer reached it", run.journal, i, c.memberCall.Epoch, p.Partition, p.Reason)
		}
	}
}

// mayHaveLost says whether a member may have lost what it had when it made a call: because its session may
// have ended since its last call that was answered, or a call of which nobody knows may have let go of it.
func (h *groupHistory) mayHaveLost(run groupRun, i int) bool {
	for k := i - 1; k >= 0; k-- {
		if before := &run.calls[k]; before.Outcome == unknown {
			return true
		} else if before.Outcome == stored {
			// The margin is for the clocks, which are read before a call leaves and after an answer is there.
			return run.calls[i].answered-before.sent > int64(h.session-50*time.Millisecond)
		}
	}
	return true
}

// checkPage compares what a poll gave with the log and with what had been acknowledged before it was sent.
func (h *groupHistory) checkPage(run groupRun, c *groupCall) {
	next := map[int]int64{}
	for _, r := range c.Records {
		p := r.Partition
		if want, ok := next[p]; ok && r.Offset != want {
			h.fail("%s: after %d/%d comes %d", run.journal, p, want-1, r.Offset)
		} else if acked := before(h.acks[p], c.sent); !ok && r.Offset < acked {
			h.fail("%s: a poll of epoch %d gave %d/%d again, and up to %d was acknowledged before", run.journal, c.memberCall.Epoch, p, r.Offset, acked)
		}
		next[p] = r.Offset + 1
		if log := h.log[p]; r.Offset >= int64(len(log)) || log[r.Offset] != string(r.Value) {
			h.fail("%s: a poll gave %s at %d/%d, where the log has something else", run.journal, r.Value, p, r.Offset)
		}
	}
	parts := h.parts(c.Cursor)
	for p, end := range next {
		if got, ok := parts[p]; !ok || int64(got.Next) != end {
			h.fail("%s: a poll gave partition %d up to %d, and its cursor says %+v", run.journal, p, end, got)
		}
	}
	for _, at := range c.Committed {
		if at.Next == nil {
			continue
		}
		if acked := before(h.acks[at.Partition], c.sent); *at.Next < acked {
			h.fail("%s: partition %d is committed up to %d, and up to %d was acknowledged before", run.journal, at.Partition, *at.Next, acked)
		}
		if tried := before(h.tries[at.Partition], c.answered); *at.Next > tried {
			h.fail("%s: partition %d is committed up to %d, and nobody tried more than %d", run.journal, at.Partition, *at.Next, tried)
		}
	}
}

// hold is a stretch of a partition that a process was given under one assignment and of which it then
// committed at least a part under the same: it had the partition from the one to the other.
type hold struct {
	run        int
	since      int64 // when it had the records
	from, next int64 // the records that were given and committed
}

// page is a stretch of a partition that a poll gave.
type page struct {
	run            int
	sent, answered int64
	from, next     int64
	assigned       topic.GroupEpoch
}

// pages lists what each poll gave of each partition.
func (h *groupHistory) pages() map[int][]page {
	all := map[int][]page{}
	for run := range h.runs {
		for i := range h.runs[run].calls {
			c := &h.runs[run].calls[i]
			if c.Op != "poll" || c.Outcome != stored {
				continue
			}
			parts, mine := h.parts(c.Cursor), map[int]*page{}
			for _, r := range c.Records {
				if pg := mine[r.Partition]; pg != nil {
					pg.next = r.Offset + 1
					continue
				}
				mine[r.Partition] = &page{run, c.sent, c.answered, r.Offset, r.Offset + 1, parts[r.Partition].Assigned}
			}
			for p, pg := range mine {
				all[p] = append(all[p], *pg)
			}
		}
	}
	return all
}

// assignmentKey is a partition as one process had it.
type assignmentKey struct {
	run, partition int
	assigned       topic.GroupEpoch
}

// committed is, of each partition as each process had it, up to where it committed: certainly, or perhaps.
func (h *groupHistory) committed(perhaps bool) map[assignmentKey]int64 {
	all := map[assignmentKey]int64{}
	for run := range h.runs {
		for i := range h.runs[run].calls {
			c := &h.runs[run].calls[i]
			for p, part := range h.parts(c.Ack) {
				if what := c.of(p); what == stored || perhaps && what == unknown {
					k := assignmentKey{run, p, part.Assigned}
					all[k] = max(all[k], int64(part.Next))
				}
			}
		}
	}
	return all
}

// checkOwners looks for records that a process had and committed, and that another one was given after it
// had them. It returns how many records were given again for a good reason.
func (h *groupHistory) checkOwners() (twice int) {
	committed := h.committed(false)
	for p, pages := range h.pages() {
		holds, seen := []hold{}, make([]int, len(h.log[p]))
		for _, pg := range pages {
			if next := min(pg.next, committed[assignmentKey{pg.run, p, pg.assigned}]); next > pg.from {
				holds = append(holds, hold{pg.run, pg.answered, pg.from, next})
			}
			for o := pg.from; o < min(pg.next, int64(len(seen))); o++ {
				if seen[o]++; seen[o] > 1 {
					twice++
				}
			}
		}
		// By offset; a page is short, so those that a page meets are near it.
		slices.SortFunc(holds, func(a, b hold) int { return int(a.from - b.from) })
		longest := int64(0)
		for _, hd := range holds {
			longest = max(longest, hd.next-hd.from)
		}
		for _, pg := range pages {
			first := sort.Search(len(holds), func(i int) bool { return holds[i].from > pg.from-longest })
			for _, hd := range holds[first:] {
				if hd.from >= pg.next {
					break
				}
				if hd.run != pg.run && hd.next > pg.from && pg.sent > hd.since {
					h.fail("partition %d: %s had %d to %d and committed them, and %s was given %d to %d %v after it had them", p,
						h.runs[hd.run].journal, hd.from, hd.next-1, h.runs[pg.run].journal, pg.from, pg.next-1, time.Duration(pg.answered-hd.since))
				}
			}
		}
	}
	return twice
}

// checkAllHandled looks for records that no process had that then tried to commit them.
func (h *groupHistory) checkAllHandled() {
	committed, pages := h.committed(true), h.pages()
	for p := range h.log {
		handled := make([]bool, len(h.log[p]))
		for _, pg := range pages[p] {
			for o := pg.from; o < min(pg.next, committed[assignmentKey{pg.run, p, pg.assigned}], int64(len(handled))); o++ {
				handled[o] = true
			}
		}
		if o := slices.Index(handled, false); o >= 0 {
			h.fail("partition %d: record %d, %s, is lost: nobody was given it and acknowledged it\n%s", p, o, h.log[p][o], h.trail(p, int64(o)))
		}
	}
}

// trail is what the histories say of one record and of the commits about it, by time.
func (h *groupHistory) trail(p int, o int64) string {
	type entry struct {
		at   int64
		text string
	}
	var all []entry
	for _, run := range h.runs {
		for i := range run.calls {
			c := &run.calls[i]
			part, acks := h.parts(c.Ack)[p]
			after, reads := h.parts(c.After)[p]
			var gave []int64
			for _, r := range c.Records {
				if r.Partition == p {
					gave = append(gave, r.Offset)
				}
			}
			near := func(next int64) bool { return next > o-200 && next < o+200 }
			if !(acks && near(int64(part.Next)) || reads && near(int64(after.Next)) || len(gave) > 0 && (near(gave[0]) || near(gave[len(gave)-1]))) {
				continue
			}
			text := fmt.Sprintf("%s call %d: %s epoch %d", filepath.Base(run.journal), i, c.Op, c.memberCall.Epoch)
			if acks {
				text += fmt.Sprintf(" ack %d@%d", part.Next, part.Assigned)
			}
			if reads {
				text += fmt.Sprintf(" after %d@%d", after.Next, after.Assigned)
			}
			text += fmt.Sprintf("; after %v: outcome %d %d %s %.60s", time.Duration(c.answered-c.sent), c.Outcome, c.Status, c.Code, c.Err)
			if reason, is := c.refuses(p); is {
				text += ", not committed: " + reason
			}
			if next, ok := h.parts(c.Cursor)[p]; ok {
				text += fmt.Sprintf(", epoch %d, cursor %d@%d", c.groupAnswer.Epoch, next.Next, next.Assigned)
			}
			if len(gave) > 0 {
				text += fmt.Sprintf(", gave %d to %d", gave[0], gave[len(gave)-1])
			}
			all = append(all, entry{c.sent, text})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s %s\n", time.Unix(0, e.at).Format("15:04:05.000"), e.text)
	}
	return b.String()
}
