package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// polled is the answer of a poll, as a client sees it.
type polled struct {
	Member     string
	Epoch      int64
	Assignment []struct {
		Topic      string
		Partitions []int
	}
	Changed bool `json:"assignment_changed"`
	Records []struct {
		Topic         string
		Partition     int
		Offset        int64
		Key           string
		KeyEncoding   string `json:"key_encoding"`
		Value         json.RawMessage
		ValueEncoding string `json:"value_encoding"`
	}
	Cursor    string
	Committed []position
	Lag       int64
	Not       []struct {
		position
		Reason string
	} `json:"not_committed"`
	Waiting []struct {
		Topic     string
		Partition int
		Member    string
	} `json:"waiting_for"`
	Gaps []struct {
		Topic     string
		Partition int
		From, To  int64
		Reason    string
	}
}

type position struct {
	Topic     string
	Partition int
	Next      int64 `json:"next_offset"`
}

const worker = "/v1/groups/billing/members/w"

// poll asks for records as the member w of the group billing.
func (w *world) poll(format string, args ...any) polled {
	w.t.Helper()
	var a polled
	w.json(worker+"/poll", fmt.Sprintf(format, args...)).want(w.t, 200).into(w.t, &a)
	return a
}

// values are those of the records, each with its place.
func (a polled) values() string {
	var b strings.Builder
	for _, r := range a.Records {
		fmt.Fprintf(&b, "%s/%d:%d=%s ", r.Topic, r.Partition, r.Offset, r.Value)
	}
	return strings.TrimSpace(b.String())
}

// fill makes a topic and stores the offset as the value of each of count records of every partition.
func (w *world) fill(name topic.Name, partitions, count int) {
	w.t.Helper()
	if _, err := w.node.CreateTopic(context.Background(), topic.Creation{Name: name, Partitions: partitions}); err != nil {
		w.t.Fatal(err)
	}
	for p := range partitions {
		w.store(name, p, count)
	}
}

func (w *world) store(name topic.Name, p, count int) {
	w.t.Helper()
	records := make([]string, count)
	for i := range records {
		records[i] = fmt.Sprintf(`{"value":%d,"timestamp":%d}`, i, 1000+i)
	}
	if count > 0 {
		w.json(fmt.Sprintf("/v1/topics/%s/partitions/%d/records", name, p), `{"records":[`+strings.Join(records, ",")+`]}`).want(w.t, 200)
	}
}

func TestPollJoinsReadsAndAcknowledges(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 3)
	first := w.poll(`{"topics":["orders"]}`)
	if len(first.Records) != 6 || first.Lag != 6 || first.Member != "w" || first.Epoch < 1 || len(first.Committed) != 0 || first.Not != nil || first.Gaps != nil {
		t.Fatalf("%+v", first)
	}
	if a := first.Assignment; len(a) != 1 || a[0].Topic != "orders" || len(a[0].Partitions) != 2 {
		t.Errorf("assigned %+v", a)
	}
	// Nothing moves without an acknowledgement, however often the same is asked, and with no topics too.
	for _, body := range []string{`{"topics":["orders"],"epoch":%d}`, `{"epoch":%d}`} {
		if again := w.poll(body, first.Epoch); again.values() != first.values() || again.Cursor != first.Cursor || again.Lag != 6 || again.Changed {
			t.Errorf("got %q, at first %q", again.values(), first.values())
		}
	}
	next := w.poll(`{"epoch":%d,"ack":%q,"wait_ms":0}`, first.Epoch, first.Cursor)
	if len(next.Records) != 0 || next.Lag != 0 || len(next.Committed) != 2 || next.Committed[1] != (position{"orders", 1, 3}) {
		t.Errorf("after the acknowledgement: %+v", next)
	}
	// The cursor of an empty page is one, and so is that of a page that was acknowledged before.
	for _, cursor := range []string{next.Cursor, first.Cursor} {
		if got := w.poll(`{"ack":%q,"wait_ms":0}`, cursor); len(got.Records) != 0 || got.Not != nil {
			t.Errorf("%+v", got)
		}
	}
	w.store("orders", 1, 2)
	if got := w.poll(`{"epoch":%d,"max_records":1}`, first.Epoch); got.values() != "orders/1:3=0" || got.Lag != 2 {
		t.Errorf("%+v", got)
	}
}

func TestPollReadsOnWithoutAcknowledging(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 5)
	one := w.poll(`{"topics":["orders"],"max_records":2}`)
	two := w.poll(`{"epoch":%d,"after":%q,"max_records":2}`, one.Epoch, one.Cursor)
	if two.values() != "orders/0:2=2 orders/0:3=3" || two.Lag != 5 {
		t.Fatalf("%+v", two)
	}
	if back := w.poll(`{"epoch":%d,"max_records":1}`, one.Epoch); back.values() != "orders/0:0=0" {
		t.Errorf("the group stands at %q", back.values())
	}
	three := w.poll(`{"after":%q}`, two.Cursor)
	if three.values() != "orders/0:4=4" {
		t.Errorf("%+v", three)
	}
	// What was read and not acknowledged is in each later cursor.
	idle := w.poll(`{"after":%q,"wait_ms":0}`, three.Cursor)
	if got := w.poll(`{"ack":%q,"wait_ms":0}`, idle.Cursor); len(got.Committed) != 1 || got.Committed[0].Next != 5 {
		t.Errorf("%+v", got)
	}
	// A cursor from before what is committed does not lead back.
	if got := w.poll(`{"after":%q,"wait_ms":0}`, one.Cursor); len(got.Records) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestPollThatAcknowledgesByItself(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 2)
	got := w.poll(`{"topics":["orders"],"auto_ack":true,"max_records":3}`)
	if len(got.Records) != 3 || len(got.Committed) != 2 || got.Lag != 1 {
		t.Fatalf("%+v", got)
	}
	if rest := w.poll(`{"epoch":%d,"auto_ack":true}`, got.Epoch); len(rest.Records) != 1 || rest.Lag != 0 {
		t.Errorf("%+v", rest)
	}
	if none := w.poll(`{"epoch":%d,"auto_ack":true,"wait_ms":0}`, got.Epoch); len(none.Records) != 0 || len(none.Committed) != 0 {
		t.Errorf("%+v", none)
	}
}

// The answer is lost; the same poll returns the same records.
func TestALostAnswerLosesNothing(t *testing.T) {
	w := start(t)
	w.fill("orders", 3, 4)
	body := `{"topics":["orders"],"max_records":5}`
	want := ""
	for range 5 {
		c := w.ask("%s", post(worker+"/poll", typeJSON, body))
		until(t, func() bool { all, _ := w.groups.ends(); return all > 0 && w.server.inFlight.Load() == 0 })
		_ = c.SetLinger(0)
		_ = c.Close()
		got := w.poll(`{"topics":["orders"],"max_records":5}`)
		if want == "" {
			want = got.values()
		}
		if len(got.Records) != 5 || got.values() != want {
			t.Fatalf("got %q, want %q", got.values(), want)
		}
		body = fmt.Sprintf(`{"epoch":%d,"max_records":5}`, got.Epoch)
	}
}

// Which partition is read first depends on where the group stands, and on nothing else; and none is left
// behind.
func TestPollTakesPartitionsInTurn(t *testing.T) {
	w := start(t)
	w.fill("orders", 4, 40)
	got := w.poll(`{"topics":["orders"],"max_records":4}`)
	met := map[int]bool{}
	for range 20 {
		met[got.Records[0].Partition] = true
		if again := w.poll(`{"epoch":%d,"max_records":4}`, got.Epoch); again.values() != got.values() {
			t.Fatalf("%q, and then %q", got.values(), again.values())
		}
		got = w.poll(`{"epoch":%d,"ack":%q,"max_records":4}`, got.Epoch, got.Cursor)
	}
	if len(met) != 4 {
		t.Errorf("of four partitions %v were read", met)
	}
}

// One record that is odd in any way does not stop a group.
func TestOddRecordsDoNotStopAGroup(t *testing.T) {
	w := start(t)
	if _, err := w.node.create(topic.Creation{Name: "orders", Overrides: map[string]string{"max.message.bytes": "16777216"}}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []topic.Record{
		{Value: []byte(strings.Repeat("x", 5<<20))},
		{Value: []byte(`{"a":`)},
		{Key: []byte{0xff, 0}, Value: []byte("1")},
		{Value: []byte{0xc3}},
		{},
	} {
		results := make([]topic.Stored, 1)
		r.Timestamp = 1
		if err := w.node.Produce(t.Context(), &topic.Append{Topic: "orders", Records: []topic.Record{r}, Results: results}); err != nil || results[0].Err != nil {
			t.Fatal(err, results)
		}
	}
	got := w.poll(`{"topics":["orders"],"max_bytes":1}`)
	var seen []string
	for range 5 {
		if len(got.Records) != 1 {
			t.Fatalf("%d records", len(got.Records))
		}
		r := got.Records[0]
		seen = append(seen, fmt.Sprintf("%d %.8s %s %s", len(r.Value), r.Value, r.ValueEncoding, r.KeyEncoding))
		got = w.poll(`{"epoch":%d,"ack":%q,"max_bytes":1,"wait_ms":0}`, got.Epoch, got.Cursor)
	}
	want := `5242882 "xxxxxxx string ,9 "{\"a\": string ,1 1  base64,6 "ww==" base64 ,4 null  `
	if s := strings.Join(seen, ","); s != want || got.Lag != 0 {
		t.Errorf("got %q, want %q", s, want)
	}
}

func TestPollSaysWhatIsNotThereAnyMore(t *testing.T) {
	for _, c := range []struct {
		start string
		to    int64
		want  string
	}{
		{"earliest", 3, "orders/0:3=3 orders/0:4=4"},
		{"latest", 5, ""},
		{"ts:1004", 4, "orders/0:4=4"},
	} {
		w := start(t)
		w.fill("orders", 1, 5)
		w.json("/v1/groups/billing/seek", `{"offsets":[{"topic":"orders","partition":0,"offset":1}]}`).want(t, 200)
		w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":3}]}`).want(t, 200)
		w.groups.mu.Lock()
		w.groups.groups["billing"].epoch = 0 // the fake takes the start of the first to join
		w.groups.mu.Unlock()
		got := w.poll(`{"topics":["orders"],"start":%q,"wait_ms":60000}`, c.start)
		if len(got.Gaps) != 1 || got.Gaps[0].From != 1 || got.Gaps[0].To != c.to || got.Gaps[0].Reason != "retention" || got.Gaps[0].Topic != "orders" || got.values() != c.want {
			t.Errorf("%s: %+v", c.start, got)
		}
		// The acknowledgement moves the group over the gap.
		next := w.poll(`{"ack":%q,"wait_ms":0}`, got.Cursor)
		if next.Gaps != nil || len(next.Records) != 0 || next.Lag != 0 || len(next.Committed) != 1 || next.Committed[0].Next != 5 {
			t.Errorf("%s: then %+v", c.start, next)
		}
	}
}

// background sends a poll of the member w, and returns where its answer comes.
func (w *world) background(body string) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- w.json(worker+"/poll", body) }()
	return done
}

// soon is an answer that must not take the minute that its poll may wait.
func soon(t *testing.T, done <-chan reply) reply {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("the poll went on waiting")
		return reply{}
	}
}

func TestPollWaits(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 0)
	begun := time.Now()
	if got := w.poll(`{"topics":["orders"],"wait_ms":300}`); len(got.Records) != 0 || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("%+v after %v", got, time.Since(begun))
	}
	// A record of any partition ends the wait.
	done := w.background(`{"topics":["orders"],"wait_ms":60000}`)
	until(t, func() bool { return w.groups.waiting("billing", "w") })
	w.store("orders", 1, 1)
	var got polled
	soon(t, done).want(t, 200).into(t, &got)
	if got.values() != "orders/1:0=0" {
		t.Errorf("%+v", got)
	}
	// min_bytes asks for more than one.
	done = w.background(fmt.Sprintf(`{"epoch":%d,"wait_ms":60000,"min_bytes":200}`, got.Epoch))
	for len(done) == 0 {
		w.store("orders", 0, 1)
	}
	soon(t, done).want(t, 200).into(t, &got)
	if len(got.Records) < 3 {
		t.Errorf("%+v", got)
	}
}

// A poll that waits comes back at once when what its member has changes.
func TestPollEndsWhenTheAssignmentChanges(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 0)
	first := w.poll(`{"topics":["orders"],"wait_ms":0}`)
	wait := func(e int64) <-chan reply {
		all, _ := w.groups.ends()
		done := w.background(fmt.Sprintf(`{"epoch":%d,"wait_ms":60000}`, e))
		until(t, func() bool {
			w.groups.mu.Lock()
			defer w.groups.mu.Unlock()
			return len(w.groups.ended) == all && w.groups.groups["billing"].members["w"].changed != nil && w.server.inFlight.Load() == 1
		})
		return done
	}
	done := wait(first.Epoch)
	w.json("/v1/groups/billing/members/x/poll", `{"topics":["orders"],"wait_ms":0}`).want(t, 200)
	var got polled
	soon(t, done).want(t, 200).into(t, &got)
	if !got.Changed || got.Epoch <= first.Epoch || len(got.Assignment) != 1 || len(got.Assignment[0].Partitions) != 1 {
		t.Errorf("%+v", got)
	}
	// An epoch from before is that of a process that has not seen it yet, which learns of it at once.
	var late polled
	soon(t, w.background(fmt.Sprintf(`{"epoch":%d,"wait_ms":60000}`, first.Epoch))).want(t, 200).into(t, &late)
	if !late.Changed || late.Epoch != got.Epoch {
		t.Errorf("%+v", late)
	}
	// A seek moves it too, and there is something to read then.
	w.store("orders", got.Assignment[0].Partitions[0], 2)
	end := w.poll(`{"epoch":%d}`, got.Epoch)
	w.poll(`{"epoch":%d,"ack":%q,"wait_ms":0}`, got.Epoch, end.Cursor)
	done = wait(got.Epoch)
	w.json("/v1/groups/billing/seek", `{"topics":["orders"],"to":"earliest"}`).want(t, 200)
	var sought polled
	soon(t, done).want(t, 200).into(t, &sought)
	if len(sought.Records) != 2 || !sought.Changed {
		t.Errorf("%+v", sought)
	}
	// What was read before the seek cannot undo it.
	undone := w.poll(`{"epoch":%d,"ack":%q,"wait_ms":0}`, sought.Epoch, end.Cursor)
	if len(undone.Not) != 1 || undone.Not[0].Reason != "reassigned" || len(undone.Records) != 2 {
		t.Errorf("%+v", undone)
	}
}

func TestPollsOfOneMember(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 0)
	first := w.poll(`{"topics":["orders"],"wait_ms":0}`)
	poll := fmt.Sprintf(`{"epoch":%d,"wait_ms":60000}`, first.Epoch)
	done := w.background(poll)
	until(t, func() bool { return w.server.inFlight.Load() == 1 && w.groups.waiting("billing", "w") })
	w.poll(`{"epoch":%d,"wait_ms":0}`, first.Epoch)
	soon(t, done).want(t, 409, `"code":"superseded_poll"`)
	// A poll that had committed before it waited says so, whatever ends it.
	w.store("orders", 0, 3)
	read := w.poll(`{"epoch":%d,"wait_ms":0}`, first.Epoch)
	done = w.background(fmt.Sprintf(`{"epoch":%d,"ack":%q,"wait_ms":60000}`, first.Epoch, read.Cursor))
	until(t, func() bool { return w.server.inFlight.Load() == 1 && w.groups.waiting("billing", "w") })
	w.poll(`{"epoch":%d,"wait_ms":0}`, first.Epoch)
	soon(t, done).want(t, 409, `"code":"superseded_poll"`, "what the poll acknowledged is committed")
	// Whoever joins under the name takes it over.
	second := w.poll(`{"topics":["orders"],"wait_ms":0}`)
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	w.json(worker+"/poll", poll).want(t, 409, `"code":"fenced_member"`)
	w.json(worker+"/poll", fmt.Sprintf(`{"ack":%q}`, first.Cursor)).want(t, 409, `"code":"fenced_member"`)
	w.json(worker+"/poll", `{"epoch":999999}`).want(t, 422)
	w.json("/v1/groups/billing/members/nobody/poll", `{"epoch":1}`).want(t, 404, `"code":"member_not_found"`)
	// Polls that ended for another one are no signs of life of their own.
	if all, gone := w.groups.ends(); gone != 2 {
		t.Errorf("%d of %d polls had nobody waiting for them", gone, all)
	}
	for _, p := range w.groups.asked {
		if p.Node != 1 || p.Principal != topic.Anonymous || p.Kind != topic.PollingMember {
			t.Errorf("the node does not hear who asks: %+v", p)
		}
	}
}

func TestPollMakesNames(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 1)
	for range 2 {
		w.json("/v1/groups/billing/members/-/poll", `{"topics":["orders"]}`, "Idempotency-Key", "k1").want(t, 200, `"member":"m-k1"`)
	}
	w.json("/v1/groups/billing/members/-/poll", `{"topics":["orders"]}`, "Idempotency-Key", "").want(t, 422, "Idempotency-Key")
	w.json("/v1/groups/billing/members/-/poll", `{"epoch":1}`).want(t, 422, "asks for a new name")
	w.json("/v1/groups/billing/members/-/heartbeat", `{"epoch":1}`).want(t, 422, "asks for a name")
	// Names are what the path says, unescaped once.
	for path, name := range map[string]string{"a+b%25": `a+b%`, "%C3%A9%22": `é\"`, "a%2520": `a%20`} {
		w.json("/v1/groups/"+path+"/members/"+path+"/poll", `{"topics":["orders"]}`).want(t, 200, `"member":"`+name+`"`)
		w.send("GET", "/v1/groups/"+path, "").want(t, 200, `"group":"`+name+`"`)
	}
	for _, path := range []string{"%00", "a%0ab", "%ff", strings.Repeat("a", 250)} {
		w.json("/v1/groups/"+path+"/members/w/poll", `{"topics":["orders"]}`).want(t, 422, `"field":"group"`)
		w.json("/v1/groups/g/members/"+path+"/poll", `{"topics":["orders"]}`).want(t, 422, `"field":"member"`)
	}
	w.json("/v1/groups/a%2fb/members/w/poll", `{"topics":["orders"]}`).want(t, 400)
}

func TestPollShowsWhoHasWhat(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 1)
	twist := func(turn *topic.GroupTurn) {
		ref := turn.Assignment[1].Ref
		turn.Assignment[1].Leaving = true
		turn.Waiting = []topic.GroupWaiting{{Topic: "orders", Ref: ref, Holder: `x"`}}
		turn.NotCommitted = append(turn.NotCommitted, topic.NotCommitted{Ref: ref, Next: 4, Reason: topic.TopicGone})
	}
	before := w.poll(`{"topics":["orders"]}`)
	w.groups.twist.Store(&twist)
	got := w.poll(`{"epoch":%d,"after":%q,"wait_ms":0}`, before.Epoch, before.Cursor)
	w.groups.twist.Store(nil)
	if len(got.Assignment) != 1 || len(got.Assignment[0].Partitions) != 1 || len(got.Records) != 0 {
		t.Errorf("%+v", got)
	}
	if len(got.Waiting) != 1 || got.Waiting[0].Member != `x"` || len(got.Not) != 1 || got.Not[0].Reason != "topic_deleted" || got.Not[0].Topic != "" {
		t.Errorf("%+v", got)
	}
	// What was read of a partition that is being taken away can be acknowledged with the new cursor.
	if done := w.poll(`{"ack":%q,"wait_ms":0}`, got.Cursor); len(done.Committed) != 2 {
		t.Errorf("%+v", done)
	}
}

// A partition that cannot be read for now does not keep the others; one whose topic is gone is left out.
func TestPollLeavesOutWhatCannotBeRead(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 1)
	w.fill("users", 1, 1)
	first := w.poll(`{"topic_pattern":"orders|users"}`)
	if len(first.Records) != 2 {
		t.Fatalf("%+v", first)
	}
	w.node.trouble.Store(&troubled{name: "orders", err: fault.Newf("fake", fault.NotLeader, nil, "nobody leads orders/0")})
	if got := w.poll(`{"epoch":%d}`, first.Epoch); got.values() != "users/0:0=0" {
		t.Errorf("%+v", got)
	}
	if got := w.poll(`{"epoch":%d,"ack":%q,"wait_ms":0}`, first.Epoch, first.Cursor); len(got.Records) != 0 {
		t.Errorf("%+v", got)
	}
	w.send("DELETE", "/v1/topics/users", "").want(t, 204)
	if got := w.poll(`{"epoch":%d,"wait_ms":0}`, first.Epoch); len(got.Records) != 0 {
		t.Errorf("%+v", got)
	}
	w.fill("alone", 1, 1)
	w.node.trouble.Store(&troubled{name: "alone", err: fault.Newf("fake", fault.NotLeader, nil, "nobody leads alone/0")})
	begun := time.Now()
	w.json("/v1/groups/other/members/w/poll", `{"topics":["alone"],"wait_ms":100}`).want(t, 503, "not_leader")
	if time.Since(begun) < 100*time.Millisecond {
		t.Error("it did not wait")
	}
	// It is tried again while the poll waits.
	done := make(chan reply, 1)
	go func() {
		done <- w.json("/v1/groups/other/members/w/poll", `{"topics":["alone"],"wait_ms":60000}`)
	}()
	until(t, func() bool { return w.server.inFlight.Load() == 1 })
	w.node.trouble.Store(nil)
	soon(t, done).want(t, 200, `"value":0`)
}

// A drain returns the polls that wait, as they stand.
func TestADrainReturnsPolls(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 0)
	done := w.background(`{"topics":["orders"],"wait_ms":60000}`)
	until(t, func() bool { return w.server.inFlight.Load() == 1 && w.groups.waiting("billing", "w") })
	w.stop()
	soon(t, done).want(t, 200, `"records":[]`)
	if all, gone := w.groups.ends(); all != 1 || gone != 0 {
		t.Errorf("%d polls ended, %d of them without a caller", all, gone)
	}
}

// Requests that stand behind a poll on their connection are answered after it.
func TestPollOnAPipelinedConnection(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 2)
	c := w.ask("%s", post(worker+"/poll", typeJSON, `{"topics":["orders"],"wait_ms":0}`)+post(worker+"/poll", typeJSON, `{"topics":["orders"]}`))
	in := bufio.NewReader(c)
	for range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || strings.Count(string(body), `"offset"`) != 2 {
			t.Fatalf("%s %v", body, err)
		}
	}
}

// A member of thousands of partitions gets cursors that it can send back.
func TestPollOfManyPartitions(t *testing.T) {
	w := start(t)
	const partitions, each = 3, 1000
	for n := range partitions {
		name := topic.Name(fmt.Sprintf("t%d", n))
		w.fill(name, each, 0)
		a := topic.Append{Topic: name, Records: make([]topic.Record, each), Results: make([]topic.Stored, each)}
		for i := range a.Records {
			a.Records[i] = topic.Record{Partition: topic.Partition(i), Timestamp: 1, Value: []byte("1")}
		}
		if err := w.node.Produce(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
	}
	got := w.poll(`{"topic_prefix":"t","max_records":10000}`)
	total := len(got.Records)
	if total != mostMoved || got.Lag != partitions*each {
		t.Fatalf("%d records, lag %d", total, got.Lag)
	}
	for total < partitions*each && len(got.Records) > 0 {
		got = w.poll(`{"ack":%q,"max_records":700}`, got.Cursor)
		total += len(got.Records)
	}
	if got = w.poll(`{"ack":%q,"wait_ms":0}`, got.Cursor); total != partitions*each || got.Lag != 0 {
		t.Errorf("%d records, lag %d", total, got.Lag)
	}
	// As long as it can get: every number as large as it may be.
	c := topic.GroupCursor{Group: 1, Epoch: 1 << 40}
	for i := range mostMoved {
		c.Advance(topic.Ref{ID: topic.ID{byte(i)}, Partition: topic.Partition(1000 + 7*i)}, 1<<48+topic.Offset(i), topic.Epoch(1<<20+i), topic.GroupEpoch(1<<30+i))
	}
	if text := c.String(); len(text) > topic.MaxCursorBytes {
		t.Errorf("the cursor has %d bytes", len(text))
	}
}

// A topic that does not exist is waited for, and named: its name may be mistyped.
func TestPollNamesTopicsThatDoNotExist(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 1)
	const body = `{"topics":["users","orders","ordrs"],"epoch":%d}`
	missing := func(raw string) string {
		_, list, _ := strings.Cut(raw, `"missing_topics":[`)
		list, _, _ = strings.Cut(list, "]")
		return list
	}
	a := w.json(worker+"/poll", `{"topics":["users","orders","ordrs"]}`).want(t, 200)
	if got := missing(a.body); got != `"ordrs","users"` {
		t.Errorf("%s in %s", got, a.body)
	}
	d := w.send("GET", "/v1/groups/billing", "").want(t, 200)
	if got := missing(d.body); got != `"ordrs","users"` {
		t.Errorf("%s in %s", got, d.body)
	}
	w.fill("users", 1, 0)
	w.fill("ordrs", 1, 0)
	for _, raw := range []string{w.json(worker+"/poll", fmt.Sprintf(body, 1)).want(t, 200).body, w.send("GET", "/v1/groups/billing", "").want(t, 200).body} {
		if strings.Contains(raw, "missing_topics") {
			t.Errorf("all topics are there: %s", raw)
		}
	}
}
