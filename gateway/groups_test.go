package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestGroupsAreListedAndDescribed(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 3)
	w.send("GET", "/v1/groups", "").want(t, 200, `{"groups":[]}`)
	for _, group := range []string{"a", "b", "c"} {
		w.json("/v1/groups/"+group+"/members/w/poll", `{"topics":["orders"]}`).want(t, 200)
	}
	first := w.send("GET", "/v1/groups?page_size=2", "").want(t, 200, `{"epoch":1,"group":"a","members":1,"state":"stable"}`, `"group":"b"`)
	var page struct {
		Next string `json:"next_page_token"`
	}
	first.into(t, &page)
	if rest := w.send("GET", "/v1/groups?page_token="+page.Next, "").want(t, 200, `"group":"c"`); strings.Contains(rest.body, `"group":"b"`) || strings.Contains(rest.body, "next_page_token") {
		t.Error(rest.body)
	}
	w.send("GET", "/v1/groups?page_token=%2e", "").want(t, 400)
	w.send("GET", "/v1/groups?page_token=Li4", "").want(t, 400) // ".."
	w.send("GET", "/v1/groups?page_size=0", "").want(t, 422)

	w.json("/v1/groups/a/members/x/poll", `{"topic_prefix":"ord","wait_ms":0}`).want(t, 200)
	w.json("/v1/groups/a/members/y/poll", `{"topic_pattern":"ord.*s","wait_ms":0}`).want(t, 200)
	w.json("/v1/groups/a/members/w/commit", `{"epoch":3,"offsets":[{"topic":"orders","partition":0,"next_offset":2,"metadata":"m\"1"}]}`).want(t, 200)
	var d struct {
		Settings  map[string]string `json:"effective_settings"`
		Lag       int64
		Members   []map[string]json.RawMessage
		Partition []map[string]any `json:"partitions"`
	}
	w.send("GET", "/v1/groups/a", "").want(t, 200, `"kind":"polling"`, `"kind":"connected"`, `"topic_prefix":"ord"`, `"topic_pattern":"ord.*s"`, `"topics":["orders"]`,
		`"metadata":"m\"1"`, `"committed_offset":2`, `"start":"earliest"`, `"assignment":[{"partitions":[0],"topic":"orders"}]`).into(t, &d)
	if d.Lag != 4 || len(d.Members) != 3 || len(d.Partition) != 2 || d.Settings["assignor"] != "sticky" || d.Settings["session.timeout.ms"] != "45000" {
		t.Errorf("%+v", d)
	}
	w.send("GET", "/v1/groups/nobody", "").want(t, 404, `"code":"group_not_found"`)

	patch := func(body string) reply {
		return w.send("PATCH", "/v1/groups/a", body, "Content-Type", "application/json")
	}
	patch(`{"settings":{"max.poll.interval.ms":900000,"assignor":"range"}}`).want(t, 200, `"settings":{"assignor":"range","max.poll.interval.ms":"900000"}`)
	patch(`{"settings":{"assignor":null}}`).want(t, 200, `"settings":{"max.poll.interval.ms":"900000"}`, `"assignor":"sticky"`)
	patch(`{}`).want(t, 200)
	patch(`{"settings":{"assignor":"best","rejoin.grace.ms":"-1"}}`).want(t, 422, `"field":"settings.assignor"`, `"field":"settings.rejoin.grace.ms"`)
	patch(`{"settings":{"assignor":[]}}`).want(t, 422)
	patch(`{"settings":`).want(t, 400, "invalid_json")
	w.send("PATCH", "/v1/groups/a", "x").want(t, 415)
	w.send("PATCH", "/v1/groups/nobody", `{}`, "Content-Type", "application/json").want(t, 404)

	w.send("DELETE", "/v1/groups/a", "").want(t, 409, `"code":"group_not_empty"`, `a member leaves with DELETE /v1/groups/{group}/members/{member}`)
	w.send("PATCH", "/v1/groups/a", `{"settings":{"session.timeout":"1"}}`, "Content-Type", "application/json").
		want(t, 422, `"field":"settings.session.timeout"`, `is not the name of a setting; a group has assignor, max.poll.interval.ms, rejoin.grace.ms, session.timeout.ms`)
	for _, m := range []string{"w", "x", "y"} {
		w.send("DELETE", "/v1/groups/a/members/"+m, "").want(t, 204)
	}
	w.send("GET", "/v1/groups/a", "").want(t, 200, `"state":"empty"`, `"empty_since":1762077600000`, `"members":[]`)
	w.send("DELETE", "/v1/groups/a", "").want(t, 204)
	w.send("DELETE", "/v1/groups/a", "").want(t, 404, `"code":"group_not_found"`)
}

func TestCommit(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 5)
	w.fill("users", 1, 5)
	first := w.poll(`{"topics":["orders","users"],"max_records":7}`)
	commit := func(format string, args ...any) reply { return w.json(worker+"/commit", fmt.Sprintf(format, args...)) }
	commit(`{"epoch":%d,"offsets":[{"topic":"orders","partition":1,"next_offset":2},{"topic":"users","partition":0,"next_offset":1}]}`, first.Epoch).
		want(t, 200, `"committed":[{"topic":"orders","partition":1,"next_offset":2},{"topic":"users","partition":0,"next_offset":1}]`, `"not_committed":[]`)
	commit(`{"ack":%q}`, first.Cursor).want(t, 200, `"next_offset":5`)
	// Half of it counts.
	commit(`{"epoch":%d,"offsets":[{"topic":"orders","partition":1,"next_offset":5},{"topic":"gone","partition":0,"next_offset":1},{"topic":"orders","partition":7,"next_offset":1}]}`, first.Epoch).
		want(t, 200, `"committed":[{"topic":"orders","partition":1,"next_offset":5}]`, `{"topic":"gone","partition":0,"next_offset":1,"reason":"topic_deleted"}`, `"partition":7,"next_offset":1,"reason":"not_assigned"`)
	// Nothing counts.
	commit(`{"epoch":%d,"offsets":[{"topic":"orders","partition":7,"next_offset":1}]}`, first.Epoch).
		want(t, 409, `"code":"stale_member_epoch"`, `"assignment":[{"topic":"orders","partitions":[0,1]},{"topic":"users","partitions":[0]}]`, `"reason":"not_assigned"`, `"request_id":`)
	// What is committed already is no mistake, unless something else is one.
	commit(`{"epoch":%d,"offsets":[{"topic":"orders","partition":1,"next_offset":3}]}`, first.Epoch).
		want(t, 200, `"committed":[]`, `"not_committed":[{"topic":"orders","partition":1,"next_offset":3,"reason":"behind_committed"}]`)
	commit(`{"epoch":%d,"offsets":[{"topic":"orders","partition":1,"next_offset":3},{"topic":"orders","partition":7,"next_offset":1}]}`, first.Epoch).
		want(t, 409, `"reason":"behind_committed"`, `"reason":"not_assigned"`)
	// An empty cursor is no mistake.
	empty := topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: topic.GroupEpoch(first.Epoch)}.String()
	commit(`{"ack":%q}`, empty).want(t, 200, `"committed":[]`)
	for body, part := range map[string]string{
		`{}`:                         `"field":"offsets"`,
		`{"offsets":[]}`:             `"field":"epoch"`,
		`{"epoch":1,"offsets":[]}`:   `must have 1 to 10000 entries`,
		`{"epoch":0,"ack":"g1.x"}`:   `"field":"epoch"`,
		`{"ack":"x","offsets":[]}`:   `cannot be given together`,
		`{"epoch":1,"offsets":[{}]}`: `"field":"offsets[0].next_offset"`,
		`{"epoch":1,"offsets":[{"topic":"a b","partition":-1,"next_offset":-1}]}`:                                                   `"field":"offsets[0].partition"`,
		`{"epoch":1,"offsets":[{"topic":"orders","partition":0,"next_offset":1},{"topic":"orders","partition":0,"next_offset":2}]}`: `"field":"offsets[1].partition"`,
		`{"epoch":1,"offsets":[{"topic":"orders","partition":0,"next_offset":1,"metadata":"` + strings.Repeat("m", 4097) + `"}]}`:   `may have 4096 bytes`,
		`{"epoch":1,"offsets":[{"topic":"orders","partition":0,"next_offset":1.5}]}`:                                                `"field":"offsets[0].next_offset"`,
		fmt.Sprintf(`{"epoch":1,"ack":%q}`, topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 9}.String()):                 `is of epoch 9`,
	} {
		commit("%s", body).want(t, 422, part)
	}
	commit("%s", `{"epoch":1,"offsets":[`+strings.Repeat(`{},`, 200)+`{}]}`).want(t, 422)
	commit("%s", `{"ack":"x"}`).want(t, 400, `invalid_cursor`, `ack: cursor`)
	commit("%s", `{"epoch":1,"epoch":2}`).want(t, 400, `invalid_json`)
	w.send("POST", worker+"/commit", "x").want(t, 415)
	w.json("/v1/groups/billing/members/nobody/commit", `{"epoch":1,"offsets":[{"topic":"orders","partition":0,"next_offset":1}]}`).want(t, 404, "member_not_found")
}

func TestHeartbeatAndLeaving(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 1)
	first := w.poll(`{"topics":["orders"]}`)
	beat := func(body string) reply { return w.json(worker+"/heartbeat", body) }
	beat(fmt.Sprintf(`{"epoch":%d}`, first.Epoch)).want(t, 200, `"assignment_changed":false`)
	beat(`{}`).want(t, 422, `"field":"epoch"`)
	beat(`{"epoch":-1}`).want(t, 422, `"field":"epoch"`)
	beat(`{"epoch":"1"}`).want(t, 422, `"field":"epoch"`)
	beat(`{`).want(t, 400)
	w.send("POST", worker+"/heartbeat", "x").want(t, 415)
	w.json("/v1/groups/billing/members/nobody/heartbeat", `{"epoch":1}`).want(t, 404)
	w.json("/v1/groups/billing/members/x/poll", `{"topics":["orders"],"wait_ms":0}`).want(t, 200)
	// What was taken away stays the member's until it has seen that: no answer but a poll's has the new epoch.
	named := fmt.Sprintf(`"epoch":%d`, first.Epoch)
	beat(`{`+named+`}`).want(t, 200, named, `"assignment_changed":true`)
	w.json(worker+"/commit", fmt.Sprintf(`{"ack":%q}`, first.Cursor)).want(t, 200, named)
	if seen := w.poll(`{%s,"wait_ms":0}`, named); !seen.Changed || seen.Epoch <= first.Epoch {
		t.Errorf("the poll behind a heartbeat does not show what has changed: %+v", seen)
	}
	taken := w.poll(`{"topics":["orders"],"wait_ms":0}`) // take-over
	beat(fmt.Sprintf(`{"epoch":%d}`, first.Epoch)).want(t, 409, "fenced_member")

	w.send("DELETE", worker+"?ack=x", "").want(t, 400, "invalid_cursor")
	w.send("DELETE", worker+"?epoch=x", "").want(t, 400)
	w.send("DELETE", worker+"?epoch=0", "").want(t, 422)
	w.send("DELETE", "/v1/groups/billing/members/-", "").want(t, 422)
	left := w.send("DELETE", worker+"?ack="+first.Cursor, "").want(t, 200, `"member":"w"`, `"reason":"not_assigned"`)
	if strings.Count(left.body, `"reason"`) != 1 {
		t.Errorf("of two partitions one was still held: %s", left.body)
	}
	w.send("DELETE", worker+"?ack="+taken.Cursor, "").want(t, 404, "member_not_found")
	w.groups.refuse(fault.Newf("fake", fault.FencedMember, nil, "taken over"))
	w.send("DELETE", worker+"?ack="+taken.Cursor, "").want(t, 409, "fenced_member")
}

func TestSeek(t *testing.T) {
	w := start(t)
	w.fill("orders", 2, 5)
	seek := func(body string) reply { return w.json("/v1/groups/billing/seek", body) }
	seek(`{"topics":["orders"],"to":"latest"}`).want(t, 200, `{"offset":5,"partition":0,"topic":"orders"}`, `{"offset":5,"partition":1,"topic":"orders"}`)
	seek(`{"topics":["orders"],"to":"ts:1002"}`).want(t, 200, `"offset":2`)
	seek(`{"offsets":[{"topic":"orders","partition":1,"offset":4}]}`).want(t, 200, `{"offsets":[{"offset":4,"partition":1,"topic":"orders"}]}`)
	if got := w.poll(`{"topics":["orders"]}`); got.values() != "orders/0:2=2 orders/0:3=3 orders/0:4=4 orders/1:4=4" && len(got.Records) != 4 {
		t.Errorf("%+v", got)
	}
	for body, part := range map[string]string{
		`{}`:                                             `"field":"topics"`,
		`{"topics":["orders"]}`:                          `"field":"to"`,
		`{"to":"earliest"}`:                              `"field":"topics"`,
		`{"topics":[],"to":"earliest"}`:                  `must have 1 to 1000 names`,
		`{"topics":["a b"],"to":"tomorrow"}`:             `"field":"topics[0]"`,
		`{"topics":["a"],"to":"tomorrow"}`:               `must be earliest, latest, or ts:`,
		`{"topics":["a"],"offsets":[]}`:                  `cannot be given together`,
		`{"offsets":[]}`:                                 `must have 1 to 10000 entries`,
		`{"offsets":[{"topic":"orders","partition":1}]}`: `"field":"offsets[0].offset"`,
		`{"offsets":[{"topic":"orders","partition":1,"offset":1},{"topic":"orders","partition":1,"offset":1}]}`: `"field":"offsets[1].partition"`,
	} {
		seek(body).want(t, 422, part)
	}
	seek(`{"topics":["nothing"],"to":"earliest"}`).want(t, 404, "topic_not_found")
	seek(`{"topics":`).want(t, 400)
	w.send("POST", "/v1/groups/billing/seek", "x").want(t, 415)
	w.groups.refuse(fault.New("fake", fault.OffsetRange, nil, &topic.RangeError{Offset: 9, Reason: topic.BeyondEnd, ResumeAt: 5}))
	seek(`{"offsets":[{"topic":"orders","partition":1,"offset":9}]}`).want(t, 416, "beyond_end")
}

// What the coordinator says is what the caller hears, whatever is asked.
func TestTroubleOfTheCoordinator(t *testing.T) {
	w := start(t)
	none := start(t, func(_ *Config, d *Deps) { d.Groups = nil })
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/groups", ""},
		{"GET", "/v1/groups/g", ""},
		{"PATCH", "/v1/groups/g", `{}`},
		{"DELETE", "/v1/groups/g", ""},
		{"POST", "/v1/groups/g/seek", `{"topics":["a"],"to":"latest"}`},
		{"POST", "/v1/groups/g/members/m/poll", `{"topics":["a"]}`},
		{"POST", "/v1/groups/g/members/m/commit", `{"epoch":1,"offsets":[{"topic":"a","partition":0,"next_offset":1}]}`},
		{"POST", "/v1/groups/g/members/m/heartbeat", `{"epoch":1}`},
		{"DELETE", "/v1/groups/g/members/m", ""},
	} {
		ask := func(w *world) reply {
			w.t = t
			return w.send(c.method, c.path, c.body, "Content-Type", "application/json")
		}
		w.groups.refuse(fault.Newf("fake", fault.Loading, nil, "the groups are still being read"))
		if got := ask(w).want(t, 503, `"code":"coordinator_loading"`, `"retryable":true`); got.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: no Retry-After", c.method, c.path)
		}
		w.groups.refuse(fault.Newf("fake", fault.Timeout, nil, "the commit was not acknowledged in time"))
		ask(w).want(t, 504, `"code":"timeout"`, "the outcome is unknown")
		ask(none).want(t, 503, "serves no consumer groups")
		if c.path != "/v1/groups" {
			bad := strings.Replace(c.path, "/g", "/%07", 1)
			if strings.Contains(c.path, "groups/g") {
				bad = strings.Replace(c.path, "groups/g", "groups/%07", 1)
			}
			w.send(c.method, bad, c.body, "Content-Type", "application/json").want(t, 422, `"field":"group"`)
		}
	}
}

func TestPollsThatCannotBe(t *testing.T) {
	w := start(t)
	w.fill("orders", 1, 1)
	good := w.poll(`{"topics":["orders"],"unknown":{"a":[1]}}`)
	foreign := topic.GroupCursor{Group: topic.GroupSum("other"), Epoch: 1}.String()
	reader := topic.Cursor{}.String()
	late := topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 50}.String()
	never := topic.GroupCursor{Group: topic.GroupSum("billing")}.String()
	for _, c := range []struct {
		body   string
		status int
		parts  []string
	}{
		{`{}`, 422, []string{`"field":"topics"`, "is required to join"}},
		{``, 422, []string{`"field":"topics"`}},
		{`{"topics":null}`, 422, []string{`"field":"topics"`}},
		{`{"topics":[]}`, 422, []string{`must have 1 to 1000 names`}},
		{`{"topics":["a b",""]}`, 422, []string{`"field":"topics[0]"`, `"field":"topics[1]"`}},
		{`{"topics":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`, 422, []string{`must have 1 to 1000 names`}},
		{`{"topics":"orders"}`, 422, []string{`"field":"topics"`, `must be an array of strings, not a string`}},
		{`{"topics":["orders"],"topic_prefix":"a"}`, 422, []string{`is one of three`}},
		{`{"topic_prefix":""}`, 422, []string{`"field":"topic_prefix"`}},
		{`{"topic_prefix":"a b"}`, 422, []string{`"field":"topic_prefix"`}},
		{`{"topic_pattern":"("}`, 422, []string{`"field":"topic_pattern"`, `RE2`}},
		{`{"topic_pattern":"` + strings.Repeat("a", 1025) + `"}`, 422, []string{`must have 1 to 1000 bytes`}},
		{`{"topics":["orders"],"start":"yesterday"}`, 422, []string{`"field":"start"`}},
		{`{"topics":["orders"],"start":"ts:"}`, 422, []string{`"field":"start"`}},
		{
			`{"topics":["orders"],"epoch":0,"wait_ms":-1,"max_records":0,"max_bytes":0,"min_bytes":-1,"value_format":"xml"}`, 422,
			[]string{`"field":"epoch"`, `"field":"wait_ms"`, `"field":"max_records"`, `"field":"max_bytes"`, `"field":"min_bytes"`, `"field":"value_format"`},
		},
		{
			`{"epoch":1,"wait_ms":60001,"max_records":10001,"max_bytes":67108865,"min_bytes":67108865}`, 422,
			[]string{`"field":"wait_ms"`, `"field":"max_records"`, `"field":"max_bytes"`, `"field":"min_bytes"`},
		},
		{`{"epoch":1.5}`, 422, []string{`"field":"epoch"`}},
		{`{"epoch":99999999999999999999}`, 422, []string{`"field":"epoch"`}},
		{`{"epoch":1,"auto_ack":"yes"}`, 422, []string{`"field":"auto_ack"`}},
		{`{"epoch":1,"ack":"` + late + `"}`, 422, []string{`the cursor in ack is of epoch 50`}},
		{`{"epoch":1,"after":"` + late + `"}`, 422, []string{`the cursor in after is of epoch 50`}},
		{`{"ack":"x"}`, 400, []string{`invalid_cursor`, `ack: `}},
		{`{"after":""}`, 400, []string{`invalid_cursor`, `after: `}},
		{`{"ack":"` + foreign + `"}`, 400, []string{`invalid_cursor`, `another group`}},
		{`{"ack":"` + never + `"}`, 400, []string{`invalid_cursor`}},
		{`{"ack":"` + reader + `"}`, 400, []string{`invalid_cursor`, `without a group`}},
		{`{"ack":"` + good.Cursor[:len(good.Cursor)-1] + `"}`, 400, []string{`invalid_cursor`}},
		{`{"ack":"g1.` + strings.Repeat("A", 70<<10) + `"}`, 400, []string{`is too long`}},
		{`{"topics":["orders"],"topics":["users"]}`, 400, []string{`invalid_json`, `topics`}},
		{`{"topics":["orders"]`, 400, []string{`invalid_json`}},
		{`[]`, 422, nil},
		{`{"topics":["\ud800"]}`, 400, []string{`invalid_json`}},
		{`{"pad":"` + strings.Repeat("a", 1<<20) + `"}`, 413, []string{`request_too_large`}},
	} {
		if got := w.json(worker+"/poll", c.body); got.status != c.status {
			t.Errorf("%.80s: status %d, want %d: %s", c.body, got.status, c.status, got.body)
		} else {
			for _, part := range c.parts {
				if !strings.Contains(got.body, part) {
					t.Errorf("%.80s: no %s in %s", c.body, part, got.body)
				}
			}
		}
	}
	w.send("POST", worker+"/poll", "topics=orders").want(t, 415)
	w.send("POST", worker+"/poll?wait_ms=0", `{}`, "Content-Type", typeJSON).want(t, 400, "wait_ms")
	w.send("GET", worker+"/poll", "").want(t, 405)
	w.json("/v1/groups/billing/members/nobody/poll", `{"epoch":1,"topics":["orders"],"wait_ms":0}`).want(t, 200) // joins again
}

// FuzzPollBody: whatever the body, it is refused with a kind that is the caller's, or is within all bounds.
func FuzzPollBody(f *testing.F) {
	cursor := topic.GroupCursor{Group: topic.GroupSum("g"), Epoch: 3}
	cursor.Advance(topic.Ref{ID: topic.ID{1}, Partition: 2}, 7, 1, 3)
	f.Add([]byte(`{"topics":["orders","users"],"start":"ts:2025-11-02T10:00:00Z","wait_ms":20000,"max_records":10}`))
	f.Add([]byte(`{"topic_pattern":"a+b*","epoch":12,"ack":"` + cursor.String() + `","after":"` + cursor.String() + `","min_bytes":5}`))
	f.Add([]byte(`{"topic_prefix":"x","auto_ack":true,"value_format":"base64","max_bytes":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := poll{ask: topic.GroupPoll{Group: "g", Member: "m"}}
		var in api.GroupPoll
		err := jsonError(jsonv2.Unmarshal(text, &in))
		if err == nil {
			err = p.read(&in)
		}
		if err != nil {
			switch kind := fault.KindOf(err); kind {
			case fault.InvalidJSON, fault.InvalidCursor, fault.Validation:
				return
			default:
				t.Fatalf("kind %v: %v", kind, err)
			}
		}
		if p.q.limit.Records < 1 || p.q.limit.Records > mostPageRecords || p.q.limit.Bytes < 1 || p.q.limit.Bytes > mostPageBytes ||
			p.q.wait < 0 || p.q.wait > mostWait || p.q.minBytes < 0 || p.q.minBytes > mostPageBytes || p.ask.Epoch < 0 {
			t.Fatalf("%q became %+v", text, p)
		}
		if s := p.ask.Subscription; s == nil && p.ask.Epoch == 0 || s != nil && s.IsZero() {
			t.Fatalf("%q reads nothing: %+v", text, p.ask)
		}
		for _, ack := range p.ask.Ack {
			if ack.Next < 0 || ack.Ref.Partition < 0 {
				t.Fatalf("%q commits %+v", text, ack)
			}
		}
	})
}
