package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// templates are requests that a fuzzer changes.
var templates = []string{
	post("/v1/topics/a/records", typeJSON, `{"records":[{"key":"k","value":{"total":12.50},"headers":[{"name":"a","value":"b"}],"partition":0,"timestamp":1}]}`),
	post("/v1/topics/a/records?acks=all&timeout_ms=100", typeJSON, `{"records":[{"value":"AAEC","value_encoding":"base64"},{"value":null}]}`),
	post("/v1/topics/a/partitions/0/records", typeJSON, `{"records":[{"value":1}]}`),
	post("/v1/topics/a/records", typeNDJSON, "{\"value\":1}\n{\"value\":[2]}\r\n\n{\"key\":\"x\",\"value\":\"y\"}"),
	post("/v1/topics/a/records?receipts=record", typeNDJSON, "{\"value\":1}\n{\"value\":2}\n"),
	post("/v1/topics/a/records?key=a&partition=0", "text/plain", "hello"),
	post("/v1/topics/a/records", structuredMediaType, `{"specversion":"1.0","id":"1","source":"/a","type":"t","ext":1,"data":{"a":[1,2]}}`),
	post("/v1/topics/a/records", "application/cloudevents-batch+json", `[{"specversion":"1.0","id":"1","source":"/a","type":"t"}]`),
	post("/v1/topics", typeJSON, `{"name":"b","partitions":2,"settings":{"retention.ms":"1000"}}`),
	post("/v1/topics/a/delete-records", typeJSON, `{"partitions":[{"partition":0,"before_offset":0}]}`),
	"POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n{\"records\":[{\"value\":1}]}  \r\n0\r\n\r\n",
	"POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
	"POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nce-specversion: 1.0\r\nce-id: %41\r\nce-source: a\r\nce-type: t\r\nContent-Length: 1\r\n\r\nx",
	"PATCH /v1/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n{\"settings\":{\"retention.ms\":null}}",
	"GET /v1/topics?page_size=10&page_token=YQ HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip;q=0.5, zstd\r\n\r\n",
	"GET /v1/topics/a/partitions/0/records?offset=0&max_records=10&wait_ms=0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics/a/records?from=earliest&wait_ms=0&value_format=string HTTP/1.1\r\nHost: localhost\r\nWeir-Cursor: c1.AAAA\r\n\r\n",
	"GET /v1/topics/a/offsets?at=ts:1000 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\nX-Request-Id: abc\r\n\r\n",
	"OPTIONS /v1/topics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n",
	post("/v1/groups/g/members/m/poll", typeJSON, `{"topics":["a"],"wait_ms":0,"start":"earliest"}`),
	post("/v1/groups/g/members/-/poll", typeJSON, `{"topic_pattern":"a.*","wait_ms":0,"max_bytes":1,"auto_ack":true}`),
	post("/v1/groups/g/members/m/commit", typeJSON, `{"epoch":1,"offsets":[{"topic":"a","partition":0,"next_offset":0,"metadata":"x"}]}`),
	post("/v1/groups/g/seek", typeJSON, `{"topics":["a"],"to":"ts:1000"}`),
	"DELETE /v1/groups/g/members/m?ack=g1.AAAA&epoch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"DELETE /v1/topics/c HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n",
}

func post(path, contentType, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, contentType, len(body), body)
}

var spice = []string{
	"\r\n", "\n", "\r\n\r\n", "\x00", "\xff", "%00", "%2e%2e/", "..", "{", "}", "[", "]", "\"", "\\u0000", "\\ud800", "null", "-1", "9223372036854775808",
	"1e999", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "Host: evil\r\n", "Content-Encoding: zstd\r\n",
	"HTTP/1.0", "HTTP/9.9", " ", "\t", ":", ";", ",", "&acks=none", "?raw=true", "é", "😀", strings.Repeat("[", 300), strings.Repeat("a", 3000),
}

// mutate changes a template in a few places.
func mutate(r *rand.Rand) string {
	b := []byte(templates[r.IntN(len(templates))])
	for range r.IntN(5) {
		at := r.IntN(len(b) + 1)
		switch r.IntN(6) {
		case 0:
			if at < len(b) {
				b[at] ^= byte(1 << r.IntN(8))
			}
		case 1:
			b = b[:at]
		case 2, 3:
			b = append(b[:at:at], append([]byte(spice[r.IntN(len(spice))]), b[at:]...)...)
		case 4:
			end := at + r.IntN(len(b)-at+1)
			b = append(b[:at:at], b[end:]...)
		case 5:
			end := at + r.IntN(len(b)-at+1)
			b = append(b[:end:end], b[at:]...)
		}
	}
	return string(b)
}

var statusCode = regexp.MustCompile(`HTTP/1\.1 (\d{3}) [A-Z]`)

// try sends raw bytes, closes its side, and checks that what comes back is HTTP and no failure.
func try(addr, raw string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, raw) // the server may have closed already: what it answered counts
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // streams do not end by themselves
	got, _ := io.ReadAll(io.LimitReader(c, 1<<20))
	if len(got) > 0 && !strings.HasPrefix(string(got), "HTTP/1.1 ") {
		return fmt.Errorf("not HTTP: %.200q", got)
	}
	for _, m := range statusCode.FindAllSubmatch(got, -1) {
		if code, _ := strconv.Atoi(string(m[1])); code >= 500 {
			return fmt.Errorf("status %d: %.500q", code, got)
		}
	}
	return nil
}

// Malformed input is answered with 4xx, and leaves goroutines, descriptors and memory as they were. The
// long form is for make soak.
func TestFuzzedRequestsLeaveNothingBehind(t *testing.T) {
	n := 400
	if os.Getenv("WEIR_SOAK") != "" {
		n = 10_000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := start(t, func(c *Config, d *Deps) {
		c.ReadTimeout = 200 * time.Millisecond
		c.StreamIdle = 200 * time.Millisecond
		d.Logger = nil
	})
	if _, err := w.node.create(topic.Creation{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	round := func(from, to int) {
		var workers sync.WaitGroup
		next := make(chan int)
		for range 8 {
			workers.Go(func() {
				for i := range next {
					raw := mutate(rand.New(rand.NewPCG(seed, uint64(i))))
					if err := try(w.addr(), raw); err != nil {
						t.Errorf("input %d: %v\n%q", i, err, raw)
					}
				}
			})
		}
		for i := from; i < to; i++ {
			next <- i
		}
		close(next)
		workers.Wait()
	}
	round(0, 100) // pools and worker goroutines reach their size
	quiet := func() (goroutines, files int, heap uint64) {
		until(t, func() bool {
			return w.server.inFlight.Load() == 0 && w.server.bodies.held.Load() == 0 && w.server.pages.held.Load() == 0 && w.server.deps.Hub.Live() == 0
		})
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // empties the pools
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), openFiles(t), m.HeapAlloc
	}
	goroutines, files, heap := quiet()
	round(100, n)
	until(t, func() bool {
		g, f, h := quiet()
		// The engine keeps a goroutine for a while for each connection that it had at one time.
		return g <= goroutines+8 && f <= files+8 && h < heap+(32<<20)
	})
	w.send("GET", "/healthz", "").want(t, 200)
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		if os.IsNotExist(err) {
			return 0
		}
		t.Fatal(err)
	}
	return len(entries)
}

func FuzzRequest(f *testing.F) {
	for _, raw := range templates {
		f.Add([]byte(raw))
	}
	w := start(f, func(c *Config, d *Deps) {
		c.ReadTimeout = 50 * time.Millisecond
		c.StreamIdle = 50 * time.Millisecond
		d.Logger = nil
	})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := try(w.addr(), string(raw)); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzEvents: whatever the body, events are refused with a kind that is the caller's, or their values are
// pieces of it.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/a","type":"t","ext":1,"data":{"a":[1,2]}}`), false)
	f.Add([]byte(`[{"specversion":"1.0","id":"1","source":"/a","type":"t","data_base64":"AA=="}, {}]`), true)
	s := &Server{}
	f.Fuzz(func(t *testing.T, text []byte, batched bool) {
		k := call{body: body{buffer: &buffer{b: text}, s: s}}
		var err error
		if batched {
			err = k.readEvents(10)
		} else if err = validJSON(text); err == nil {
			err = k.structured(k.one(), text, nil, "")
		}
		if err != nil {
			switch kind := fault.KindOf(err); kind {
			case fault.InvalidJSON, fault.Validation, fault.RequestTooLarge:
			default:
				t.Fatalf("kind %v: %v", kind, err)
			}
			return
		}
		for _, r := range k.a.Records {
			if !recordjson.Valid(r.Value) || !strings.Contains(string(text), string(r.Value)) || len(r.Headers) < 5 {
				t.Fatalf("%q became %q with %v", text, r.Value, r.Headers)
			}
		}
	})
}
