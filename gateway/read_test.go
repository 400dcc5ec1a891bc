package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// offsetAnswer is a page of one partition, as a client sees it.
type offsetAnswer struct {
	Topic     string
	Partition int
	Records   []json.RawMessage
	Next      int64 `json:"next_offset"`
	LogStart  int64 `json:"log_start_offset"`
	High      int64 `json:"high_watermark"`
	Gaps      []struct {
		Partition int
		From, To  int64
		Reason    string
	}
}

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

func (w *world) page(query string) offsetAnswer {
	w.t.Helper()
	var a offsetAnswer
	w.send("GET", "/v1/topics/orders/partitions/0/records?"+query, "").want(w.t, 200).into(w.t, &a)
	return a
}

// produceValues stores one record for each value, in partition 0 of orders.
func (w *world) produceValues(values ...string) {
	w.t.Helper()
	for i, v := range values {
		values[i] = fmt.Sprintf(`{"value":%s,"timestamp":%d}`, v, 1000+i)
	}
	w.json("/v1/topics/orders/partitions/0/records", `{"records":[`+strings.Join(values, ",")+`]}`).want(w.t, 200)
}

func TestReadByOffset(t *testing.T) {
	w := start(t)
	w.produceValues("0", "1", "2", "3", "4")
	for _, c := range []struct {
		query string
		want  string // values
		next  int64
	}{
		{"", "01234", 5},
		{"offset=earliest", "01234", 5},
		{"offset=3", "34", 5},
		{"offset=-2", "34", 5},
		{"offset=-99", "01234", 5},
		{"offset=latest&wait_ms=0", "", 5},
		{"offset=5&wait_ms=0", "", 5},
		{"offset=ts:1002", "234", 5},
		{"offset=ts:1970-01-01T00:00:01.002Z", "234", 5},
		{"offset=ts:1970-01-01T01:00:01.002+01:00", "234", 5}, // the + is a space by the time that it is read
		{"offset=ts:1970-01-01T01:00:01.002%2B01:00", "234", 5},
		{"offset=ts:9999&wait_ms=0", "", 5},
		{"offset=1&max_records=2", "12", 3},
		{"offset=1&max_bytes=1", "1", 2},
		{"offset=1&max_bytes=100", "12", 3},
		{"offset=4&wait_ms=60000", "4", 5}, // does not wait for more
	} {
		got := w.page(c.query)
		var values strings.Builder
		for i, raw := range got.Records {
			var r struct {
				Offset int64
				Value  json.RawMessage
			}
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if want := got.Next - int64(len(got.Records)-i); r.Offset != want {
				t.Errorf("%s: record %d has offset %d, want %d", c.query, i, r.Offset, want)
			}
			values.Write(r.Value)
		}
		if values.String() != c.want || got.Next != c.next || got.High != 5 || got.LogStart != 0 || got.Topic != "orders" {
			t.Errorf("%s: got %q and %+v, want %q and next_offset %d", c.query, values.String(), got, c.want, c.next)
		}
	}
	if raw := string(w.page("offset=4").Records[0]); raw != `{"offset":4,"timestamp":1004,"value":4}` {
		t.Errorf("the record is %s", raw)
	}
}

func TestReadsThatCannotBe(t *testing.T) {
	w := start(t)
	w.produceValues("0", "1")
	const one, all = "/v1/topics/orders/partitions/0/records", "/v1/topics/orders/records"
	for _, c := range []struct {
		path, query string
		status      int
		code        string
	}{
		{"/v1/topics/ordrs/partitions/0/records", "", 404, "topic_not_found"},
		{"/v1/topics/ordrs/records", "", 404, "topic_not_found"},
		{"/v1/topics/orders/partitions/7/records", "", 404, "partition_not_found"},
		{all, "partitions=7", 404, "partition_not_found"},
		{"/v1/topics/orders/partitions/x/records", "", 422, "validation_failed"},
		{"/v1/topics/or%20ders/partitions/0/records", "", 422, "validation_failed"},
		{one, "offset=yesterday", 422, "validation_failed"},
		{one, "offset=1.5", 422, "validation_failed"},
		{one, "offset=99999999999999999999", 422, "validation_failed"},
		{one, "offset=-0", 422, "validation_failed"},
		{one, "offset=ts:-1", 422, "validation_failed"},
		{one, "offset=c1.abc", 422, "validation_failed"},
		{one, "max_records=0", 422, "validation_failed"},
		{one, "max_records=10001", 422, "validation_failed"},
		{one, "max_bytes=0", 422, "validation_failed"},
		{one, "max_bytes=67108865", 422, "validation_failed"},
		{one, "min_bytes=-1", 422, "validation_failed"},
		{one, "wait_ms=60001", 422, "validation_failed"},
		{one, "wait_ms=soon", 422, "validation_failed"},
		{one, "value_format=xml", 422, "validation_failed"},
		{all, "from=yesterday", 422, "validation_failed"},
		{all, "on_gap=jump", 422, "validation_failed"},
		{all, "until=noon", 422, "validation_failed"},
		{all, "follow=perhaps", 422, "validation_failed"},
		{all, "follow=true", 422, "validation_failed"}, // without the Accept header
		{all, "partitions=0,,1", 422, "validation_failed"},
		{all, "partitions=-1", 422, "validation_failed"},
		{all, "cursor=c1.abc", 400, "invalid_cursor"},
		{all, "cursor=hello", 400, "invalid_cursor"},
	} {
		w.send("GET", c.path+"?"+c.query, "").want(t, c.status, `"code":"`+c.code+`"`)
	}
	w.send("GET", one+"?offset=99", "").want(t, 416, `"code":"offset_out_of_range"`, `"reason":"beyond_end"`, `"log_start_offset":0`, `"high_watermark":2`)
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":1}]}`).want(t, 200)
	w.send("GET", one+"?offset=0", "").want(t, 416, `"reason":"retention"`, `"log_start_offset":1`)
	w.send("GET", one, "", "Expect", "a-miracle").want(t, 400, `"code":"bad_request"`)
}

func TestReadWaits(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	begun := time.Now()
	if got := w.page("offset=latest&wait_ms=80"); len(got.Records) != 0 || time.Since(begun) < 80*time.Millisecond {
		t.Errorf("an empty page of %d records after %v", len(got.Records), time.Since(begun))
	}
	for _, path := range []string{
		"/v1/topics/orders/partitions/0/records?offset=latest&wait_ms=60000",
		"/v1/topics/orders/records?from=latest&wait_ms=60000",
	} {
		answered, idle := make(chan reply, 1), w.node.waiting()
		go func() { answered <- w.send("GET", path, "") }()
		until(t, func() bool { return w.node.waiting() > idle })
		w.produceValues(`"news"`)
		select {
		case r := <-answered:
			r.want(t, 200, `"news"`)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits on though there is a record", path)
		}
	}
	// min_bytes waits for more than one record.
	answered, idle := make(chan reply, 1), w.node.waiting()
	go func() {
		answered <- w.send("GET", "/v1/topics/orders/records?from=latest&wait_ms=60000&min_bytes=150", "")
	}()
	until(t, func() bool { return w.node.waiting() > idle })
	for range 3 {
		w.produceValues(`"a"`)
	}
	var page struct{ Records []json.RawMessage }
	(<-answered).want(t, 200).into(t, &page)
	if len(page.Records) < 2 {
		t.Errorf("min_bytes=150 was answered with %d short records", len(page.Records))
	}
}

// waiting is how many bells hang in the fake node.
func (n *fakeNode) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := 0
	for _, t := range n.topics {
		for _, l := range t.logs {
			waiting += len(l.bells)
		}
	}
	return waiting
}

func TestADrainEndsWaits(t *testing.T) {
	for _, path := range []string{
		"/v1/topics/orders/partitions/0/records?offset=latest&wait_ms=60000",
		"/v1/topics/orders/records?from=latest&wait_ms=60000",
	} {
		w := start(t)
		w.produceValues("0")
		answered := make(chan reply, 1)
		go func() { answered <- w.send("GET", path, "") }()
		until(t, func() bool { return w.node.waiting() == 1 })
		begun := time.Now()
		w.end()
		(<-answered).want(t, 200, `"records":[]`)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("%s: the drain took %v", path, took)
		}
	}
}

// cursorAnswer is a page of a topic.
type cursorAnswer struct {
	Topic    string
	Records  []json.RawMessage
	Cursor   string
	CaughtUp bool `json:"caught_up"`
	Gaps     []json.RawMessage
}

func TestReadByCursor(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders","partitions":3}`).want(t, 201)
	for i := range 30 {
		w.json(fmt.Sprintf("/v1/topics/orders/partitions/%d/records", i%3), fmt.Sprintf(`{"records":[{"value":%d}]}`, i)).want(t, 200)
	}
	seen := map[string]int{}
	query, pages := "from=earliest&max_records=7", 0
	for {
		var a cursorAnswer
		r := w.send("GET", "/v1/topics/orders/records?wait_ms=0&"+query, "").want(t, 200)
		r.into(t, &a)
		if r.header.Get("Weir-Cursor") != a.Cursor {
			t.Errorf("the header says %q, the body %q", r.header.Get("Weir-Cursor"), a.Cursor)
		}
		for _, raw := range a.Records {
			var m struct {
				Topic     string
				Partition int
				Offset    int64
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset)]++
		}
		pages++
		if len(a.Records) == 0 {
			if !a.CaughtUp {
				t.Error("an empty page is not at the end")
			}
			break
		}
		query = "max_records=7&cursor=" + a.Cursor
	}
	if len(seen) != 30 || pages != 6 {
		t.Errorf("%d pages had %d records, want 30 in 5 and an empty one", pages, len(seen))
	}
	for place, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times", place, n)
		}
	}
	// The same cursor in the header, and one that lost its records.
	var first cursorAnswer
	w.send("GET", "/v1/topics/orders/records?max_records=1", "").want(t, 200).into(t, &first)
	w.send("GET", "/v1/topics/orders/records?max_records=1", "", "Weir-Cursor", first.Cursor).want(t, 200)
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":5}]}`).want(t, 200)
	w.send("GET", "/v1/topics/orders/records?cursor="+first.Cursor, "").want(t, 200,
		`"gaps":[{"topic":"orders","partition":0,"from":1,"to":5,"reason":"retention"}]`)
	w.send("GET", "/v1/topics/orders/records?on_gap=error&cursor="+first.Cursor, "").want(t, 416, `"reason":"retention"`)
	// A topic that was made again is not the one that the cursor is of.
	w.send("DELETE", "/v1/topics/orders", "").want(t, 204)
	w.json("/v1/topics", `{"name":"orders","partitions":3}`).want(t, 201)
	w.send("GET", "/v1/topics/orders/records?wait_ms=0&cursor="+first.Cursor, "").want(t, 200, `"reason":"recreated"`)
}

func TestReadLines(t *testing.T) {
	w := start(t)
	w.produceValues("0", `{"a":
1}`, "2")
	lines := func(query string) []string {
		r := w.send("GET", "/v1/topics/orders/records?"+query, "", "Accept", typeNDJSON).want(t, 200)
		if got := r.header.Get("Content-Type"); got != typeNDJSON {
			t.Errorf("the content type is %s", got)
		}
		all := strings.Split(strings.TrimSuffix(r.body, "\n"), "\n")
		for _, line := range all {
			contract().checkLine(t, line)
		}
		return all
	}
	for _, query := range []string{"", "until=end", "until=end&follow=true"} {
		got := lines(query)
		if len(got) != 4 || !strings.Contains(got[1], `"value":{"a": 1}`) || !strings.HasPrefix(got[3], `{"end":true,"cursor":"c1.`) {
			t.Errorf("%s: got %q", query, got)
		}
	}
	if got := lines("max_records=1"); len(got) != 2 {
		t.Errorf("one record is %q", got)
	}
	if got := lines("from=latest&until=end"); len(got) != 1 {
		t.Errorf("nothing until the end is %q", got)
	}
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":2}]}`).want(t, 200)
	if got := lines("partitions=0&until=end&cursor=" + url.QueryEscape(w.cursorAt(0))); !strings.HasPrefix(got[0], `{"gap":{"topic":"orders","partition":0,"from":0,"to":2,`) {
		t.Errorf("a gap is %q", got)
	}
}

// cursorAt makes a cursor for the whole of orders.
func (w *world) cursorAt(next topic.Offset) string {
	w.t.Helper()
	d, err := w.node.Topic("orders")
	if err != nil {
		w.t.Fatal(err)
	}
	c := topic.Cursor{Topics: []topic.CursorTopic{{ID: d.ID, Whole: true, Parts: []topic.CursorPart{{Next: next, LastEpoch: topic.NoEpoch}}}}}
	return c.String()
}

// gappyNode has damage between two of its batches.
type gappyNode struct{ *fakeNode }

func (n gappyNode) Fetch(ctx context.Context, f topic.Fetch) (topic.Fetched, error) {
	got, err := n.fakeNode.Fetch(ctx, f)
	if f.Offset == 0 && err == nil {
		got.Gaps = []topic.Gap{{Partition: f.Partition, Start: 1, End: 3, Reason: topic.Damaged}}
		got.Batches, got.Next = got.Batches[:len(got.Batches)/5], 3
	}
	return got, err
}

func TestAPageTellsOfDamage(t *testing.T) {
	w := start(t, func(_ *Config, d *Deps) { d.Node = gappyNode{d.Node.(*fakeNode)} })
	w.produceValues("0", "1", "2", "3", "4")
	got := w.page("offset=0")
	if len(got.Records) != 1 || got.Next != 3 || len(got.Gaps) != 1 || got.Gaps[0].From != 1 || got.Gaps[0].To != 3 || got.Gaps[0].Reason != "damaged" {
		t.Errorf("got %+v", got)
	}
	if got := w.page("offset=3"); len(got.Records) != 2 || len(got.Gaps) != 0 {
		t.Errorf("got %+v", got)
	}
}

// A path is unescaped once, and a + in it is a +.
func TestNamesInPathsAreUnescapedOnce(t *testing.T) {
	w := start(t)
	w.produceValues("0")
	w.send("GET", "/v1/topics/%6frders/partitions/%30/records", "").want(t, 200)
	w.send("GET", "/v1/topics/%6frders/records", "").want(t, 200)
	w.send("GET", "/v1/topics/%6frders", "").want(t, 200)
	for path, message := range map[string]string{
		"/v1/topics/%256frders":         `has \"%\" at byte 0`,
		"/v1/topics/%256frders/records": `has \"%\" at byte 0`,
		"/v1/topics/or+ders/records":    `has \"+\" at byte 2`,
		"/v1/topics/or+ders":            `has \"+\" at byte 2`,
	} {
		w.send("GET", path, "").want(t, 422, message)
	}
	for _, path := range []string{"/v1/topics/o%7/records", "/v1/topics/o%zz", "/v1/topics/orders/partitions/%3/records"} {
		if got := w.exchange("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%s: %.200q", path, got)
		}
	}
}
