package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/topic"
)

// exchange sends raw bytes and returns all that comes back until the server closes or is silent.
func (w *world) exchange(raw string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, raw); err != nil && !errors.Is(err, net.ErrClosed) {
		w.t.Logf("sending: %v", err) // the server may have closed before it had all
	}
	if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Logf("receiving: %v", err)
	}
	return string(b)
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] \d{3} `)

// answers counts the answers in what came back.
func answers(raw string) int { return len(statusLine.FindAllString(raw, -1)) }

// Requests of which two servers could see different ends are refused, the connection is closed, and what
// stands behind them is never served.
func TestRequestsThatCouldSmuggleAreRefused(t *testing.T) {
	w := start(t)
	const behind = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	body := `{"records":[{"value":1}]}`
	post := "POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for _, c := range []struct{ name, raw, status string }{
		{"both lengths", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"both lengths, the other way", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"two lengths", post + "Content-Length: 5\r\nContent-Length: 25\r\n\r\n" + body + behind, "400"},
		{"length with a sign", post + "Content-Length: +25\r\n\r\n" + body + behind, "400"},
		{"length with a list", post + "Content-Length: 25, 25\r\n\r\n" + body + behind, "400"},
		{"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"a list of codings", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"identity", post + "Transfer-Encoding: identity\r\nContent-Length: 25\r\n\r\n" + body + behind, "400"},
		{"identity alone", post + "Transfer-Encoding: identity\r\n\r\n" + behind, "400"},
		{"a space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"a coding on 1.0", "POST /v1/topics/a/records HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + behind, "400"},
		{"a slash in a name", strings.Replace(post, "topics/a/", "topics/a%2Fpartitions%2f0/", 1) + "Content-Length: 25\r\n\r\n" + body + behind, "400"},
		{"a backslash in a name", "GET /v1/topics/a%5Cb HTTP/1.1\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"a folded header", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c\r\n\r\n" + behind, "400"},
		{"a folded length", post + "Content-Length:\r\n 25\r\n\r\n" + body + behind, "400"},
		{"bare line feeds", "GET /healthz HTTP/1.1\r\nHost: localhost\nX-A: b\r\n\r\n" + behind, "400"},
		{"version 1.2", "GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"version 2.0", "GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"no version", "GET /healthz\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n" + behind, "400"},
		{"two hosts", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"a NUL", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: a\x00b\r\n\r\n" + behind, "400"},
		{"a strange method", "GE T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + behind, "400"},
		{"a broken chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + behind, "400"},
		{"a negative chunk", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + behind, "400"},
		{"a huge chunk", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + behind, "400"},
		{"an expectation", post + "Expect: miracles\r\nContent-Length: 25\r\n\r\n" + body + behind, "400"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			got := w.exchange(c.raw)
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.status) {
				t.Fatalf("got %.200q", got)
			}
			if answers(got) != 1 {
				t.Errorf("what stood behind the request was served: %q", got)
			}
			head := strings.ToLower(got)
			for _, part := range []string{"application/problem+json", "connection: close", "x-request-id: "} {
				if !strings.Contains(head, part) {
					t.Errorf("no %q in %q", part, got)
				}
			}
		})
	}
	if n := w.node.calls.Load(); n != 0 {
		t.Errorf("the node was asked %d times", n)
	}
	// What is fine stays fine, pipelined too.
	good := post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	if got := w.exchange(good + behind + good); strings.Count(got, "HTTP/1.1 200 ") != 3 {
		t.Errorf("three good requests got %q", got)
	}
	if got := w.exchange("GET /healthz HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") && !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("HTTP/1.0 got %q", got)
	}
	if got := w.exchange(post + "Transfer-Encoding: chunked\r\n\r\n19;ext=1\r\n" + body + "\r\n0\r\nX-Trailer: a\r\n\r\n" + behind); strings.Count(got, "HTTP/1.1 200 ") != 2 {
		t.Errorf("a chunked request and one behind it got %q", got)
	}
}

func TestHeadersHaveALimit(t *testing.T) {
	w := start(t)
	w.send("GET", "/healthz", "", "X-Big", strings.Repeat("a", 12<<10)).want(t, 200)
	w.send("GET", "/healthz", "", "X-Big", strings.Repeat("a", 17<<10)).want(t, 431, `"code":"headers_too_large"`, `16384`)
	w.send("GET", "/healthz?"+strings.Repeat("a", 17<<10), "").want(t, 431)
}

func TestRequestIDs(t *testing.T) {
	w := start(t)
	if got := w.send("GET", "/healthz", "", "X-Request-Id", "client-1").header.Get("X-Request-Id"); got != "client-1" {
		t.Errorf("echoed %q", got)
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "a\"b", "<x>", strings.Repeat("a", 129), "é"} {
		got := w.send("GET", "/healthz", "", "X-Request-Id", bad).header.Get("X-Request-Id")
		if len(got) != 22 || seen[got] {
			t.Errorf("%q became %q", bad, got)
		}
		seen[got] = true
	}
}

func TestWhatDoesNotExist(t *testing.T) {
	w := start(t)
	for _, path := range []string{"/nothing", "/v1", "/v1/topics/", "/v1/Topics", "/v1/topics/a/b/c", "/index.html", "/%00", "/../etc/passwd", "//"} {
		w.send("GET", path, "").want(t, 404, `"code":"not_found"`)
	}
	r := w.send("PUT", "/v1/topics", "").want(t, 405, `"code":"method_not_allowed"`, `PUT`)
	if got := r.header.Get("Allow"); !strings.Contains(got, "GET") || !strings.Contains(got, "POST") || strings.Contains(got, "DELETE") {
		t.Errorf("Allow is %q", got)
	}
	if got := w.send("DELETE", "/v1/topics/a/records", "").want(t, 405).header.Get("Allow"); !strings.Contains(got, "POST") {
		t.Errorf("Allow is %q", got)
	}
	if got := w.exchange("BREW /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 405") || !strings.Contains(got, "problem+json") {
		t.Errorf("a foreign method got %q", got)
	}
}

func TestAPanicIsA500AndALineInTheLog(t *testing.T) {
	w := start(t)
	w.node.answer(func(context.Context, *topic.Append) error { panic("torn: secret") })
	r := w.json("/v1/topics/a/records", `{"records":[{"value":1}]}`).want(t, 500, `"code":"internal"`)
	if strings.Contains(r.body, "secret") {
		t.Errorf("the answer shows the panic: %s", r.body)
	}
	w.node.answer(nil)
	w.json("/v1/topics/a/records", `{"records":[{"value":1}]}`).want(t, 200)
	logs := w.logs.String()
	for _, part := range []string{"a request panicked", "torn: secret", "http_test.go", r.header.Get("X-Request-Id")} {
		if !strings.Contains(logs, part) {
			t.Errorf("the log has no %q", part)
		}
	}
	w.send("GET", "/metrics", "").want(t, 200, "gateway_panics_total 1", `gateway_requests_total{class="5xx",method="POST",route="/v1/topics/:topic/records"} 1`)
}

func TestOperations(t *testing.T) {
	w := start(t)
	w.send("GET", "/healthz", "").want(t, 200, `{"status":"ok"}`)
	w.send("HEAD", "/healthz", "").want(t, 200)
	w.send("GET", "/readyz", "").want(t, 200, `{"status":"ready"}`)
	w.node.ready = errors.New("recovering orders/3")
	w.send("GET", "/readyz", "").want(t, 503, `the node is not ready`, `"retryable":true`)
	if got := w.send("GET", "/openapi.yaml", "").want(t, 200); got.body != string(contract().text) {
		t.Error("/openapi.yaml is not the contract")
	}
	w.send("GET", "/asyncapi.yaml", "").want(t, 200, "asyncapi")
	page := w.send("GET", "/", "").want(t, 200, "<title>weir")
	if got := page.header.Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") {
		t.Errorf("the page's policy is %q", got)
	}
	w.send("GET", "/start.js", "")
	for _, h := range []string{"X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Cache-Control"} {
		if page.header.Get(h) == "" {
			t.Errorf("the page has no %s", h)
		}
	}
	bare := start(t, func(_ *Config, d *Deps) { d.Web, d.Gatherer, d.Registerer, d.Logger = nil, nil, nil, nil })
	bare.send("GET", "/", "").want(t, 404)
	bare.send("GET", "/metrics", "").want(t, 200)
}

func TestAnswersArePackedWhereAsked(t *testing.T) {
	w := start(t)
	for _, c := range []struct{ accept, coding string }{
		{"", ""},
		{"gzip", "gzip"},
		{"zstd", "zstd"},
		{"gzip, zstd", "zstd"},
		{"zstd;q=0.5, gzip", "gzip"},
		{"gzip;q=0", ""},
		{"br", ""},
		{"*", "zstd"},
		{"zstd;q=0, *", "gzip"},
		{"identity", ""},
		{"gzip;q=nonsense", ""},
		{"GZIP", "gzip"},
	} {
		r := w.send("GET", "/openapi.yaml", "", "Accept-Encoding", c.accept).want(t, 200)
		if got := r.header.Get("Content-Encoding"); got != c.coding {
			t.Errorf("%q: packed as %q, want %q", c.accept, got, c.coding)
		}
		if c.coding != "" && (len(r.body) > len(contract().text)/2 || !strings.Contains(strings.Join(r.header.Values("Vary"), ","), "Accept-Encoding")) {
			t.Errorf("%q: %d bytes, %v", c.accept, len(r.body), r.header)
		}
		if c.coding == "gzip" {
			u, err := unpack([]byte("gzip"), strings.NewReader(r.body), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(u)
			if err != nil || string(plain) != string(contract().text) {
				t.Errorf("%q: unpacks to %d bytes, %v", c.accept, len(plain), err)
			}
			u.release()
		}
	}
	if got := w.send("GET", "/healthz", "", "Accept-Encoding", "gzip").header.Get("Content-Encoding"); got != "" {
		t.Errorf("a small answer is packed as %q", got)
	}
}

func TestBodiesHaveALimit(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.RequestBytes = leastRequestBytes })
	post := "POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	// By length, before a byte of the body: with an expectation there is no 100 either.
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		raw := post + expect + "Content-Length: 99999999999\r\n\r\n"
		if expect == "" {
			raw += strings.Repeat("a", 10<<10) // the engine reads the first 8 KiB before it asks
		}
		got := w.exchange(raw)
		if !strings.HasPrefix(got, "HTTP/1.1 413") || !strings.Contains(got, "request_too_large") || answers(got) != 1 {
			t.Errorf("%q: got %q", expect, got)
		}
	}
	for _, bad := range []string{"Host: evil.example\r\n", "Host: localhost\r\nOrigin: https://evil.example\r\n"} {
		got := w.exchange("POST /v1/topics/a/records HTTP/1.1\r\n" + bad + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403") || answers(got) != 1 {
			t.Errorf("%q: got %q", bad, got)
		}
	}
	body := `{"records":[{"value":1}]}`
	got := w.exchange(post + fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") {
		t.Errorf("a good expectation got %q", got)
	}
	// A client that sends it all the same, in chunks of unknown sum, sees the answer and not a reset.
	big := strings.Repeat("a", 8<<20)
	for _, reader := range []io.Reader{strings.NewReader(big), io.MultiReader(strings.NewReader(big))} {
		req, err := http.NewRequest("POST", w.url+"/v1/topics/a/records", reader)
		if err != nil {
			t.Fatal(err)
		}
		w.do(req).want(t, 413, `request_too_large`)
	}
	if held := w.server.bodies.held.Load(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

func TestSlowRequestsAreGivenUp(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.ReadTimeout = 100 * time.Millisecond })
	head := "POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
	for _, c := range []struct{ name, raw string }{
		{"in the headers", "GET /healthz HTTP/1.1\r\nHost: loc"},
		{"in a short body", head + "Content-Length: 100\r\n\r\nabc"},
		{"in a long body", head + "Content-Length: 100000\r\n\r\n" + strings.Repeat("a", 70000)},
		{"in chunks", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nab"},
	} {
		got := w.exchange(c.raw)
		if !strings.HasPrefix(got, "HTTP/1.1 408") || !strings.Contains(got, "request_timeout") {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.Connections = 3 })
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", w.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
	}
	if got := w.exchange("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, "overloaded") {
		t.Errorf("the fourth connection got %q", got)
	}
	conns[0].Close()
	until(t, func() bool {
		return strings.HasPrefix(w.exchange("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200")
	})
}

func TestOneAddressIsCappedUnlessItIsLoopback(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own string
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			own = ip.IP.String()
		}
	}
	if own == "" {
		t.Skip("this machine has no address but loopback's")
	}
	w := start(t, func(c *Config, _ *Deps) { c.AddressConnections, c.Insecure, c.Address = 2, true, "0.0.0.0:0" })
	_, port, err := net.SplitHostPort(w.addr())
	if err != nil {
		t.Fatal(err)
	}
	get := func(host string) (net.Conn, string) {
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Log(err) // it may be closed by now; the answer is there to be read
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatalf("from %s: %v", host, err)
		}
		return c, line
	}
	first, _ := get(own)
	for i, want := range []string{"HTTP/1.1 200", "HTTP/1.1 503"} {
		if _, got := get(own); !strings.HasPrefix(got, want) {
			t.Errorf("connection %d: %q, want %s", i+2, got, want)
		}
	}
	for range 4 {
		if _, got := get("127.0.0.1"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("from loopback: %q", got)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { c, got := get(own); _ = c.Close(); return strings.HasPrefix(got, "HTTP/1.1 200") })
}

func TestTheAccessLogHasNoQuery(t *testing.T) {
	w := start(t)
	w.send("GET", "/v1/topics?page_token=secret", "", "X-Request-Id", "r-7")
	until(t, func() bool { return strings.Contains(w.logs.String(), "request_id=r-7") })
	logs := w.logs.String()
	if strings.Contains(logs, "secret") {
		t.Errorf("the log has the query: %s", logs)
	}
	for _, part := range []string{"route=/v1/topics", "status=400", "peer=127.0.0.1"} {
		if !strings.Contains(logs, part) {
			t.Errorf("the log has no %s: %s", part, logs)
		}
	}
}

func TestRequestsAndTheirBytesAreCapped(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.InFlightRequests = 2 })
	release := make(chan struct{})
	w.node.answer(func(context.Context, *topic.Append) error { <-release; return nil })
	var held sync.WaitGroup
	for range 2 {
		held.Go(func() { w.json("/v1/topics/a/records", `{"records":[{"value":1}]}`) })
	}
	until(t, func() bool { return w.node.calls.Load() == 2 })
	w.json("/v1/topics/a/records", `{"records":[{"value":1}]}`).want(t, 503, `"code":"overloaded"`, `"retryable":true`)
	w.json("/v1/topics/a/partitions/0/records", `{"records":[{"value":1}]}`).want(t, 503)
	w.send("GET", "/healthz", "").want(t, 200) // whoever watches over the node still sees it
	if err := w.server.bodies.take(int(w.server.cfg.InFlightBytes)); err == nil {
		t.Error("more bytes are given than there are")
	}
	close(release)
	held.Wait()
	until(t, func() bool { return w.server.inFlight.Load() == 0 && w.server.bodies.held.Load() == 0 })
}

// A drain ends: readiness goes first, requests under way finish, no new connection is taken.
func TestADrainFinishesWhatIsUnderWay(t *testing.T) {
	w := start(t)
	began, release := make(chan struct{}), make(chan struct{})
	w.node.answer(func(_ context.Context, a *topic.Append) error { close(began); <-release; return nil })
	done := make(chan reply, 1)
	go func() { done <- w.json("/v1/topics/a/records", `{"records":[{"value":1}]}`) }()
	watcher, err := net.Dial("tcp", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	<-began
	w.stop()
	until(t, w.server.draining.Load)
	if _, err := io.WriteString(watcher, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(watcher), nil)
	if err == nil && resp.StatusCode != 503 {
		t.Errorf("/readyz says %d while draining", resp.StatusCode)
	}
	close(release)
	(<-done).want(t, 200)
	w.end()
	if c, err := net.Dial("tcp", w.addr()); err == nil {
		c.Close()
		t.Error("a new connection was taken after the end")
	}
}

// A request that does not end is cut off when the time for the drain is up.
func TestADrainHasAnEnd(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.DrainTimeout = 50 * time.Millisecond })
	began := make(chan struct{})
	w.node.answer(func(ctx context.Context, _ *topic.Append) error { close(began); <-ctx.Done(); return ctx.Err() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := w.client.Post(w.url+"/v1/topics/a/records", "text/plain", strings.NewReader("x"))
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-began
	w.end()
	<-done
}

// A client that reads nothing is given up, and holds nothing but its connection until then.
func TestAClientThatReadsNothingIsGivenUp(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) { c.WriteTimeout = 100 * time.Millisecond; c.SendBufferBytes = 4 << 10 })
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n", 50)
	go func() {
		for {
			if _, err := io.WriteString(c, request); err != nil {
				return
			}
		}
	}()
	until(t, func() bool { return strings.Contains(w.send("GET", "/metrics", "").body, "gateway_connections 2") })
	until(t, func() bool { return strings.Contains(w.send("GET", "/metrics", "").body, "gateway_connections 1") })
}
