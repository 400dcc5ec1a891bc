package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// groupClient is a member of a group over REST, in the test itself.
type groupClient struct {
	base, group, name string
	topics            []string
	epoch             int64
	cursor            string // of the last answer
	unknown           int    // polls whose outcome was unknown, and that were made again
}

func (m *groupClient) path(rest string) string {
	return "/v1/groups/" + url.PathEscape(m.group) + "/members/" + url.PathEscape(m.name) + rest
}

// body is that of a poll that waits for nothing, with the member's epoch, unless more says otherwise.
func (m *groupClient) body(more map[string]any) string {
	body := map[string]any{"topics": m.topics, "wait_ms": 0}
	if m.epoch != 0 {
		body["epoch"] = m.epoch
	}
	maps.Copy(body, more)
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // a test's own map
	}
	return string(text)
}

// poll polls once and keeps the epoch and the cursor of the answer.
func (m *groupClient) poll(t *testing.T, more map[string]any) groupAnswer {
	t.Helper()
	got, err := m.tryPoll(t.Context(), more)
	if err != nil {
		t.Fatalf("%s/%s: %v", m.group, m.name, err)
	}
	return got
}

// ack polls with the cursor of the last answer, if there was one.
func (m *groupClient) ack(t *testing.T, more map[string]any) groupAnswer {
	t.Helper()
	return m.poll(t, m.acking(more))
}

func (m *groupClient) acking(more map[string]any) map[string]any {
	with := maps.Clone(more)
	if with == nil {
		with = map[string]any{}
	}
	if m.cursor != "" {
		with["ack"] = m.cursor
	}
	return with
}

// tryPoll waits, for a while, for a coordinator that loads and for a disk that does not answer.
func (m *groupClient) tryPoll(ctx context.Context, more map[string]any) (groupAnswer, error) {
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		var got groupAnswer
		a, err := ask(ctx, http.MethodPost, m.base+m.path("/poll"), m.body(more), "Content-Type", "application/json")
		switch {
		case err != nil:
			return got, err
		case a.status == http.StatusServiceUnavailable && time.Now().Before(deadline):
			continue
		case a.status == http.StatusGatewayTimeout && time.Now().Before(deadline):
			m.unknown++ // the disk has not answered for 10 s, and repeating a poll loses nothing
			continue
		case a.status != http.StatusOK:
			return got, fmt.Errorf("poll: status %d: %s", a.status, a.body)
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			return got, fmt.Errorf("poll: %w in %s", err, a.body)
		}
		m.epoch, m.cursor = got.Epoch, got.Cursor
		return got, nil
	}
}

// partitions is how many the answer assigns.
func (a *groupAnswer) partitions() int {
	sum := 0
	for _, t := range a.Assignment {
		sum += len(t.Partitions)
	}
	return sum
}

// places is where the records of an answer stand, as partition/offset.
func (a *groupAnswer) places() []string {
	var all []string
	for _, r := range a.Records {
		all = append(all, fmt.Sprintf("%d/%d", r.Partition, r.Offset))
	}
	return all
}

// makeTopic creates a topic and stores so many numbers in each partition.
func makeTopic(t *testing.T, base, name string, partitions, records int) {
	t.Helper()
	must(t, http.MethodPost, base+"/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, partitions), nil, "Content-Type", "application/json")
	produceNumbers(t, base, name, partitions, 0, records)
}

// produceNumbers stores the numbers from first on in each partition.
func produceNumbers(t *testing.T, base, name string, partitions, first, count int) {
	t.Helper()
	for p := range partitions {
		var records []string
		for i := range count {
			records = append(records, fmt.Sprintf(`{"value":%d}`, first+i))
		}
		if len(records) > 0 {
			must(t, http.MethodPost, fmt.Sprintf("%s/v1/topics/%s/partitions/%d/records", base, name, p), `{"records":[`+strings.Join(records, ",")+`]}`, nil, "Content-Type", "application/json")
		}
	}
}

// cutPoll sends a poll over a connection of its own and closes it before the answer is read: at once, or
// when the first byte of the answer is there, so that the node has certainly done what it asks.
func cutPoll(t *testing.T, m *groupClient, more map[string]any, atOnce bool) {
	t.Helper()
	host := strings.TrimPrefix(m.base, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(request(http.MethodPost, m.path("/poll"), host, []byte(m.body(more)), "Content-Type: application/json")); err != nil {
		t.Fatal(err)
	}
	if !atOnce {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("there is no answer: %v", err)
		}
	}
}

// TestALostAnswerLosesNothing: the connection is cut before the answer of a poll is read, of one that joins,
// one that repeats, and one that acknowledges. Repeated, it gives the same records.
func TestALostAnswerLosesNothing(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	makeTopic(t, n.base, "t", 3, 7)
	m := &groupClient{base: n.base, group: "g", name: "worker", topics: []string{"t"}}
	few := map[string]any{"max_records": 4}
	for _, atOnce := range []bool{true, false, false} {
		cutPoll(t, m, few, atOnce)
	}
	seen := map[string]int{}
	for page := range 50 {
		got := m.ack(t, few)
		if page == 0 && (len(got.Records) != 4 || got.partitions() != 3) {
			t.Fatalf("after answers that were lost to a join the first page has %v of %v", got.places(), got.Assignment)
		}
		for _, p := range got.places() {
			seen[p]++
		}
		if len(got.Records) == 0 {
			break
		}
		before := m.cursor
		cutPoll(t, m, few, page%2 == 0)
		if again := m.poll(t, few); !slices.Equal(again.places(), got.places()) {
			t.Fatalf("a repeat without a new ack gives %v, the answer before had %v", again.places(), got.places())
		}
		// The acknowledgement itself is lost: it counts, and it is the next page that is repeated.
		cutPoll(t, m, map[string]any{"ack": before, "max_records": 4}, false)
		m.cursor = before
		first := m.ack(t, few)
		if second := m.poll(t, map[string]any{"ack": before, "max_records": 4}); !slices.Equal(first.places(), second.places()) {
			t.Fatalf("the same ack gives %v and then %v", first.places(), second.places())
		}
		m.cursor = before
	}
	if len(seen) != 21 {
		t.Errorf("%d of 21 records were given: %v", len(seen), seen)
	}
	for p, times := range seen {
		if times != 1 {
			t.Errorf("%s was given %d times in pages of which each was acknowledged", p, times)
		}
	}
	if d := describeGroup(t, n.base, "g"); *d.Lag != 0 {
		t.Errorf("all is acknowledged, and the group is %+v", d)
	}
}

// TestOneOddRecordDoesNotStopAGroup: of 5 MiB where a poll asks for a byte, of broken JSON, with a key that
// is no text, empty, or a tombstone; alone and between others.
func TestOneOddRecordDoesNotStopAGroup(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"odd","partitions":2,"settings":{"max.message.bytes":"12582912"}}`, nil, "Content-Type", "application/json")
	large := strings.Repeat("ü", 5<<20/2)
	odd := []string{
		`{"value":1}`,
		fmt.Sprintf(`{"value":%q,"value_encoding":"string"}`, large),
		`{"value":"{\"a\":","value_encoding":"string"}`,
		fmt.Sprintf(`{"key":%q,"key_encoding":"base64","value":2}`, base64.StdEncoding.EncodeToString([]byte{0, 0xff, 0xfe})),
		fmt.Sprintf(`{"value":%q,"value_encoding":"base64"}`, base64.StdEncoding.EncodeToString([]byte{0xff, 0, '"'})),
		`{"key":"k","value":null}`,
		`{"value":"","value_encoding":"string"}`,
		`{"value":3}`,
	}
	for p := range 2 {
		for _, r := range odd {
			must(t, http.MethodPost, fmt.Sprintf("%s/v1/topics/odd/partitions/%d/records", n.base, p), `{"records":[`+r+`]}`, nil, "Content-Type", "application/json")
		}
	}
	formats := []string{"", "string", "base64", "json"}
	if raceEnabled {
		formats = formats[:1] // the large record takes its time
	}
	for _, format := range formats {
		m := &groupClient{base: n.base, group: "odd" + format, name: "w", topics: []string{"odd"}}
		little := map[string]any{"max_bytes": 1}
		if format != "" {
			little["value_format"] = format
		}
		seen := map[string]bool{}
		for polls := 0; len(seen) < 2*len(odd); polls++ {
			if polls > 4*len(odd) {
				t.Fatalf("value_format %q: after %d polls of a byte only %v was given", format, polls, slices.Sorted(maps.Keys(seen)))
			}
			got := m.ack(t, little)
			for i, p := range got.places() {
				seen[p] = true
				if got.Records[i].Offset == 1 && len(got.Records[i].Value) < len(large) {
					t.Errorf("value_format %q: the large record has %d bytes", format, len(got.Records[i].Value))
				}
			}
		}
		if got := m.ack(t, little); len(got.Records) != 0 || got.Lag != 0 {
			t.Errorf("value_format %q: at the end there are %v and a lag of %d", format, got.places(), got.Lag)
		}
	}
}

// TestAnOldCursorUndoesNothing: neither a seek, nor what another member has committed; the parts of it that
// still hold count, and the answer says which do not.
func TestAnOldCursorUndoesNothing(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	makeTopic(t, n.base, "t", 4, 10)
	a := &groupClient{base: n.base, group: "g", name: "a", topics: []string{"t"}}
	if got := a.poll(t, nil); len(got.Records) != 40 {
		t.Fatalf("a is given %v", got.places())
	}
	all := a.cursor
	a.ack(t, nil)

	must(t, http.MethodPost, n.base+"/v1/groups/g/seek", `{"offsets":[{"topic":"t","partition":1,"offset":3},{"topic":"t","partition":2,"offset":5}]}`, nil, "Content-Type", "application/json")
	got := a.poll(t, map[string]any{"ack": all})
	wantPlaces(t, "after the seek a has", got.places(), "1/3 1/4 1/5 1/6 1/7 1/8 1/9 2/5 2/6 2/7 2/8 2/9")
	wantNotCommitted(t, got, "reassigned", 1, 2)
	if status, code := commit(t, a, fmt.Sprintf(`{"ack":%q}`, all)); status != http.StatusOK || code != "" {
		t.Errorf("a commit of which the half counts: %d %s", status, code)
	}
	wantCommitted(t, n.base, "g", "t", 10, 3, 5, 10)

	// Of four partitions that a has read on in, b gets two.
	produceNumbers(t, n.base, "t", 4, 10, 2)
	a.poll(t, nil)
	fresh := a.cursor
	b := &groupClient{base: n.base, group: "g", name: "b", topics: []string{"t"}}
	b.poll(t, nil)
	a.poll(t, nil) // is told
	a.poll(t, nil) // and lets go of two, without an ack
	var mine []int
	for deadline := time.Now().Add(20 * time.Second); len(mine) < 2; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("b has %v and waits for %v", mine, got.WaitingFor)
		}
		got = b.ack(t, map[string]any{"max_records": 1})
		mine = nil
		for _, as := range got.Assignment {
			mine = append(mine, as.Partitions...)
		}
	}
	for got = b.ack(t, nil); len(got.Records) > 0; {
		got = b.ack(t, nil)
	}
	before := describeGroup(t, n.base, "g")
	got = a.poll(t, map[string]any{"ack": fresh})
	var lost, kept []int
	for p := range 4 {
		if slices.Contains(mine, p) {
			lost = append(lost, p)
		} else {
			kept = append(kept, p)
		}
	}
	wantNotCommitted(t, got, "not_assigned", lost...)
	after := describeGroup(t, n.base, "g")
	for _, p := range lost {
		if was, is := before.committed("t", p), after.committed("t", p); was != is {
			t.Errorf("partition %d was committed by b up to %d, and is at %d", p, was, is)
		}
	}
	for _, p := range kept {
		if is := after.committed("t", p); is != 12 {
			t.Errorf("partition %d is still a's, and committed up to %d", p, is)
		}
	}

	// b leaves, and a has them again, but not since its old cursor.
	must(t, http.MethodDelete, n.base+b.path("?epoch="+strconv.FormatInt(b.epoch, 10)), "", nil)
	produceNumbers(t, n.base, "t", 4, 12, 2)
	a.poll(t, nil)
	if got = a.poll(t, nil); got.partitions() != 4 {
		t.Fatalf("b has left, and a has %v", got.Assignment)
	}
	wantNotCommitted(t, a.poll(t, map[string]any{"ack": fresh}), "reassigned", lost...)
	wantCommitted(t, n.base, "g", "t", 12, 12, 12, 12)
	for _, old := range []string{"c1.AAEBAQEBAQEBAQEBAQEBAQEBAwACbAhuAQEHtEP1", "g1.AAAA", other(t, n.base).cursor} {
		reply, err := ask(t.Context(), http.MethodPost, n.base+a.path("/poll"), a.body(map[string]any{"ack": old}), "Content-Type", "application/json")
		if err != nil || reply.status != http.StatusBadRequest || !strings.Contains(string(reply.body), `"invalid_cursor"`) {
			t.Errorf("the cursor %s: %v, %d %s", old, err, reply.status, reply.body)
		}
	}
}

// other is a member of another group that has read something.
func other(t *testing.T, base string) *groupClient {
	t.Helper()
	m := &groupClient{base: base, group: "other", name: "a", topics: []string{"t"}}
	m.poll(t, nil)
	return m
}

// commit commits and returns the status, and the code of a problem.
func commit(t *testing.T, m *groupClient, body string) (status int, code string) {
	t.Helper()
	a, err := ask(t.Context(), http.MethodPost, m.base+m.path("/commit"), body, "Content-Type", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	var problem struct{ Code string }
	if err := json.Unmarshal(a.body, &problem); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return a.status, problem.Code
}

func wantPlaces(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if slices.Sort(got); strings.Join(got, " ") != want {
		t.Errorf("%s %v, want %s", what, got, want)
	}
}

func wantNotCommitted(t *testing.T, a groupAnswer, reason string, partitions ...int) {
	t.Helper()
	var got []int
	for _, p := range a.NotCommitted {
		if got = append(got, p.Partition); p.Reason != reason {
			t.Errorf("partition %d was not committed: %s, want %s", p.Partition, p.Reason, reason)
		}
	}
	if slices.Sort(got); !slices.Equal(got, partitions) {
		t.Errorf("not committed are %v, want %v", got, partitions)
	}
}

func wantCommitted(t *testing.T, base, group, topic string, offsets ...int64) {
	t.Helper()
	d := describeGroup(t, base, group)
	for p, want := range offsets {
		if got := d.committed(topic, p); got != want {
			t.Errorf("%s/%d is committed up to %d, want %d", topic, p, got, want)
		}
	}
}

// TestAMemberJoinsWithoutWaitingForOthers: of three members one polls and two have gone silent. One that
// joins is given its part of the first at once, and the rest when the sessions of the others have ended.
func TestAMemberJoinsWithoutWaitingForOthers(t *testing.T) {
	const session = 4 * time.Second
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--set", "groups.max_poll_interval="+session.String())
	makeTopic(t, n.base, "t", 12, 0)
	var members []*groupClient
	for _, name := range []string{"lively", "silent", "mute"} {
		members = append(members, &groupClient{base: n.base, group: "g", name: name, topics: []string{"t"}})
	}
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		even := true
		for _, m := range members {
			got := m.poll(t, nil)
			even = even && got.partitions() == 4
		}
		if even {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("three members do not settle: %+v", describeGroup(t, n.base, "g"))
		}
	}
	silent := time.Now()

	// The lively one waits for records that do not come, and is back when there is news for it.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan time.Duration, 1000)
	ended := make(chan error, 1)
	go func() {
		for {
			began := time.Now()
			if _, err := members[0].tryPoll(ctx, map[string]any{"wait_ms": 20_000}); err != nil {
				ended <- err
				return
			}
			waits <- time.Since(began)
		}
	}()
	awaitPolling(t, n.base, "g", "lively")
	joins := time.Now()
	last := &groupClient{base: n.base, group: "g", name: "last", topics: []string{"t"}}
	got := last.poll(t, nil)
	if took := time.Since(joins); took > session/2 {
		t.Errorf("to join took %v", took)
	}
	if got.partitions()+len(got.WaitingFor) != 3 {
		t.Errorf("at once the new member is given %v and waits for %v", got.Assignment, got.WaitingFor)
	}
	for got.partitions() == 0 {
		got = last.poll(t, map[string]any{"wait_ms": 500})
		if time.Since(silent) > session {
			t.Fatalf("the new member waits until sessions end: %+v", got)
		}
	}
	first := time.Since(joins)
	select {
	case took := <-waits:
		if since := time.Since(joins); took > since+session/2 {
			t.Errorf("the waiting poll came back %v after it began, and the change was %v ago", took, since)
		}
	default:
		t.Error("the lively member's poll still waits, and yet its partition was given to another")
	}
	for got.partitions() < 6 {
		got = last.poll(t, map[string]any{"wait_ms": 500})
		if time.Since(silent) > session+10*time.Second {
			t.Fatalf("the sessions of two members are over, and the new one has %+v: %+v", got, describeGroup(t, n.base, "g"))
		}
	}
	t.Logf("the first partition came after %v; the whole share %v after the silent ones' last call, with sessions of %v", first, time.Since(silent), session)
	cancel()
	if err := <-ended; !strings.Contains(err.Error(), "canceled") {
		t.Errorf("the lively member: %v", err)
	}
}

// awaitPolling waits until a poll of the member waits at the node.
func awaitPolling(t *testing.T, base, group, member string) {
	t.Helper()
	var last []byte
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		var d struct {
			Members []struct {
				Member  string
				Polling bool
			}
		}
		last = must(t, http.MethodGet, base+"/v1/groups/"+group, "", &d).body
		for _, m := range d.Members {
			if m.Member == member && m.Polling {
				return
			}
		}
	}
	t.Fatalf("no poll of %s waits: %s", member, last)
}
