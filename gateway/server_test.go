package gateway

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirlog/weir/gateway/session"
)

// TestMain checks, after everything else, that the contract was used up (see contract_test.go) and that no
// goroutine is left.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(
			// The engine's own: a clock that ticks for ever, and a cleaner that sleeps for some seconds after its pool has stopped.
			goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
			goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
			goleak.IgnoreAnyFunction("github.com/gofiber/fiber/v2/utils.StartTimeStampUpdater.func1.1"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" {
		if missing := contract().missing(); len(missing) > 0 {
			fmt.Fprintf(os.Stderr, "no test has seen these answers that openapi.yaml promises:\n  %s\n", strings.Join(missing, "\n  "))
			code = 1
		}
	}
	os.Exit(code)
}

// contract is openapi.yaml as tests use it.
var contract = sync.OnceValue(func() *spec {
	text, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		panic(err)
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		panic(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		panic(errs)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		panic(err)
	}
	return newSpec(text, &model.Model, v)
})

// world is a server on a fake node.
type world struct {
	t      testing.TB
	node   *fakeNode
	groups *fakeGroups
	server *Server
	url    string
	logs   *lockedBuffer
	client *http.Client
	stop   context.CancelFunc
	done   chan error
}

// lockedBuffer is a log that the test may read while the server writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a server until the test ends. change may alter its config and dependencies.
func start(t testing.TB, change ...func(*Config, *Deps)) *world {
	t.Helper()
	w := &world{t: t, node: newFakeNode(), logs: &lockedBuffer{}, done: make(chan error, 1)}
	w.groups = newFakeGroups(w.node)
	w.client = &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 30 * time.Second}
	registry := prometheus.NewRegistry()
	listening := make(chan net.Addr, 1)
	cfg := DefaultConfig()
	cfg.Address = "127.0.0.1:0"
	cfg.DrainTimeout = 5 * time.Second
	logger := slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	hub, err := session.NewHub(session.DefaultConfig(), session.Deps{Log: w.node, Producer: w.node, NodeID: 1, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{
		Node: w.node, Groups: w.groups, NodeID: 1, Hub: hub, Logger: logger, Registerer: registry, Gatherer: registry,
		Web:     fstest.MapFS{"index.html": {Data: []byte("<!doctype html><title>weir</title>")}, "start.js": {Data: []byte("1")}},
		OpenAPI: contract().text, AsyncAPI: []byte("asyncapi: 3.0.0\n"),
		Listening: func(a net.Addr) { listening <- a },
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	if w.server, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- w.server.Run(ctx) }()
	select {
	case a := <-listening:
		w.url = "http://" + a.String()
	case err := <-w.done:
		t.Fatalf("the server did not start: %v", err)
	}
	t.Cleanup(w.end)
	return w
}

// end stops the server and waits for it.
func (w *world) end() {
	w.t.Helper()
	w.stop()
	w.client.CloseIdleConnections()
	select {
	case err, open := <-w.done:
		if open && err != nil {
			w.t.Errorf("Run returned %v", err)
		}
		if open {
			close(w.done)
		}
	case <-time.After(20 * time.Second):
		w.t.Error("Run did not return")
	}
}

func (w *world) addr() string { return strings.TrimPrefix(w.url, "http://") }

// reply is an answer that was read whole and found to be what openapi.yaml says.
type reply struct {
	status int
	header http.Header
	body   string
}

// send makes a request with headers in pairs, and checks the answer against openapi.yaml.
func (w *world) send(method, path, body string, headers ...string) reply {
	w.t.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body == "" {
		req.Body = nil
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	return w.do(req)
}

func (w *world) do(req *http.Request) reply {
	w.t.Helper()
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	contract().check(w.t, req, resp, body)
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// json posts JSON.
func (w *world) json(path, body string, headers ...string) reply {
	w.t.Helper()
	return w.send("POST", path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func (r reply) want(t testing.TB, status int, parts ...string) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	for _, part := range parts {
		if !strings.Contains(r.body, part) {
			t.Fatalf("the answer has no %s: %s", part, r.body)
		}
	}
	return r
}

// ask sends a request on a connection of its own.
func (w *world) ask(request string, args ...any) *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, request, args...); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}
