package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestTopicLivesFromCreationToDeletion(t *testing.T) {
	w := start(t)
	made := w.json("/v1/topics", `{"name":"orders","partitions":3,"settings":{"retention.ms":86400000,"cleanup.policy":"compact"},"unknown":1}`)
	made.want(t, 201, `"name":"orders"`, `"partitions":3`, `"retention.ms":"86400000"`, `"max.message.bytes":"2097152"`)
	if got := made.header.Get("Location"); got != "/v1/topics/orders" {
		t.Fatalf("Location is %q", got)
	}
	w.json("/v1/topics", `{"name":"orders"}`).want(t, 409, `"code":"topic_exists"`)
	w.send("GET", "/v1/topics/orders", "").want(t, 200, `"cleanup.policy":"compact"`)
	altered := w.send("PATCH", "/v1/topics/orders", `{"partitions":5,"settings":{"cleanup.policy":null,"retention.ms":"1"}}`, "Content-Type", "application/json")
	altered.want(t, 200, `"partitions":5`, `"settings":{"retention.ms":"1"}`, `"cleanup.policy":"delete"`)
	w.send("DELETE", "/v1/topics/orders", "").want(t, 204)
	w.send("DELETE", "/v1/topics/orders", "").want(t, 404, `"code":"topic_not_found"`, `topic \"orders\" does not exist`)
	w.send("GET", "/v1/topics/orders", "").want(t, 404)
	w.send("PATCH", "/v1/topics/orders", `{}`, "Content-Type", "application/json").want(t, 404)
}

func TestTopicsAreListedInPages(t *testing.T) {
	w := start(t)
	for i := range 7 {
		w.json("/v1/topics", fmt.Sprintf(`{"name":"t%d","partitions":5}`, i)).want(t, 201)
	}
	w.node.mu.Lock()
	for i := range 5 {
		if _, err := w.node.create(topic.Creation{Name: topic.Name(fmt.Sprintf("__own%d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	w.node.mu.Unlock()
	walk := func(path, query, member string) (names []string) {
		token := ""
		for pages := 0; ; pages++ {
			r := w.send("GET", path+"?page_size=3&page_token="+token+query, "").want(t, 200)
			var page map[string]json.RawMessage
			var items []struct {
				Name      string
				Partition int
			}
			if err := json.Unmarshal([]byte(r.body), &page); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(page[member], &items); err != nil {
				t.Fatal(err)
			}
			if len(items) > 3 || pages > 10 {
				t.Fatalf("page %d has %d items", pages, len(items))
			}
			for _, i := range items {
				names = append(names, i.Name+fmt.Sprint(i.Partition))
			}
			if page["next_page_token"] == nil {
				return names
			}
			if err := json.Unmarshal(page["next_page_token"], &token); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := fmt.Sprint(walk("/v1/topics", "", "topics")), "[t00 t10 t20 t30 t40 t50 t60]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := walk("/v1/topics", "&internal=true", "topics"); len(got) != 12 {
		t.Errorf("with internal topics: %v", got)
	}
	if got, want := fmt.Sprint(walk("/v1/topics/t1/partitions", "", "partitions")), "[0 1 2 3 4]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.send("GET", "/v1/topics/none/partitions", "").want(t, 404)
}

func TestWrongTopicRequestsAreRefusedWithTheFieldThatIsWrong(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders"}`).want(t, 201)
	const js = "application/json"
	for _, c := range []struct {
		method, path, body, contentType string
		status                          int
		parts                           []string
	}{
		{"POST", "/v1/topics", `{"name":"a b"}`, js, 422, []string{`validation_failed`, `"field":"name","message":"\"a b\" has \" \" at byte 1`}},
		{"POST", "/v1/topics", `{}`, js, 422, []string{`"detail":"name is required"`, `"errors":[{"field":"name","message":"is required"}]`}},
		{"POST", "/v1/topics", `{"name":"a/b","partitions":0,"replication":-3,"settings":{"retention.ms":"soon","nope":1}}`, js, 422, []string{
			`"field":"name"`, `"field":"partitions"`, `"field":"replication"`,
			`{"field":"settings.retention.ms","message":"must be a whole number of milliseconds, at least -1"}`, `{"field":"settings.nope","message":"is not the name of a setting"}`,
		}},
		{"PATCH", "/v1/topics/orders", `{"partitions":-1,"settings":{"segment.bytes":1,"retention.ms":null}}`, js, 422, []string{
			`"errors":[{"field":"partitions",`, `{"field":"settings.segment.bytes","message":"must be a whole number from 4096`,
		}},
		{"POST", "/v1/topics", `{"name":"__mine"}`, js, 403, []string{`"code":"forbidden"`, `"action":"create"`, `"resource":"topic:__mine"`}},
		{"POST", "/v1/topics", `{"name":"x","partitions":0}`, js, 422, []string{`"field":"partitions"`}},
		{"POST", "/v1/topics", `{"name":"x","replication":-1}`, js, 422, []string{`"field":"replication"`}},
		{"POST", "/v1/topics", `{"name":"x","partitions":5000}`, js, 409, []string{`limit_exceeded`}},
		{"POST", "/v1/topics", `{"name":"x","partitions":"3"}`, js, 422, []string{`"field":"partitions"`, `must be a whole number, not a string`}},
		{"POST", "/v1/topics", `{"name":"x","partitions":1.5}`, js, 422, []string{`"field":"partitions"`, `must be a whole number that fits into 32 bits`}},
		{"POST", "/v1/topics", `{"name":3}`, js, 422, []string{`"field":"name"`, `must be a string, not a number`}},
		{"POST", "/v1/topics", `{"name":"x","settings":{"retention.ms":{}}}`, js, 422, []string{`"field":"settings.retention.ms"`, `must be a string, a number or a boolean, not an object`}},
		{"POST", "/v1/topics", `[]`, js, 422, []string{`must be an object, not an array`}},
		{"POST", "/v1/topics", `{"name":"x","settings":{"retention.ms":"soon","segment.bytes":1,"nonsense":"1"}}`, js, 422, []string{`retention.ms`, `segment.bytes`, `nonsense`}},
		{"POST", "/v1/topics", `{"name":"x","settings":{"retention.ms":null}}`, js, 422, []string{`settings`}},
		{"POST", "/v1/topics", `{"name":"x","name":"y"}`, js, 400, []string{`invalid_json`, `duplicate`}},
		{"POST", "/v1/topics", "{\"name\":\"\xff\"}", js, 400, []string{`invalid_json`, `UTF-8`}},
		{"POST", "/v1/topics", `{"name":"x"`, js, 400, []string{`invalid_json`}},
		{"POST", "/v1/topics", ``, js, 400, []string{`invalid_json`}},
		{"POST", "/v1/topics", `{"name":"x"}{}`, js, 400, []string{`invalid_json`}},
		{"POST", "/v1/topics", `{"name":"x"}`, "application/x-www-form-urlencoded", 415, []string{`unsupported_media_type`}},
		{"GET", "/v1/topics?page_size=0", "", "", 422, []string{`page_size`}},
		{"GET", "/v1/topics?page_size=many", "", "", 400, []string{`page_size`}},
		{"GET", "/v1/topics?page_token=%21", "", "", 400, []string{`page_token`}},
		{"GET", "/v1/topics?page_token=IA", "", "", 400, []string{`page_token`}},
		{"GET", "/v1/topics/a%20b", "", "", 422, []string{`validation_failed`, `"errors":[{"field":"topic","message":"has \" \" at byte 1`}},
		{"PATCH", "/v1/topics/orders", `{"partitions":0}`, js, 422, []string{`partitions`}},
		{"PATCH", "/v1/topics/orders", `{"settings":{"retention.ms":[]}}`, js, 422, []string{`settings`}},
		{"PATCH", "/v1/topics/orders", `{"a"`, js, 400, []string{`invalid_json`}},
		{"PATCH", "/v1/topics/orders", `{}`, "text/plain", 415, nil},
		{"PATCH", "/v1/topics/__own", `{}`, js, 403, nil},
		{"DELETE", "/v1/topics/__own", "", "", 403, nil},
		{"DELETE", "/v1/topics/a%20b", "", "", 422, nil},
		{"GET", "/v1/topics/orders/partitions?page_token=bm8", "", "", 400, []string{`page_token`}},
		{"GET", "/v1/topics/orders/partitions?page_size=1001", "", "", 422, []string{`page_size`}},
		{"GET", "/v1/topics/orders/offsets?at=soon", "", "", 422, []string{`"field":"at"`}},
		{"GET", "/v1/topics/orders/offsets?at=-5", "", "", 422, []string{`"field":"at"`}},
		{"GET", "/v1/topics/orders/offsets?at=1&at=2&%zz", "", "", 400, nil},
		{"GET", "/v1/topics/none/offsets", "", "", 404, nil},
		{"POST", "/v1/topics/orders/delete-records", `{"partitions":[{"partition":0}]}`, js, 422, []string{`partitions[0].before_offset`}},
		{"POST", "/v1/topics/orders/delete-records", `{"partitions":[{"before_offset":-2}]}`, js, 422, []string{`partitions[0].partition`, `partitions[0].before_offset`}},
		{"POST", "/v1/topics/orders/delete-records", `{"partitions":[]}`, js, 422, nil},
		{"POST", "/v1/topics/orders/delete-records", `{`, js, 400, nil},
		{"POST", "/v1/topics/orders/delete-records", `{}`, "text/plain", 415, nil},
		{"POST", "/v1/topics/none/delete-records", `{"partitions":[{"partition":0,"before_offset":1}]}`, js, 404, nil},
		{"POST", "/v1/topics/__own/delete-records", `{"partitions":[{"partition":0,"before_offset":1}]}`, js, 403, nil},
		{"POST", "/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":1}]}`, js, 416, []string{`"reason":"beyond_end"`, `"high_watermark":0`}},
	} {
		var headers []string
		if c.contentType != "" {
			headers = []string{"Content-Type", c.contentType}
		}
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			w.t = t
			w.send(c.method, c.path, c.body, headers...).want(t, c.status, c.parts...)
		})
	}
	w.t = t
	w.json("/v1/topics", `{"name":"`+string(make([]byte, controlBody))+`"}`).want(t, 413, `request_too_large`)
}

func TestOffsetsAndDeletion(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"orders","partitions":2}`).want(t, 201)
	w.json("/v1/topics/orders/records", `{"records":[
		{"partition":0,"value":1,"timestamp":1000},{"partition":0,"value":2,"timestamp":2000},{"partition":1,"value":3,"timestamp":3000}]}`).want(t, 200)
	w.send("GET", "/v1/topics/orders/offsets", "").want(t, 200, `{"high_watermark":2,"log_start_offset":0,"offset":2,"partition":0}`)
	w.send("GET", "/v1/topics/orders/offsets?at=earliest", "").want(t, 200, `"offset":0,"partition":0`)
	w.send("GET", "/v1/topics/orders/offsets?at=1970-01-01T00:00:01.5Z", "").want(t, 200, `"offset":1,"partition":0,"timestamp":2000`)
	w.send("GET", "/v1/topics/orders/offsets?at=ts:1970-01-01T00:00:01.5Z", "").want(t, 200, `"offset":1,"partition":0,"timestamp":2000`)
	w.send("GET", "/v1/topics/orders/offsets?at=ts:1500", "").want(t, 200, `"offset":1,"partition":0,"timestamp":2000`, `"offset":0,"partition":1,"timestamp":3000`)
	w.send("GET", "/v1/topics/orders/offsets?at=2500", "").want(t, 200, `"offset":2,"partition":0}`)
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":1},{"partition":1,"before_offset":-1}]}`).
		want(t, 200, `{"log_start_offset":1,"partition":0,"status":200}`, `{"log_start_offset":1,"partition":1,"status":200}`)
	w.json("/v1/topics/orders/delete-records", `{"partitions":[{"partition":0,"before_offset":2},{"partition":7,"before_offset":1}]}`).
		want(t, 207, `"log_start_offset":2`, `partition_not_found`)
	w.send("GET", "/v1/topics/orders/partitions", "").want(t, 200, `"log_start_offset":2`, `"leader":1`)
}

// The text of a failure is for the node's log alone.
func TestAFailureOfTheNodeShowsNothingOfItsInside(t *testing.T) {
	w := start(t)
	w.node.answer(func(context.Context, *topic.Append) error {
		return fault.New("storage.Append", fault.Internal, "orders/3", errDisk)
	})
	r := w.json("/v1/topics/orders/records", `{"records":[{"value":1}]}`).want(t, 500, `"code":"internal"`)
	for _, secret := range []string{"secret", "storage", "orders.log"} {
		if strings.Contains(r.body, secret) {
			t.Errorf("the answer shows what is inside: %s", r.body)
		}
	}
	id := r.header.Get("X-Request-Id")
	if logs := w.logs.String(); !strings.Contains(logs, id) || !strings.Contains(logs, "/var/lib/secret") {
		t.Errorf("the log has not the reason under the id %s", id)
	}
}
