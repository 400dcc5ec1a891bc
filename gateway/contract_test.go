package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// spec compares answers with openapi.yaml and remembers which of them were seen.
type spec struct {
	text      []byte
	validator validator.Validator
	routes    map[string]string          // "GET /v1/topics/{topic}" to operationId
	statuses  map[string]map[string]bool // by operationId: the statuses that it lists, and whether they were seen
	queries   map[string][]string        // by operationId: the parameters of its query, sorted
	streamed  map[string]bool            // kinds of lines and events of streams, and whether they were seen
	line      *base.Schema               // of a line of a stream
	schemas   schema_validation.SchemaValidator

	mu sync.Mutex
}

// everywhere are the statuses that any request may be answered with, as the document's introduction says.
var everywhere = map[int]bool{400: true, 403: true, 405: true, 408: true, 413: true, 431: true, 500: true, 503: true}

func newSpec(text []byte, model *v3.Document, v validator.Validator) *spec {
	s := &spec{
		text: text, validator: v, routes: map[string]string{}, statuses: map[string]map[string]bool{},
		queries: map[string][]string{}, streamed: map[string]bool{}, schemas: schema_validation.NewSchemaValidator(),
	}
	s.line = model.Components.Schemas.GetOrZero("StreamLine").Schema()
	for _, one := range s.line.AnyOf {
		s.streamed["line with "+one.Schema().Required[0]] = false
	}
	for path, item := range model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			s.routes[strings.ToUpper(method)+" "+path] = op.OperationId
			s.statuses[op.OperationId] = map[string]bool{}
			for status := range op.Responses.Codes.FromOldest() {
				s.statuses[op.OperationId][status] = false
			}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.In == "query" {
					s.queries[op.OperationId] = append(s.queries[op.OperationId], p.Name)
				}
			}
			slices.Sort(s.queries[op.OperationId])
			if op.OperationId == "topicEvents" {
				for _, m := range namedEvent.FindAllStringSubmatch(op.Description, -1) {
					s.streamed["event "+m[1]] = false
				}
			}
		}
	}
	return s
}

// namedEvent finds the events that the document lists.
var namedEvent = regexp.MustCompile("(?m)^- `event: (\\w+)`")

// checkLine fails the test when a line of a stream is none that the document knows.
func (s *spec) checkLine(t testing.TB, line string) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &members); err != nil {
		t.Errorf("the line %.300q is no JSON object: %v", line, err)
		return
	}
	known := false
	for _, one := range s.line.AnyOf {
		if first := one.Schema().Required[0]; members[first] != nil {
			s.see("line with " + first)
			known = true
		}
	}
	if ok, errs := s.schemas.ValidateSchemaString(s.line, line); !ok || !known {
		t.Errorf("openapi.yaml does not know the line %.300s: %v", line, errs)
	}
}

// checkEvent fails the test when an event of the node's own is none that the document lists.
func (s *spec) checkEvent(t testing.TB, name string) {
	t.Helper()
	if !s.see("event " + name) {
		t.Errorf("openapi.yaml does not list the event %q", name)
	}
}

// see notes that something of a stream was seen, and says whether the document has it.
func (s *spec) see(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, listed := s.streamed[kind]
	if listed {
		s.streamed[kind] = true
	}
	return listed
}

// operation finds the operation of a request; "" when the document has none.
func (s *spec) operation(method, path string) string {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	have := strings.Split(path, "/")
	for _, route := range slices.Sorted(maps.Keys(s.routes)) { // "{" sorts behind letters: the literal path wins
		m, pattern, _ := strings.Cut(route, " ")
		want := strings.Split(pattern, "/")
		if m == method && len(want) == len(have) && slices.EqualFunc(want, have, func(w, h string) bool { return w == h || strings.HasPrefix(w, "{") }) {
			return s.routes[route]
		}
	}
	return ""
}

// check fails the test when the answer is not what the document says.
func (s *spec) check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if resp.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: the answer has no X-Request-Id", req.Method, req.URL.Path)
	}
	id := s.operation(req.Method, req.URL.EscapedPath())
	if id == "" {
		if resp.StatusCode < 400 && req.Method != http.MethodOptions && req.URL.Path != "/start.js" {
			t.Errorf("%s %s: answered with %d, but openapi.yaml has no such operation", req.Method, req.URL.Path, resp.StatusCode)
		}
		return
	}
	s.mu.Lock()
	_, listed := s.statuses[id][fmt.Sprint(resp.StatusCode)]
	if listed {
		s.statuses[id][fmt.Sprint(resp.StatusCode)] = true
	}
	s.mu.Unlock()
	if !listed && !everywhere[resp.StatusCode] {
		t.Errorf("%s: status %d is not in openapi.yaml: %s", id, resp.StatusCode, body)
	}
	if req.Method == http.MethodHead || resp.Header.Get("Content-Encoding") != "" || resp.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	plain := *req
	url := *req.URL
	url.Host, url.Scheme = "127.0.0.1:8080", "http"
	plain.URL, plain.Host = &url, url.Host
	copied := *resp
	copied.Body = io.NopCloser(bytes.NewReader(body))
	if resp.Header.Get("Content-Type") == typeNDJSON {
		return // a stream of lines; their shape is checked by their tests
	}
	if ok, errs := s.validator.ValidateHttpResponse(&plain, &copied); !ok {
		for _, e := range errs {
			t.Errorf("%s, status %d: %s: %s", id, resp.StatusCode, e.Message, e.Reason)
			for _, v := range e.SchemaValidationErrors {
				t.Errorf("  at %s: %s", v.KeywordLocation, v.Reason)
			}
		}
		t.Errorf("  the answer: %.500s", body)
	}
}

// missing lists the answers that no test has seen.
func (s *spec) missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(s.statuses)) {
		for _, status := range slices.Sorted(maps.Keys(s.statuses[id])) {
			if !s.statuses[id][status] {
				missing = append(missing, id+" "+status)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.streamed)) {
		if !s.streamed[kind] {
			missing = append(missing, "a stream's "+kind)
		}
	}
	return missing
}

func TestRoutesAreThoseOfTheContract(t *testing.T) {
	w := start(t)
	served := map[string]bool{}
	for _, r := range w.server.app.GetRoutes() {
		if r.Method == http.MethodHead || r.Path == "/start.js" {
			continue // HEAD goes with GET; the parts of the start page are its own business
		}
		parts := strings.Split(r.Path, "/")
		for i, p := range parts {
			if strings.HasPrefix(p, ":") {
				parts[i] = "{" + p[1:] + "}"
			}
		}
		served[r.Method+" "+strings.Join(parts, "/")] = true
	}
	for route := range contract().routes {
		if !served[route] {
			t.Errorf("openapi.yaml has %s, the server has not", route)
		}
	}
	for route := range served {
		if contract().routes[route] == "" {
			t.Errorf("the server has %s, openapi.yaml has not", route)
		}
	}
}

// What an operation refuses as unknown is what the document does not list, no more and no less.
func TestQueryParametersAreThoseOfTheContract(t *testing.T) {
	for route, id := range contract().routes {
		method, path, _ := strings.Cut(route, " ")
		pattern := strings.NewReplacer("{", ":", "}", "").Replace(path)
		if !isChecked(pattern) {
			continue
		}
		if got, want := parametersOf(method, pattern), contract().queries[id]; !slices.Equal(got, want) {
			t.Errorf("%s takes %v, openapi.yaml has %v", route, got, want)
		}
	}
	for operation := range parameters {
		method, pattern, _ := strings.Cut(operation, " ")
		if contract().operation(method, pattern) == "" {
			t.Errorf("the parameters of %s are those of no operation", operation)
		}
	}
}

func TestTheContractIsValidOpenAPI(t *testing.T) {
	if ok, errs := contract().validator.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("%s: %s", e.Message, e.Reason)
		}
	}
}
