package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// TestTheVerdictOnGroupHistories: a sound history of two processes, and with each of its faults one that is
// to be found.
func TestTheVerdictOnGroupHistories(t *testing.T) {
	cursor := func(next int64, assigned topic.GroupEpoch) string {
		var c topic.GroupCursor
		c.Advance(topic.Ref{ID: topic.ID{1}}, topic.Offset(next), 0, assigned)
		return c.String()
	}
	poll := func(at int64, ack string, from, next int64, assigned topic.GroupEpoch) groupCall {
		c := groupCall{memberCall: memberCall{Op: "poll", Epoch: 1, Ack: ack}, sent: at * 1e9, answered: at*1e9 + 5e8}
		c.Outcome, c.Status = stored, 200
		for o := from; o < next; o++ {
			c.Records = append(c.Records, groupRecord{Offset: o, Value: json.RawMessage(fmt.Sprintf(`"p %d"`, o))})
			c.Cursor = cursor(next, assigned)
		}
		return c
	}
	refuse := func(c groupCall, reason string) groupCall {
		c.NotCommitted = []groupOffset{{Reason: reason}}
		return c
	}
	lose := func(c groupCall) groupCall {
		c.memberAnswer = memberAnswer{Outcome: unknown, Err: "EOF"}
		return c
	}
	committed := func(c groupCall, next int64) groupCall {
		c.Committed = []groupOffset{{Next: &next}}
		return c
	}
	// The first has 0 to 2 and 3 to 5, and commits them; the second takes over after 5.
	first := func() []groupCall {
		return []groupCall{poll(0, "", 0, 3, 1), poll(1, cursor(3, 1), 3, 6, 1), committed(poll(2, cursor(6, 1), 0, 0, 1), 6)}
	}
	second := func() []groupCall {
		return []groupCall{committed(poll(4, "", 6, 8, 2), 6), poll(5, cursor(8, 2), 0, 0, 2)}
	}
	for _, c := range []struct {
		name      string
		histories [][]groupCall
		want      string // part of what is found; empty: nothing
	}{
		{"sound", [][]groupCall{first(), second()}, ""},
		{"an ack that is lost, and its page given again", [][]groupCall{{first()[0], lose(first()[1])}, {poll(4, "", 0, 8, 2), poll(5, cursor(8, 2), 0, 0, 2)}}, ""},
		{"a partition that moved after a long silence", [][]groupCall{{first()[0], refuse(poll(9, cursor(3, 1), 0, 0, 1), "not_assigned")}, {poll(5, "", 0, 8, 2), poll(6, cursor(8, 2), 0, 0, 2)}}, ""},
		{"a record is skipped", [][]groupCall{{first()[0], poll(1, cursor(3, 1), 4, 6, 1), first()[2]}, second()}, "is lost"},
		{"a record is given and never acknowledged", [][]groupCall{first(), {second()[0]}}, "is lost"},
		{"the ack of the last owner was refused", [][]groupCall{first(), {second()[0], refuse(poll(15, cursor(8, 2), 0, 0, 2), "not_assigned")}}, "is lost"},
		{"a hole in a page", [][]groupCall{{poll(0, "", 0, 3, 1), func() groupCall {
			c := poll(1, cursor(3, 1), 3, 6, 1)
			c.Records = append(c.Records[:1], c.Records[2])
			return c
		}(), first()[2]}, second()}, "comes 5"},
		{"what is acknowledged is given again", [][]groupCall{first(), {poll(4, "", 5, 8, 2), second()[1]}}, "was acknowledged before"},
		{"what is acknowledged is given again to the same", [][]groupCall{{first()[0], first()[1], poll(2, cursor(6, 1), 0, 0, 1), poll(3, "", 5, 6, 1)}, second()}, "was acknowledged before"},
		{"two owners", [][]groupCall{{first()[0], first()[1], poll(9, cursor(6, 1), 0, 0, 1)}, {poll(4, "", 3, 8, 2), poll(12, cursor(8, 2), 0, 0, 2)}}, "after it had them"},
		{"an older commit is read", [][]groupCall{first(), {committed(second()[0], 3), second()[1]}}, "is committed up to 3"},
		{"a commit that nobody made", [][]groupCall{first(), {committed(second()[0], 7), second()[1]}}, "nobody tried more than 6"},
		{"a partition is taken from a lively member", [][]groupCall{{first()[0], first()[1], refuse(first()[2], "not_assigned")}, {poll(4, "", 3, 8, 2), second()[1]}}, "never silent"},
		{"a reason that cannot be", [][]groupCall{{first()[0], first()[1], refuse(poll(9, cursor(6, 1), 0, 0, 1), "beyond_end")}, {poll(4, "", 3, 8, 2), second()[1]}}, "was not committed: beyond_end"},
		{"a cursor that is not behind its page", [][]groupCall{{first()[0], func() groupCall {
			c := first()[1]
			c.Cursor = cursor(7, 1)
			return c
		}(), first()[2]}, second()}, "its cursor says"},
		{"a record that is another", [][]groupCall{{func() groupCall {
			c := first()[0]
			c.Records[1].Value = json.RawMessage(`"p 7"`)
			return c
		}(), first()[1], first()[2]}, second()}, "something else"},
		{"a call without an answer", [][]groupCall{first(), append(second(), func() groupCall {
			c := lose(poll(6, "", 0, 0, 2))
			c.Err = errStuck.Error()
			return c
		}())}, "is stuck"},
		{"a poll that is refused", [][]groupCall{first(), append(second(), func() groupCall {
			c := poll(6, "", 0, 0, 2)
			c.Outcome, c.Status, c.Code = refused, 409, "superseded_poll"
			return c
		}())}, "superseded_poll"},
		{"a gap", [][]groupCall{first(), append(second(), func() groupCall {
			c := poll(6, "", 0, 0, 2)
			c.Gaps = []map[string]any{{}}
			return c
		}())}, "there are gaps"},
	} {
		var found []string
		h := &groupHistory{t: t, log: map[int][]string{}, ends: map[int]int64{0: 8}, session: 3 * time.Second}
		h.fail = func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
		for o := range 8 {
			h.log[0] = append(h.log[0], fmt.Sprintf(`"p %d"`, o))
		}
		for i, calls := range c.histories {
			h.runs = append(h.runs, groupRun{journal: string(rune('a' + i)), calls: calls})
		}
		verifyGroup(h)
		switch all := strings.Join(found, "\n"); {
		case c.want == "" && all != "":
			t.Errorf("%s: found %s", c.name, all)
		case !strings.Contains(all, c.want):
			t.Errorf("%s: found %q, want %q", c.name, all, c.want)
		}
	}
}
