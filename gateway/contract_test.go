package gateway

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	validator "github.com/pb33f/libopenapi-validator"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// spec compares answers with openapi.yaml and remembers which of them were seen.
type spec struct {
	text      []byte
	validator validator.Validator
	routes    map[string]string          // "GET /v1/topics/{topic}" to operationId
	statuses  map[string]map[string]bool // by operationId: the statuses that it lists, and whether they were seen

	mu sync.Mutex
}

// everywhere are the statuses that any request may be answered with, as the document's introduction says.
var everywhere = map[int]bool{400: true, 403: true, 405: true, 408: true, 413: true, 431: true, 500: true, 503: true}

func newSpec(text []byte, model *v3.Document, v validator.Validator) *spec {
	s := &spec{text: text, validator: v, routes: map[string]string{}, statuses: map[string]map[string]bool{}}
	for path, item := range model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			s.routes[strings.ToUpper(method)+" "+path] = op.OperationId
			s.statuses[op.OperationId] = map[string]bool{}
			for status := range op.Responses.Codes.FromOldest() {
				s.statuses[op.OperationId][status] = false
			}
		}
	}
	return s
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

func TestTheContractIsValidOpenAPI(t *testing.T) {
	if ok, errs := contract().validator.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("%s: %s", e.Message, e.Reason)
		}
	}
}
