package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// parameters are the query parameters of each operation under /v1, as openapi.yaml has them; a test
// compares both. One that is not listed has none.
//
// What an operation does not know it refuses: who misspells "from" would else read everything, and not
// learn why. Pages, documents and health are open to whatever a monitor or a browser adds.
var parameters = map[string][]string{
	"GET /v1/topics":                                       {"internal", "page_size", "page_token"},
	"GET /v1/topics/:topic/partitions":                     {"page_size", "page_token"},
	"GET /v1/topics/:topic/offsets":                        {"at"},
	"POST /v1/topics/:topic/records":                       {"acks", "key", "partition", "raw", "receipts", "timeout_ms"},
	"POST /v1/topics/:topic/partitions/:partition/records": {"acks", "key", "raw", "receipts", "timeout_ms"},
	"GET /v1/topics/:topic/records": {
		"cursor", "follow", "from", "max_bytes", "max_records", "min_bytes", "on_gap", "partitions", "until", "value_format", "wait_ms",
	},
	"GET /v1/topics/:topic/partitions/:partition/records": {"max_bytes", "max_records", "min_bytes", "offset", "value_format", "wait_ms"},
	"GET /v1/topics/:topic/events":                        {"cursor", "data", "event", "from", "last_event_id", "on_gap", "partitions", "value_format"},
	"GET /v1/events":                                      {"cursor", "data", "event", "from", "last_event_id", "on_gap", "topic", "value_format"},
	"GET /v1/groups/:group/members/:member/records":       {"ack", "start", "topic_pattern", "topic_prefix", "topics", "value_format"},
	"GET /v1/groups":                                      {"page_size", "page_token"},
	"DELETE /v1/groups/:group/members/:member":            {"ack", "epoch"},
	"GET /v1/topics/:topic/ws":                            {"cursor", "from", "on_gap", "partitions", "value_format"},
}

// isChecked says whether an operation refuses parameters that it does not know.
func isChecked(pattern string) bool { return strings.HasPrefix(pattern, "/v1/") }

// parametersOf are the parameters of an operation; HEAD is GET without the body.
func parametersOf(method, pattern string) []string {
	if method == fasthttp.MethodHead {
		method = fasthttp.MethodGet
	}
	return parameters[method+" "+pattern]
}

// mostUnknown is how many parameters an error names.
const mostUnknown = 10

// severalTimes is the one parameter that may stand in a query more than once.
const severalTimes = "topic"

// checkQuery refuses a query with parameters that the operation does not have, or has twice: which of the
// two counts would be this node's secret, and perhaps not what a proxy in front has checked.
func (op *operation) checkQuery(ctx *fasthttp.RequestCtx) error {
	if !op.checked || len(ctx.URI().QueryString()) == 0 {
		return nil
	}
	var wrong []problem.Field
	refuse := func(name, message string) {
		if len(wrong) < mostUnknown {
			wrong = append(wrong, problem.Field{Name: parameterName(name), Message: message})
		}
	}
	var seen uint64 // a bit for each of op.parameters
	for name, value := range ctx.QueryArgs().All() {
		at := slices.Index(op.parameters, string(name))
		switch {
		case at >= 0 && seen&(1<<at) != 0 && string(name) != severalTimes:
			refuse(string(name), "is given more than once")
		case at >= 0:
			seen |= 1 << at
		case len(name) > 0 || len(value) > 0:
			refuse(string(name), "is no query parameter of this address"+hint(string(name), op.parameters))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fault.New("gateway.Query", fault.BadRequest, nil, &problem.Invalid{Fields: wrong})
}

// parameterName is a name as it is shown: quoted when it is none.
func parameterName(name string) string {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == '"' || c >= 0x7f }) {
		return quote(name)
	}
	return shorten(name)
}

// hint says what may have been meant, or what there is.
func hint(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	if len(known) == 0 {
		return ", which has none"
	}
	return "; it has " + strings.Join(known, ", ")
}

// alike are words that stand for the same thing at different addresses, here and elsewhere.
var alike = [][]string{
	{"from", "offset", "at", "start", "since", "position", "begin", "timestamp"},
	{"cursor", "last_event_id", "after", "next", "page_token", "token"},
	{"max_records", "page_size", "limit", "count", "max", "size", "n"},
	{"wait_ms", "timeout_ms", "wait", "timeout"},
	{"value_format", "format"},
	{"partitions", "partition"},
	{"until", "end", "to"},
}

// nearest is the known name that was most likely meant; "" when none is near.
func nearest(name string, known []string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if len(name) > 32 {
		return ""
	}
	near, least := "", max(1, min(2, len(name)/2))+1
	for _, one := range known {
		if d := distance(name, one); d < least {
			near, least = one, d
		}
	}
	if near != "" {
		return near
	}
	for _, words := range alike {
		if !slices.Contains(words, name) {
			continue
		}
		for _, one := range known {
			if slices.Contains(words, one) {
				return one
			}
		}
	}
	return ""
}

// distance is how many letters must be added, left out or changed to make one word the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
