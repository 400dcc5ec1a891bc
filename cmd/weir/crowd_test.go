package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// residentBytes is the memory that a node's process holds.
func residentBytes(t *testing.T, n *node) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Skipf("this system does not say how much memory a process has: %v", err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmRSS in %s", status)
	return 0
}

// TestAnIdleNodeIsSmall: 1,000 partitions with records in each, after a restart and before.
func TestAnIdleNodeIsSmall(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("the race detector multiplies memory")
	}
	const partitions, most = 1000, 150 << 20
	data := filepath.Join(t.TempDir(), "data")
	n := serve(t, "--data", data)
	must(t, http.MethodPost, n.base+"/v1/topics", fmt.Sprintf(`{"name":"wide","partitions":%d}`, partitions), nil, "Content-Type", "application/json")
	var records []string
	for p := range partitions {
		records = append(records, fmt.Sprintf(`{"partition":%d,"value":%d}`, p, p))
	}
	must(t, http.MethodPost, n.base+"/v1/topics/wide/records?timeout_ms=60000", `{"records":[`+strings.Join(records, ",")+`]}`, nil, "Content-Type", "application/json")
	if rss := residentBytes(t, n); rss > most {
		t.Errorf("with %d partitions just written the node has %d MiB, at most %d are meant", partitions, rss>>20, most>>20)
	}
	if err := n.stop(t); err != nil {
		t.Fatal(err)
	}
	n = serve(t, "--data", data)
	rss := residentBytes(t, n)
	t.Logf("idle with %d partitions: %d MiB", partitions, rss>>20)
	if rss > most {
		t.Errorf("idle with %d partitions the node has %d MiB, at most %d are meant", partitions, rss>>20, most>>20)
	}
	if got := readAll(t, n.base, "wide", partitions-1); len(got) != 1 || got[0].Value != strconv.Itoa(partitions-1) {
		t.Errorf("the last partition has %v", got)
	}
}

// TestIdleSubscribersAreSmall: half of them WebSockets, half SSE, each sees one record at the end.
func TestIdleSubscribersAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies memory")
	}
	subscribers := 1000
	if soak() {
		subscribers = 5000
	}
	most := int64(subscribers) * (200 << 20) / 5000
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"t"}`, nil, "Content-Type", "application/json")
	before := residentBytes(t, n)

	crowd := gather(t, n.base, subscribers)
	awaitMetric(t, n, "gateway_connections", float64(subscribers))
	grown := residentBytes(t, n) - before
	t.Logf("%d idle subscribers: %d MiB, %d KiB each", subscribers, grown>>20, grown/int64(subscribers)>>10)
	if grown > most {
		t.Errorf("%d idle subscribers take %d MiB, at most %d are meant", subscribers, grown>>20, most>>20)
	}
	must(t, http.MethodPost, n.base+"/v1/topics/t/records", "the one record", nil)
	crowd.await(t)
}

// crowd is many subscribers.
type crowd struct {
	wg     sync.WaitGroup
	served atomic.Int64
	want   int64
}

// gather opens subscribers with plain sockets, a goroutine each. A socket that meets the record counts.
func gather(t *testing.T, base string, subscribers int) *crowd {
	t.Helper()
	c := &crowd{want: int64(subscribers)}
	host := strings.TrimPrefix(base, "http://")
	for i := range subscribers {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		request := "GET /v1/topics/t/events?from=latest HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		begun := "event: ready"
		if i%2 == 0 {
			request = "GET /v1/topics/t/ws?from=latest HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: weir.v1.json\r\n\r\n"
			begun = `"op":"ok"`
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		begin := readUntil(conn, begun)
		if begin != nil {
			t.Fatalf("subscriber %d: %v", i, begin)
		}
		c.wg.Go(func() {
			if readUntil(conn, "the one record") == nil {
				c.served.Add(1)
			}
		})
	}
	return c
}

// readUntil reads a socket up to a text.
func readUntil(conn net.Conn, text string) error {
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	var got []byte
	buf := make([]byte, 2048)
	for {
		k, err := conn.Read(buf)
		got = append(got, buf[:k]...)
		if bytes.Contains(got, []byte(text)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w after %.300q", err, got)
		}
		if len(got) > 64<<10 {
			got = got[len(got)-len(text):]
		}
	}
}

func (c *crowd) await(t *testing.T) {
	t.Helper()
	c.wg.Wait()
	if got := c.served.Load(); got != c.want {
		t.Errorf("%d of %d subscribers saw the record", got, c.want)
	}
}

// TestASlowReaderCostsItsWindow: subscribers that stop reading hold back nobody, cost the node little,
// and go on without loss when they read again.
func TestASlowReaderCostsItsWindow(t *testing.T) {
	const (
		records = 3000
		size    = 10 << 10 // 30 MB in all, more than the sockets between take
	)
	// On a slow machine it takes a while until the slow readers go on, and they are not to be cut meanwhile.
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--set", "sessions.write_timeout=10m")
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"t"}`, nil, "Content-Type", "application/json")
	var slow []*websocket.Conn
	for range 20 {
		conn := dial(t, n.base)
		send(t, conn, `{"id":1,"op":"subscribe","sub":"a","topic":"t","from":"earliest"}`)
		slow = append(slow, conn) // and nobody reads
	}
	sse := follow(t, n.base+"/v1/topics/t/events?from=earliest&data=value")
	runtime.GC()
	before := residentBytes(t, n)

	quick := dial(t, n.base)
	send(t, quick, `{"id":1,"op":"subscribe","sub":"a","topic":"t","from":"earliest"}`)
	value := strings.Repeat("v", size)
	for range records / 100 {
		body := `{"records":[` + strings.TrimSuffix(strings.Repeat(`{"value":"`+value+`","value_encoding":"string"},`, 100), ",") + `]}`
		must(t, http.MethodPost, n.base+"/v1/topics/t/records", body, nil, "Content-Type", "application/json")
	}
	if got := count(t, quick, records); got != records {
		t.Errorf("the quick reader got %d records", got)
	}
	grown := residentBytes(t, n) - before
	t.Logf("21 readers that do not read: %d MiB more for a log of %d MiB", grown>>20, records*size>>20)
	if most := int64(200 << 20); grown > most && !raceEnabled { // 21 times the log would be 600 MiB
		t.Errorf("the node grew by %d MiB", grown>>20)
	}
	for i, conn := range slow[:3] {
		if got := count(t, conn, records); got != records {
			t.Errorf("slow reader %d got %d records", i, got)
		}
	}
	for i := range records {
		if got := sse.until(t, "data: v"); len(got) != size-1 {
			t.Fatalf("record %d over SSE has %d bytes", i, len(got)+1)
		}
	}
}

// count reads records that are in order, up to a number.
func count(t *testing.T, conn *websocket.Conn, most int) int {
	t.Helper()
	got := 0
	for got < most {
		for _, raw := range frame(t, conn).Records {
			if want := fmt.Sprintf(`"offset":%d,`, got); !strings.Contains(string(raw[:100]), want) {
				t.Fatalf("record %d is %.100s", got, raw)
			}
			got++
		}
	}
	return got
}
