package gateway

import (
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	c := Config{
		Address: "nowhere", Names: []string{"good.example", "a b", "x:80"}, Origins: []string{"https://ok.example:8443", "ok.example", "https://a.example/"},
		TrustedProxies: []string{"10.0.0.0/8", "::1", "proxy"},
	}
	err := c.Validate()
	if !fault.Is(err, fault.Validation) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{
		`http.address: "nowhere"`, `http.names: "a b"`, `http.names: "x:80"`, `http.origins: "ok.example"`, `http.origins: "https://a.example/"`,
		`http.trusted_proxies: "proxy"`, "http.request_bytes: 0", "http.request_records", "http.header_bytes", "http.read_timeout", "http.idle_timeout",
		"http.stream_idle", "http.write_timeout", "produce.timeout", "http.drain_timeout", "http.connections", "http.address_connections",
		"http.in_flight_bytes", "http.in_flight_requests", "http.send_buffer_bytes",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %s in\n%v", part, err)
		}
	}
	for _, good := range []string{"good.example", "https://ok.example:8443", "10.0.0.0/8", "::1"} {
		if strings.Contains(err.Error(), `"`+good+`"`) {
			t.Errorf("%s is reported as a mistake", good)
		}
	}
}

// Without somebody who asks, only this machine is let in, unless the operator says otherwise in so many words.
func TestOthersAreLetInOnlyOnDemand(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:8080": true, "127.5.5.5:0": true, "[::1]:8080": true, "localhost:8080": true, "LOCALHOST:1": true, "[::ffff:127.0.0.1]:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "weir.example.com:8080": false, "localhost.example.com:80": false,
	} {
		for _, insecure := range []bool{false, true} {
			c := DefaultConfig()
			c.Address, c.Insecure = address, insecure
			err := c.Validate()
			if (err == nil) != (loopback || insecure) {
				t.Errorf("%s, insecure %v: %v", address, insecure, err)
			}
			if err != nil && !strings.Contains(err.Error(), "--insecure") {
				t.Errorf("%s: the error does not say what to do: %v", address, err)
			}
		}
	}
	for _, bad := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "[::1", ""} {
		c := DefaultConfig()
		c.Address = bad
		if c.Validate() == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

func TestAServerNeedsWhatItNeeds(t *testing.T) {
	if _, err := New(Config{}, Deps{}); !fault.Is(err, fault.Validation) {
		t.Errorf("without a config: %v", err)
	}
	if _, err := New(DefaultConfig(), Deps{}); err == nil {
		t.Error("a server without a node was made")
	}
}
