package gateway

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Which host and origin may do what, as a table. Port 1 stands for the server's own address.
func TestForeignPagesAndReboundNamesReachNothing(t *testing.T) {
	w := start(t, func(c *Config, _ *Deps) {
		c.Names = []string{"weir.example.com"}
		c.Origins = []string{"https://app.example.com"}
	})
	self := w.addr()
	_, port, err := net.SplitHostPort(self)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, origin string
		ok           bool
	}{
		{self, "", true},
		{"localhost:" + port, "", true},
		{"LOCALHOST", "", true},
		{"app.localhost:1", "", true},
		{"localhost.", "", true},
		{"10.1.2.3", "", true},
		{"[::1]:80", "", true},
		{"[fe80::1]", "", true},
		{own, "", true},
		{strings.ToUpper(own) + ":80", "", true},
		{"weir.example.com", "", true},
		{"WEIR.example.com:443", "", true},
		{"weir.example.com.", "", true},
		{"evil.example", "", false},
		{"evil.example:" + port, "", false},
		{"127.0.0.1.evil.example", "", false},
		{"localhost.evil.example", "", false},
		{"weir.example.com.evil.example", "", false},
		{"xlocalhost", "", false},
		{"127.0.0.1@evil.example", "", false},
		{"[::1", "", false},
		{"0x7f000001", "", false},

		{self, "http://localhost:3000", true},
		{self, "https://localhost", true},
		{self, "http://127.0.0.1:3000", true},
		{self, "http://127.9.9.9", true},
		{self, "http://[::1]:8080", true},
		{self, "http://app.localhost", true},
		{self, "http://" + self, true},
		{self, "HTTPS://APP.example.com", true},
		{"weir.example.com:8080", "http://weir.example.com:8080", true},
		{"10.1.2.3:80", "http://10.1.2.3:80", true},
		{self, "https://evil.example", false},
		{self, "null", false},
		{self, "https://app.example.com.evil.example", false},
		{self, "http://app.example.com", false},
		{self, "https://app.example.com:444", false},
		{self, "http://localhost.evil.example", false},
		{self, "http://127.0.0.1.evil.example", false},
		{self, "file://localhost", false},
		{self, "http://user@localhost", false},
		{self, "chrome-extension://abcdef", false},
		{self, "http://10.1.2.3", false},
		{"evil.example", "http://evil.example", false},
		{"weir.example.com:8080", "http://weir.example.com:9090", false},
		{self, "http://", false},
		{self, "%%%", false},
	} {
		t.Run(c.host+" "+c.origin, func(t *testing.T) {
			w.t = t
			for _, r := range []struct{ method, path, body string }{
				{"GET", "/v1/topics", ""},
				{"POST", "/v1/topics/a/records", "x"},
				{"DELETE", "/v1/topics/none", ""},
				{"GET", "/v1/ws", ""},
				{"GET", "/v1/topics/none/events", ""},
				{"GET", "/metrics", ""},
				{"GET", "/", ""},
				{"GET", "/nothing", ""},
			} {
				headers := []string{"Host", c.host}
				if c.origin != "" {
					headers = append(headers, "Origin", c.origin)
				}
				before := w.node.calls.Load()
				got := w.send(r.method, r.path, r.body, headers...)
				refused := got.status == 403 || got.status == 400
				if refused == c.ok {
					t.Fatalf("%s %s: status %d: %s", r.method, r.path, got.status, got.body)
				}
				if refused && w.node.calls.Load() != before {
					t.Fatal("the node was asked")
				}
				allowed := got.header.Get("Access-Control-Allow-Origin")
				if want := map[bool]string{true: c.origin}[c.ok]; allowed != want {
					t.Errorf("%s %s: Access-Control-Allow-Origin is %q, want %q", r.method, r.path, allowed, want)
				}
			}
		})
	}
}

func TestCORS(t *testing.T) {
	w := start(t)
	pre := w.send("OPTIONS", "/v1/topics/a/records", "", "Origin", "http://localhost:3000", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type,idempotency-key,record-header-trace", "Access-Control-Request-Private-Network", "true").want(t, 204)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "http://localhost:3000", "Access-Control-Allow-Headers": "content-type,idempotency-key,record-header-trace",
		"Access-Control-Allow-Private-Network": "true", "Access-Control-Max-Age": "600", "Vary": "Origin",
	} {
		if got := pre.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := pre.header.Get("Access-Control-Allow-Methods"); !strings.Contains(got, "PATCH") {
		t.Errorf("methods: %q", got)
	}
	w.send("OPTIONS", "/v1/topics", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST").want(t, 403)
	w.send("OPTIONS", "/v1/topics", "").want(t, 405) // no preflight
	for _, path := range []string{"/v1/topics", "/v1/topics/none", "/nothing", "/v1/topics?page_size=0"} {
		r := w.send("GET", path, "", "Origin", "http://localhost:3000")
		if r.header.Get("Access-Control-Allow-Origin") != "http://localhost:3000" || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "X-Request-Id") {
			t.Errorf("%s, status %d: %v", path, r.status, r.header)
		}
	}
	if got := w.send("GET", "/v1/topics", "").header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("without an origin: %q", got)
	}
}

func TestTheClientsAddressComesFromTrustedProxiesAlone(t *testing.T) {
	g, err := newGuard(Config{TrustedProxies: []string{"10.0.0.0/8", "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1", "198.51.100.7", "192.0.2.1"},
		{"127.0.0.1", "198.51.100.7", "198.51.100.7"},
		{"127.0.0.1", "1.1.1.1, 198.51.100.7, 10.2.3.4", "198.51.100.7"},
		{"127.0.0.1", "nonsense", "127.0.0.1"},
		{"127.0.0.1", "", "127.0.0.1"},
		{"10.0.0.1", "10.0.0.2,10.0.0.3", "10.0.0.2"},
		{"127.0.0.1", "::ffff:192.0.2.9", "192.0.2.9"},
	} {
		if got := g.clientAddr(netip.MustParseAddr(c.peer), []byte(c.forwarded)); got.String() != c.want {
			t.Errorf("%s with %q is %v, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}
