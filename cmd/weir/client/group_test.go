package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// coordinator is a group of one topic with one partition, for one member: enough to see what a member asks, and
// when. The record at offset n is "n".
type coordinator struct {
	mu        sync.Mutex
	end       int64
	committed int64
	epoch     int64
	asked     []map[string]any // the bodies of polls
	left      []string         // the queries of leaves
	keys      []string         // the Idempotency-Keys of polls

	// before, where set, answers a poll instead when it returns true.
	before func(w http.ResponseWriter, poll int) bool
}

func (c *coordinator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
		c.left = append(c.left, r.URL.RawQuery)
		c.acknowledge(r.URL.Query().Get("ack"))
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/poll"):
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			problem(w, http.StatusBadRequest, "invalid_json", false)
			return
		}
		c.asked = append(c.asked, body)
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		if c.before != nil && c.before(w, len(c.asked)) {
			return
		}
		c.poll(w, body)
	default:
		problem(w, http.StatusNotFound, "not_found", false)
	}
}

func (c *coordinator) acknowledge(cursor string) {
	if cursor != "" {
		_, _ = fmt.Sscanf(cursor, "g1.%d", &c.committed)
	}
}

func (c *coordinator) poll(w io.Writer, body map[string]any) {
	ack, _ := body["ack"].(string)
	c.acknowledge(ack)
	_, again := body["epoch"]
	if !again {
		c.epoch++
	}
	var records []string
	most, _ := body["max_records"].(float64)
	next := c.committed
	for ; next < c.end && len(records) < int(most) && len(records) < 2; next++ {
		records = append(records, fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"value":%q}`, next, base64Of(fmt.Sprint(next))))
	}
	if auto, _ := body["auto_ack"].(bool); auto {
		c.committed = next
	}
	fmt.Fprintf(w, `{"member":"w","epoch":%d,"assignment":[{"topic":"t","partitions":[0]}],"assignment_changed":%v,"records":[%s],"cursor":"g1.%d","lag":%d}`,
		c.epoch, !again, strings.Join(records, ","), next, c.end-next)
}

func base64Of(s string) string {
	b, _ := json.Marshal([]byte(s)) // bytes always are
	return strings.Trim(string(b), `"`)
}

func problem(w http.ResponseWriter, status int, code string, retryable bool) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"title":"No","detail":"the node says %s","retryable":%v}`, status, code, code, retryable)
}

// reading runs consume --group against a coordinator.
type reading struct {
	consuming
	out, said bytes.Buffer
}

func (r *reading) run(ctx context.Context, t *testing.T, c *coordinator) error {
	t.Helper()
	cl := against(t, time.Minute, c.ServeHTTP)
	r.group, r.format = "g", "value"
	if r.member == "" {
		r.member = "w"
	}
	if r.ack == "" {
		r.ack = "after"
	}
	m, err := r.join(cl, []string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	return r.share(ctx, m, &printer{w: bufio.NewWriter(&r.out)}, &r.said)
}

func TestAMemberAcknowledgesWhatItPrinted(t *testing.T) {
	c := &coordinator{end: 5}
	r := &reading{consuming: consuming{follow: true, most: 5}}
	if err := r.run(t.Context(), t, c); err != nil {
		t.Fatal(err)
	}
	if got := r.out.String(); got != "0\n1\n2\n3\n4\n" {
		t.Errorf("printed %q", got)
	}
	var acks []any
	for _, body := range c.asked {
		acks = append(acks, body["ack"])
	}
	if want := []any{nil, "g1.2", "g1.4"}; !slices.Equal(acks, want) {
		t.Errorf("acknowledged %v, want %v", acks, want)
	}
	if want := []string{"ack=g1.5&epoch=1"}; !slices.Equal(c.left, want) || c.committed != 5 {
		t.Errorf("left with %v, want %v; committed %d", c.left, want, c.committed)
	}
	if c.asked[0]["epoch"] != nil || c.asked[1]["epoch"] != 1.0 {
		t.Errorf("joined with the epoch %v and went on with %v", c.asked[0]["epoch"], c.asked[1]["epoch"])
	}
	if c.asked[0]["wait_ms"] != 0.0 || c.asked[1]["wait_ms"] != 20000.0 {
		t.Errorf("waits for %v ms to join, and then for %v", c.asked[0]["wait_ms"], c.asked[1]["wait_ms"])
	}
	if want := "weir: w of group g reads t/0\n"; r.said.String() != want {
		t.Errorf("said %q, want %q", r.said.String(), want)
	}
}

func TestAMemberThatIsCutShortAcknowledgesOnlyWhatItPrinted(t *testing.T) {
	c := &coordinator{end: 3}
	ctx, cancel := context.WithCancel(t.Context())
	c.before = func(w http.ResponseWriter, poll int) bool {
		if poll == 2 {
			cancel() // while the poll that acknowledges the first page is under way
		}
		return false
	}
	r := &reading{consuming: consuming{follow: true}}
	if err := r.run(ctx, t, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	if got := r.out.String(); got != "0\n1\n" || c.committed != 2 || len(c.left) != 1 {
		t.Errorf("printed %q, committed %d, left %v", got, c.committed, c.left)
	}
}

func TestAPageThatCannotBePrintedIsNotAcknowledged(t *testing.T) {
	c := &coordinator{end: 3}
	cl := against(t, time.Minute, c.ServeHTTP)
	r := &consuming{grouping: grouping{group: "g", member: "w", ack: "after"}, follow: true, format: "value"}
	m, err := r.join(cl, []string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	err = r.share(t.Context(), m, &printer{w: bufio.NewWriter(output{closedPipe{}})}, io.Discard)
	if !errors.Is(err, ErrOutputClosed) || c.committed != 0 || !slices.Equal(c.left, []string{"epoch=1"}) {
		t.Errorf("ended with %v, committed %d, left %v", err, c.committed, c.left)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAMemberPollsAgainWhereItMakesSense(t *testing.T) {
	c := &coordinator{end: 4}
	c.before = func(w http.ResponseWriter, poll int) bool {
		switch poll {
		case 1:
			problem(w, http.StatusServiceUnavailable, "coordinator_loading", true)
		case 3:
			problem(w, http.StatusServiceUnavailable, "stopping", true)
		case 4:
			problem(w, http.StatusConflict, "superseded_poll", false)
		default:
			return false
		}
		return true
	}
	r := &reading{consuming: consuming{follow: true, most: 4}}
	if err := r.run(t.Context(), t, c); err != nil {
		t.Fatal(err)
	}
	if got := r.out.String(); got != "0\n1\n2\n3\n" || c.committed != 4 {
		t.Errorf("printed %q, committed %d", got, c.committed)
	}
	for _, poll := range []int{2, 3, 4} {
		if got := c.asked[poll]["ack"]; got != "g1.2" {
			t.Errorf("poll %d acknowledges %v", poll+1, got)
		}
	}
	if got := strings.Count(r.said.String(), "trying again"); got != 2 {
		t.Errorf("said %q", r.said.String())
	}
}

func TestAMemberThatAsksForANameAsksForOne(t *testing.T) {
	c := &coordinator{end: 4}
	c.before = func(w http.ResponseWriter, poll int) bool {
		if poll == 1 {
			problem(w, http.StatusServiceUnavailable, "stopping", true) // perhaps after it had joined
		}
		return poll == 1
	}
	r := &reading{consuming: consuming{grouping: grouping{member: "-"}, follow: true, most: 4}}
	if err := r.run(t.Context(), t, c); err != nil {
		t.Fatal(err)
	}
	if k := c.keys; len(k) != 3 || k[0] == "" || k[0] != k[1] || k[2] != "" {
		t.Errorf("the polls had the keys %q", k)
	}
}

func TestAMemberThatIsTakenOverEndsAndDoesNotLeave(t *testing.T) {
	c := &coordinator{end: 4}
	c.before = func(w http.ResponseWriter, poll int) bool {
		if poll == 2 {
			problem(w, http.StatusConflict, "fenced_member", false)
		}
		return poll == 2
	}
	r := &reading{consuming: consuming{follow: true}}
	err := r.run(t.Context(), t, c)
	var taken *TakenOverError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "another process has joined group g as w") {
		t.Fatalf("ended with %v", err)
	}
	if len(c.left) != 0 || c.committed != 0 {
		t.Errorf("left %v, committed %d", c.left, c.committed)
	}
}

func TestAnErrorThatStaysEndsAMember(t *testing.T) {
	c := &coordinator{}
	c.before = func(w http.ResponseWriter, _ int) bool {
		problem(w, http.StatusUnprocessableEntity, "validation_failed", false)
		return true
	}
	r := &reading{consuming: consuming{follow: true}}
	var p *Problem
	if err := r.run(t.Context(), t, c); !errors.As(err, &p) || len(c.asked) != 1 || len(c.left) != 0 {
		t.Errorf("ended with %v after %d polls; left %v", err, len(c.asked), c.left)
	}
}

func TestAMemberThatDoesNotFollowEndsWhenNothingIsLeft(t *testing.T) {
	c := &coordinator{end: 3}
	r := &reading{consuming: consuming{grouping: grouping{ack: "auto"}}}
	if err := r.run(t.Context(), t, c); err != nil {
		t.Fatal(err)
	}
	if got := r.out.String(); got != "0\n1\n2\n" || c.committed != 3 || !slices.Equal(c.left, []string{"epoch=1"}) {
		t.Errorf("printed %q, committed %d, left %v", got, c.committed, c.left)
	}
	if c.asked[0]["wait_ms"] != 0.0 {
		t.Errorf("waits for %v ms", c.asked[0]["wait_ms"])
	}
}

func TestWhatAMemberReadsInWords(t *testing.T) {
	m := &member{group: "g", name: "w"}
	for _, c := range []struct {
		turn turn
		want string
	}{
		{turn{}, "w of group g reads nothing yet"},
		{turn{Assignment: []assigned{{"a", []int32{0, 1, 2, 4, 7, 8}}, {"b", []int32{3}}}}, "w of group g reads a/0-2,4,7-8 b/3"},
		{turn{WaitingFor: []waitingFor{{"a", 0, "v"}, {"a", 1, "u"}}}, "w of group g reads nothing yet; waits for a/0 from v, a/1 from u"},
		{turn{WaitingFor: []waitingFor{{"a", 0, "v"}, {"a", 1, "v"}, {"a", 2, "v"}, {"a", 3, "u"}, {"b", 0, "v"}}}, "; waits for a/0-2 b/0 from v, a/3 from u"},
		{turn{WaitingFor: []waitingFor{{"a", 0, "v"}, {"b", 1, "v"}, {strings.Repeat("c", 40), 2, "v"}}}, "; waits for 3 partitions from v"},
		{turn{WaitingFor: []waitingFor{{"a", 0, "v"}, {"a", 1, "u"}, {"a", 2, "s"}, {"a", 3, "r"}, {"a", 4, "q"}}}, "; waits for a/0 from v, a/1 from u, a/2 from s and 2 more members"},
	} {
		if got := c.turn.standing(m); !strings.HasSuffix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestFlagsOfAGroup(t *testing.T) {
	for line, want := range map[string]string{
		"t --member w":                 "--member needs a --group",
		"t --ack auto":                 "--ack needs a --group",
		"a b":                          `"b" is one argument too many: several topics need a --group`,
		"--group g":                    "TOPIC is missing",
		"t --group=":                   "--group must not be empty",
		"t --group a/b":                `--group "a/b"`,
		"t --group g --member ..":      `--member ".."`,
		"t --group g --partition 0":    "--partition does not go with --group",
		"t --group g --print-position": "--print-position does not go with --group",
		"t --group g --ack never":      `--ack "never": must be after or auto`,
		"t --group g --topic-prefix x": "one of the three",
		"--group g --topic-prefix x --topic-pattern y": "one of the three",
		"t --group g --from -3":                        `--from "-3"`,
		"t --group g --from c1.abc":                    `--from "c1.abc"`,
		"t --group g --from ts:1796151301":             "did you mean ts:1796151301000?",
		"t x/y --group g":                              `topic name "x/y"`,
	} {
		cmd := consumeCommand()
		cmd.SetArgs(append(strings.Fields(line), "--server", "127.0.0.1:1"))
		quiet(cmd)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

func quiet(cmd *cobra.Command) {
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
}

func TestWhereAGroupSeeks(t *testing.T) {
	for _, c := range []struct {
		topics  []string
		to      string
		offsets []string
		want    string
	}{
		{[]string{"a", "b"}, "earliest", nil, `{"to":"earliest","topics":["a","b"]}`},
		{[]string{"a"}, "ts:1970-01-01T00:00:01Z", nil, `{"to":"ts:1000","topics":["a"]}`},
		{nil, "", []string{"a/0=7", "b/3=0"}, `{"offsets":[{"offset":7,"partition":0,"topic":"a"},{"offset":0,"partition":3,"topic":"b"}]}`},
		{nil, "", nil, "nothing to move"},
		{[]string{"a"}, "", nil, "say where --to"},
		{[]string{"a"}, "ts:0", nil, `"to":"ts:0"`},
		{[]string{"a"}, "ts:100000000000", nil, `"to":"ts:100000000000"`},
		{[]string{"a"}, "ts:1796151301", nil, "ts:1796151301 is 1970-01-21T18:55:51Z: a number is in milliseconds since 1970; did you mean ts:1796151301000?"},
		{[]string{"a"}, "-3", nil, `--to "-3"`},
		{[]string{"a"}, "earliest", []string{"a/0=7"}, "not both"},
		{nil, "", []string{"a=7"}, "TOPIC/PARTITION=OFFSET"},
		{nil, "", []string{"a/0=-7"}, "TOPIC/PARTITION=OFFSET"},
		{nil, "", []string{"/0=7"}, "TOPIC must not be empty"},
	} {
		body, err := seekBody(c.topics, c.to, c.offsets)
		got, _ := json.Marshal(body) // strings and numbers always are
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), c.want) {
			t.Errorf("%v %q %v: got %s, want %s", c.topics, c.to, c.offsets, got, c.want)
		}
	}
}

func TestAMemberSaysWhichTopicsDoNotExist(t *testing.T) {
	for _, follow := range []bool{true, false} {
		c := &coordinator{end: 1}
		c.before = func(w http.ResponseWriter, poll int) bool {
			if poll <= 2 {
				fmt.Fprint(w, `{"member":"w","epoch":1,"assignment":[],"records":[],"cursor":"g1.0","missing_topics":["t"]}`)
			}
			return poll <= 2
		}
		r := &reading{consuming: consuming{follow: follow, most: 1}}
		err := r.run(t.Context(), t, c)
		if !follow {
			if err == nil || err.Error() != "topic t does not exist" || len(c.asked) != 1 || len(c.left) != 1 {
				t.Errorf("ended with %v after %d polls; left %v", err, len(c.asked), c.left)
			}
			continue
		}
		want := "weir: w of group g reads nothing yet\nweir: topic t does not exist; it is read once it does\nweir: w of group g reads t/0\n"
		if err != nil || r.said.String() != want {
			t.Errorf("ended with %v, said %q", err, r.said.String())
		}
	}
	var out bytes.Buffer
	g := group{Members: []groupMember{{Member: "w", Missing: []string{"a", "b"}}}}
	if err := g.table(&out); err != nil || !strings.Contains(out.String(), "\n\nw asks for topic a, which does not exist\nw asks for topic b, which does not exist\n") {
		t.Errorf("got %v, %q", err, out.String())
	}
}

// A number that was taken for another time than was meant is seen.
func TestASeekSaysWhichTimeItUnderstood(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"offsets":[{"topic":"t","partition":0,"offset":7}]}`)
	}))
	defer node.Close()
	for to, want := range map[string]string{
		"ts:1796151301000": "weir: to the first records from 2026-12-01T18:55:01Z on\n",
		"earliest":         "",
	} {
		var out, said bytes.Buffer
		cmd := groupCommand()
		cmd.SetArgs([]string{"seek", "g", "t", "--to", to, "--server", node.URL})
		cmd.SetOut(&out)
		cmd.SetErr(&said)
		if err := cmd.Execute(); err != nil || said.String() != want || !strings.HasSuffix(out.String(), "t      0          7\n") {
			t.Errorf("%s: got %v, said %q, printed %q", to, err, said.String(), out.String())
		}
	}
}

func TestAMemberIsRemoved(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete || r.URL.Path != "/v1/groups/g/members/w 1" || r.URL.RawQuery != "" {
			problem(w, http.StatusNotFound, "not_found", false)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer node.Close()
	for line, want := range map[string]string{"g|w 1": "w 1 was removed from group g\n", "g|w": "", "g": "", "g|..": ""} {
		var out bytes.Buffer
		cmd := groupCommand()
		quiet(cmd)
		cmd.SetArgs(append([]string{"remove-member", "--server", node.URL}, strings.Split(line, "|")...))
		cmd.SetOut(&out)
		if err := cmd.Execute(); (err == nil) != (want != "") || out.String() != want {
			t.Errorf("%s: got %v, printed %q", line, err, out.String())
		}
	}
}
