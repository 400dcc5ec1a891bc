package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMalformedInputLeavesNothingBehind sends requests and frames that are nearly right. Each is answered
// with a status that is no 5xx and, from 400 on, a sentence, or its connection is closed; afterwards the node
// has the goroutines, descriptors and memory of before, and serves.
func TestMalformedInputLeavesNothingBehind(t *testing.T) {
	inputs := 1000
	switch {
	case soak():
		inputs = 10_000
	case raceEnabled:
		inputs = 300 // each takes many times as long
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d inputs", seed, inputs)
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--set", "http.read_timeout=300ms", "--log-level", "warn")
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"t","partitions":2}`, nil, "Content-Type", "application/json")
	must(t, http.MethodPost, n.base+"/v1/topics/t/records", "x", nil)
	abuse(t, n, seed, 200) // so that pools and buffers have the size that they keep
	goroutines, descriptors, memory := settled(t, n, 0, 0)

	statuses := abuse(t, n, seed+1, inputs)
	t.Logf("answers by status, 0 for a closed connection: %v", statuses)
	for status, count := range statuses {
		if status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusHTTPVersionNotSupported && status != http.StatusNotImplemented {
			t.Errorf("status %d was answered %d times", status, count)
		}
	}
	after, open, resident := settled(t, n, goroutines+10, descriptors+5)
	if after > goroutines+10 || open > descriptors+5 {
		t.Errorf("goroutines were %v and are %v, descriptors %v and %v", goroutines, after, descriptors, open)
	}
	if grown := resident - memory; grown > 64<<20 && !raceEnabled {
		t.Errorf("the node grew by %d MiB", grown>>20)
	}
	if panics := metric(t, n, "gateway_panics_total"); panics != 0 {
		t.Errorf("%v requests ended in a panic: %s", panics, n.stderr)
	}
	must(t, http.MethodPost, n.base+"/v1/topics/t/records", "still here", nil)
	if strings.Contains(n.stderr.String(), "level=ERROR") {
		t.Errorf("the log has errors: %s", n.stderr)
	}
}

// settled waits until the counts are at or below what is meant, for half a minute without a fall, and
// returns them. Where nothing is meant it waits for as long as they fall.
func settled(t *testing.T, n *node, goroutines, descriptors float64) (g, d float64, memory int64) {
	t.Helper()
	lowest, patience := 1e9, 300
	if goroutines == 0 {
		patience = 20
	}
	for calm := 0; calm < patience; time.Sleep(100 * time.Millisecond) {
		httpc.CloseIdleConnections()
		g, d = metric(t, n, "go_goroutines"), metric(t, n, "process_open_fds")
		if g <= goroutines && d <= descriptors {
			break
		}
		if calm++; g+d < lowest {
			lowest, calm = g+d, 0
		}
	}
	return g, d, residentBytes(t, n)
}

// abuse sends inputs from several connections at once and counts the answers.
func abuse(t *testing.T, n *node, seed uint64, inputs int) map[int]int {
	t.Helper()
	host := strings.TrimPrefix(n.base, "http://")
	var (
		mu       sync.Mutex
		wg       sync.WaitGroup
		next     atomic.Int64
		statuses = map[int]int{}
	)
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(inputs); i = next.Add(1) {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				input := malformed(rng, host)
				status, err := throw(host, input)
				mu.Lock()
				statuses[status]++
				mu.Unlock()
				if err != nil {
					t.Errorf("input %d: %v\n%.400q", i, err, input)
				}
			}
		})
	}
	wg.Wait()
	return statuses
}

// throw sends bytes on a connection of their own and judges the answer. Status 0 is a closed connection.
func throw(host string, input []byte) (status int, err error) {
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return 0, err
	}
	_, _ = conn.Write(input) // an error means that the node has closed it already, which the read tells
	answer := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answer, nil)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("there was no answer and no end: %w", err)
		}
		return 0, nil
	}
	// The body is not closed, since that would read it to its end; the connection is.
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The frames behind the handshake are judged by how the connection ends.
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, answer)
		return resp.StatusCode, nil
	}
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp.StatusCode, nil // harmless after all, and it would go on for ever
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode < 400 {
		return resp.StatusCode, nil
	}
	var problem struct{ Detail, Code string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" || problem.Code == "" {
		return resp.StatusCode, fmt.Errorf("status %d without a sentence: %.200q", resp.StatusCode, body)
	}
	return resp.StatusCode, nil
}

// malformed makes a request that is nearly right.
func malformed(rng *rand.Rand, host string) []byte {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	switch rng.IntN(6) {
	case 0: // a body
		body := body(rng)
		return request("POST", "/v1/topics/"+pick("t", "u", "t/records", "..", "%2e%2e", strings.Repeat("n", 300), "__x", "ä", "t%00")+pick("/records", "", "/records?acks=most", "/records?timeout_ms=-1"), host,
			body, "Content-Type: "+pick("application/json", "application/x-ndjson", "application/cloudevents+json", "text/plain", "application/json; charset=latin-1", ";"),
			pick("", "Content-Encoding: gzip", "Content-Encoding: zstd", "Content-Encoding: br", "Idempotency-Key: "+strings.Repeat("k", rng.IntN(400)), "If-Last-Offset: x"))
	case 1: // a query
		query := pick("offset=-0", "offset=99999999999999999999", "offset=ts:x", "offset=1e9", "max_records=0", "max_bytes=-1", "wait_ms=99999999", "value_format=xml",
			"cursor=c1."+string(noise(rng, 30)), "cursor=c9.AAAA", "from=%zz", "from=%ff", "partitions=1,,2", "at="+string(noise(rng, 10)), "page_token=!", "min_bytes=x&min_bytes=y", "follow=perhaps")
		return request("GET", "/v1/topics/"+pick("t/partitions/0/records", "t/partitions/-1/records", "t/partitions/9999999999/records", "t/records", "t/offsets", "t/events", "t/ws", "nope/records")+"?wait_ms=0&"+query, host, nil)
	case 2: // bits of a sound request turned, or cut
		sound := request("POST", "/v1/topics/t/records", host, []byte(`{"records":[{"key":"k","value":{"n":1},"headers":{"h":"v"}}]}`), "Content-Type: application/json")
		for range 1 + rng.IntN(4) {
			sound[rng.IntN(len(sound))] ^= 1 << rng.IntN(8)
		}
		return sound[:1+rng.IntN(len(sound))]
	case 3: // the head of a request
		return []byte(pick("GET", "POST", "BREW", "G\x00T", strings.Repeat("M", 40)) + " " + pick("/v1/topics", "http://x/", "*", "", strings.Repeat("/a", 9000)) + " " + pick("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "") + pick("\r\n", "\n") +
			pick("Host: "+host, "Host: evil.example", "Host: "+host+"\r\nHost: "+host, "Host : x", "") + "\r\n" +
			pick("", "Content-Length: -5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "Transfer-Encoding: nonsense\r\n", "Origin: http://evil.example\r\n", "X: "+strings.Repeat("x", 70_000)+"\r\n", " folded\r\n") + "\r\n" + pick("", "0\r\n\r\n", "zz\r\n"))
	case 4: // frames
		handshake := "GET " + pick("/v1/ws", "/v1/topics/t/ws") + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
		input := []byte(handshake)
		for range 1 + rng.IntN(5) {
			input = append(input, wsInput(rng)...)
		}
		return input
	default: // noise
		return noise(rng, 1+rng.IntN(2000))
	}
}

func request(method, target, host string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, target, host)
	for _, h := range headers {
		if h != "" {
			b.WriteString(h + "\r\n")
		}
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// body is something that is not a body of records.
func body(rng *rand.Rand) []byte {
	switch rng.IntN(8) {
	case 0:
		return bytes.Repeat([]byte("["), 100_000)
	case 1:
		return []byte(`{"records":[{"value":` + strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat(`}`, 5000) + `}]}`)
	case 2:
		return []byte(`{"records":[{"value":1,"value":2,"key":1}],"records":[]}`)
	case 3:
		return []byte("{\"records\":[{\"value\":\"\xff\xfe\",\"key\":\"\xc3\"}]}")
	case 4:
		return bomb()
	case 5:
		return []byte(`{"records":[{"value":1,"partition":99999999999,"timestamp":-1,"headers":[{"nam":1}]}]}`)
	case 6:
		return []byte("{\"value\":1}\n{\"value\"\n\n{}\n" + strings.Repeat("x", rng.IntN(100_000)))
	default:
		return noise(rng, rng.IntN(5000))
	}
}

// bomb is 64 MiB of zeros in a few bytes.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 64<<20)) // into memory, which cannot fail
	_ = w.Close()
	return b.Bytes()
})

// wsInput is a frame, or what looks like one. A client's frames are masked.
func wsInput(rng *rand.Rand) []byte {
	texts := []string{
		`{"op":"subscribe"}`, `{"op":"subscribe","sub":"a","topic":"nope"}`, `{"op":"subscribe","sub":"a","topic":"t","from":{"cursor":"c1.x"}}`,
		`{"op":"credit","sub":"b","records":-1}`, `{"op":"nonsense","id":{}}`, `[]`, `{`, "\xff\xfe", `{"op":"produce","id":1,"topic":"t","records":"x"}`,
		`{"op":"produce","id":2,"topic":"t","records":[{"value":` + strings.Repeat("[", 3000) + `}]}`, `{"op":"seek","sub":"a","to":17}`, `{"op":"ping"}`, "",
	}
	payload := []byte(texts[rng.IntN(len(texts))])
	head := []byte{0x81, 0x80 | byte(min(len(payload), 126))}
	if len(payload) >= 126 {
		head = binary.BigEndian.AppendUint16(head, uint16(len(payload)))
	}
	frame := append(append(head, 0, 0, 0, 0), payload...) // a mask of zeros
	switch rng.IntN(5) {
	case 0:
		frame[0] = byte(rng.Uint32()) // any opcode, reserved bits
	case 1:
		frame[1] &= 0x7f // not masked
	case 2:
		frame = append([]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, frame...) // a length of 2^63-1
	case 3:
		frame = frame[:1+rng.IntN(len(frame))]
	}
	return frame
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
