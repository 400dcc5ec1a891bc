package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Every kind, with what a caller sees of it. A new kind has to be given its row here and in rowOf.
func TestEveryKindHasItsStatusAndCode(t *testing.T) {
	want := map[fault.Kind]struct {
		status int
		code   string
		close  int
	}{
		fault.Internal:        {500, "internal", 1011},
		fault.BadRequest:      {400, "bad_request", 4500},
		fault.InvalidJSON:     {400, "invalid_json", 4500},
		fault.InvalidCursor:   {400, "invalid_cursor", 4500},
		fault.Validation:      {422, "validation_failed", 4500},
		fault.Unauthorized:    {401, "token_invalid", 4501},
		fault.Forbidden:       {403, "forbidden", 4503},
		fault.NotFound:        {404, "not_found", 4500},
		fault.NoTopic:         {404, "topic_not_found", 4500},
		fault.NoPartition:     {404, "partition_not_found", 4500},
		fault.NoGroup:         {404, "group_not_found", 4500},
		fault.NoMember:        {404, "member_not_found", 4500},
		fault.TopicExists:     {409, "topic_exists", 4500},
		fault.GroupNotEmpty:   {409, "group_not_empty", 4500},
		fault.FencedMember:    {409, "fenced_member", 4506},
		fault.StaleMember:     {409, "stale_member_epoch", 4500},
		fault.Superseded:      {409, "superseded_poll", 4506},
		fault.OffsetMismatch:  {412, "offset_mismatch", 4500},
		fault.OffsetRange:     {416, "offset_out_of_range", 4500},
		fault.RecordTooLarge:  {413, "record_too_large", 4505},
		fault.RequestTooLarge: {413, "request_too_large", 4505},
		fault.UnsupportedType: {415, "unsupported_media_type", 4500},
		fault.KeyReused:       {422, "idempotency_key_reused", 4500},
		fault.Fenced:          {409, "fenced", 4506},
		fault.OutOfSequence:   {409, "out_of_sequence", 4500},
		fault.QuotaExceeded:   {429, "quota_exceeded", 4006},
		fault.NotLeader:       {503, "not_leader", 4001},
		fault.Loading:         {503, "coordinator_loading", 4001},
		fault.NotReplicated:   {503, "not_enough_replicas", 4001},
		fault.StorageFull:     {503, "storage_full", 4001},
		fault.Overloaded:      {503, "overloaded", 4006},
		fault.Stopping:        {503, "stopping", 4001},
		fault.Timeout:         {504, "timeout", 4001},
		fault.Corrupt:         {500, "internal", 1011},
		fault.Closed:          {503, "stopping", 4001},
		fault.Limit:           {409, "limit_exceeded", 4504},
	}
	for _, kind := range fault.Kinds() {
		w, ok := want[kind]
		if !ok {
			t.Errorf("%v has no row in this test", kind)
			continue
		}
		err := fmt.Errorf("outer: %w", fault.Newf("storage.Secret", kind, "orders/3", "the sentence"))
		p := problem.Of(err)
		if p.Status != w.status || p.Code != w.code || problem.CloseCode(err) != w.close || p.Title == "" {
			t.Errorf("%v: status %d, code %q, close code %d, title %q; want %+v", kind, p.Status, p.Code, problem.CloseCode(err), p.Title, w)
		}
		if p.Retryable != (kind.Retryable() || kind == fault.Closed) {
			t.Errorf("%v: retryable is %v", kind, p.Retryable)
		}
		if (p.RetryAfter > 0) != (w.status == 503 || w.status == 429) {
			t.Errorf("%v: Retry-After is %d", kind, p.RetryAfter)
		}
		doc := string(p.Append(nil, problem.Place{Instance: "/v1/x", RequestID: "r-1"}))
		if !json.Valid([]byte(doc)) {
			t.Fatalf("%v: not JSON: %s", kind, doc)
		}
		for _, part := range []string{`"type":"urn:weir:error:` + w.code + `"`, fmt.Sprintf(`"status":%d`, w.status), `"instance":"/v1/x"`, `"request_id":"r-1"`} {
			if !strings.Contains(doc, part) {
				t.Errorf("%v: no %s in %s", kind, part, doc)
			}
		}
		if strings.Contains(doc, "storage.Secret") || w.status == 500 && strings.Contains(doc, "sentence") {
			t.Errorf("%v: the document shows what is inside: %s", kind, doc)
		}
		if w.status != 500 && !strings.Contains(doc, "the sentence") {
			t.Errorf("%v: the sentence is not in %s", kind, doc)
		}
		if kind.Unknown() && !strings.Contains(doc, "the outcome is unknown") {
			t.Errorf("%v: the document does not say that the outcome is unknown: %s", kind, doc)
		}
	}
}

func TestForeignErrorsShowNothing(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{errors.New("open /secret: no such file"), 500},
		{fmt.Errorf("secret: %w", context.DeadlineExceeded), 504},
		{fmt.Errorf("secret: %w", context.Canceled), 503},
		{fault.New("storage.Append", fault.StorageFull, nil, fmt.Errorf("write: %w", &fs.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC})), 503},
		{fault.New("storage.Roll", fault.StorageFull, nil, &os.LinkError{Op: "rename", Old: "/secret", New: "/b", Err: syscall.ENOSPC}), 503},
	} {
		p := problem.Of(c.err)
		if p.Status != c.status || strings.Contains(string(p.AppendShort(nil)), "secret") {
			t.Errorf("%v: %s", c.err, p.AppendShort(nil))
		}
	}
}

func TestDetailsOfSomeKindsAreMembers(t *testing.T) {
	outOfRange := fault.New("x.Fetch", fault.OffsetRange, nil, &topic.RangeError{
		Path: topic.Path{Topic: "orders", Partition: 3}, Offset: 5, Reason: topic.Retention, Bounds: topic.Bounds{LogStart: 9000, HighWatermark: 10500}, ResumeAt: 9000,
	})
	fields := problem.FieldError("x.Y", "records[2].value", "is %s", "required")
	_, settings := topic.ParseSettings(map[string]string{"retention.ms": "soon", "nonsense": "1"})
	_, name := topic.ParseName("a b")
	denied := fault.New("x.Z", fault.Forbidden, nil, &problem.Denied{Action: "produce", Resource: "topic:\"a\"", Why: "no"})
	for _, c := range []struct {
		err  error
		part string
	}{
		{outOfRange, `"reason":"retention","log_start_offset":9000,"high_watermark":10500,"resume_offset":9000`},
		{fields, `"errors":[{"field":"records[2].value","message":"is required"}]`},
		{settings, `"errors":[{"field":"settings.retention.ms","message":"must be a whole number of milliseconds, at least -1"},{"field":"settings.nonsense","message":"is not the name of a setting"}]`},
		{name, `"detail":"topic name \"a b\": has \" \" at byte 1; allowed are a-z, A-Z, 0-9, '.', '_' and '-'"`},
		{name, `"errors":[{"field":"topic","message":"has \" \" at byte 1; allowed are a-z, A-Z, 0-9, '.', '_' and '-'"}]`},
		{denied, `"action":"produce","resource":"topic:\"a\""`},
	} {
		p := problem.Of(c.err)
		for _, doc := range []string{string(p.Append(nil, problem.Place{})), string(p.AppendShort(nil))} {
			if !strings.Contains(doc, c.part) || !json.Valid([]byte(doc)) {
				t.Errorf("no %s in %s", c.part, doc)
			}
		}
	}
}

func TestStringsAreEscaped(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "é😀\u2028", "\xff\xc3", strings.Repeat("a\"", 100)} {
		var got string
		if err := json.Unmarshal(problem.AppendString(nil, s), &got); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); got != want {
			t.Errorf("%q came back as %q", s, got)
		}
	}
}
