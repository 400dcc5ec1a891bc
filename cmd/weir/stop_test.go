package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// TestAStopTellsEveryone: polls return, streams end with their cursor, WebSockets get their notice, and
// the process ends with 0, all of it well within the drain's limit.
func TestAStopTellsEveryone(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	n := serve(t, "--data", data)
	must(t, http.MethodPost, n.base+"/v1/topics/t/records", "one", nil)

	ndjson := follow(t, n.base+"/v1/topics/t/records?from=earliest&follow=true", "Accept", "application/x-ndjson")
	if line := ndjson.next(); !strings.Contains(line, `"offset":0`) {
		t.Fatalf("the stream began with %s", line)
	}
	sse := follow(t, n.base+"/v1/topics/t/events?from=earliest")
	sse.until(t, `data: {"topic":"t"`)
	conn := dial(t, n.base)
	send(t, conn, `{"id":1,"op":"subscribe","sub":"a","topic":"t","from":"latest"}`)
	if f := frame(t, conn); f.Op != "ok" {
		t.Fatalf("got %+v", f)
	}
	polled := make(chan error, 1)
	go func() {
		a, err := ask(t.Context(), http.MethodGet, n.base+"/v1/topics/t/partitions/0/records?offset=1&wait_ms=25000", "")
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.status, a.body)
		}
		polled <- err
	}()
	awaitMetric(t, n, "gateway_connections", 5) // two streams, the WebSocket, the poll, and this look itself

	started := time.Now()
	if err := n.stop(t); err != nil {
		t.Fatalf("the node ended with %v: %s", err, n.stderr)
	}
	if took := time.Since(started); took > 15*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if err := <-polled; err != nil {
		t.Errorf("the waiting poll got %v", err)
	}
	last := ""
	for line := ndjson.next(); line != ""; line = ndjson.next() {
		last = line
	}
	if !strings.HasPrefix(last, `{"error":{`) || !strings.Contains(last, `"code":"stopping"`) || !strings.Contains(last, `"cursor":"c1.`) {
		t.Errorf("the NDJSON stream ended with %q", last)
	}
	for sse.next() != "" {
	}
	if err := sse.lines.Err(); err != nil {
		t.Errorf("the SSE stream ended with %v", err)
	}
	checkClosing(t, conn)
}

// checkClosing reads the goodbye of a WebSocket.
func checkClosing(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	for {
		_, content, err := conn.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed) && closed.Code == 4001:
			t.Error("it was closed without a notice")
			return
		case err != nil:
			t.Errorf("the WebSocket ended with %v", err)
			return
		}
		var f wsFrame
		if err := json.Unmarshal(content, &f); err != nil {
			t.Error(err)
		}
		if f.Op == "closing" && f.Code == 4001 {
			break
		}
	}
	_, _, err := conn.ReadMessage()
	if !websocket.IsCloseError(err, 4001) {
		t.Errorf("after the notice came %v", err)
	}
}

// awaitMetric polls /metrics until a number is at least what is wanted.
func awaitMetric(t *testing.T, n *node, name string, least float64) {
	t.Helper()
	var last float64
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if last = metric(t, n, name); last >= least {
			return
		}
	}
	t.Fatalf("%s is %v, want %v", name, last, least)
}

// metric sums the values of a metric, over all of its labels.
func metric(t *testing.T, n *node, name string) float64 {
	t.Helper()
	a := must(t, http.MethodGet, n.base+"/metrics", "", nil)
	sum, found := 0.0, false
	for line := range strings.Lines(string(a.body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err != nil {
			t.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("/metrics has no %s:\n%s", name, a.body)
	}
	return sum
}

// TestASecondSignalEndsAtOnce: a stop that somebody does not want to wait for.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	// A request whose body never ends keeps the drain waiting.
	send, err := startEndlessRequest(t, n.base)
	if err != nil {
		t.Fatal(err)
	}
	defer send()
	awaitMetric(t, n, "broker_append_batches_total", 1) // of the request that goes on
	if err := n.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(n.stderr.String(), "draining"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the drain did not begin: %s", n.stderr)
		}
	}
	// Another one: the same one within half a second would count as one signal.
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.exited:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 130 {
			t.Fatalf("the node ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the second signal did not end it")
	}
}

// TestAKeyedRequestStoresNothingTwiceOverARestart repeats a request after a stop, after a kill, and
// with other content.
func TestAKeyedRequestStoresNothingTwiceOverARestart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	n := serve(t, "--data", data)
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"t","partitions":4}`, nil, "Content-Type", "application/json")
	body := `{"records":[{"value":1},{"key":"a","value":2},{"partition":3,"value":3},{"value":4}]}`
	type results struct {
		Results []struct {
			Partition, Offset int
			Duplicate         bool
		}
	}
	produce := func() (r results) {
		must(t, http.MethodPost, n.base+"/v1/topics/t/records", body, &r, "Content-Type", "application/json", "Idempotency-Key", "order-17")
		return r
	}
	first := produce()
	for _, end := range []func(){
		func() {},
		func() {
			if err := n.stop(t); err != nil {
				t.Fatal(err)
			}
			n = serve(t, "--data", data)
		},
		func() { n.kill(); n = serve(t, "--data", data) },
	} {
		end()
		for i, again := range produce().Results {
			want := first.Results[i]
			if again.Partition != want.Partition || again.Offset != want.Offset || !again.Duplicate {
				t.Errorf("record %d was at %+v, a repeat says %+v", i, want, again)
			}
		}
	}
	total := 0
	for partition := range 4 {
		total += len(readAll(t, n.base, "t", partition))
	}
	if total != 4 {
		t.Errorf("%d records are stored, 4 were sent", total)
	}
	// Other content is noticed in each partition by itself.
	other := func(body string, want int) {
		t.Helper()
		a, err := ask(t.Context(), http.MethodPost, n.base+"/v1/topics/t/records", body, "Content-Type", "application/json", "Idempotency-Key", "order-17")
		if err != nil || a.status != want || !strings.Contains(string(a.body), "idempotency_key_reused") {
			t.Errorf("other content under the same key: %d %s, %v", a.status, a.body, err)
		}
	}
	other(strings.Replace(body, `"value":2`, `"value":22`, 1), http.StatusMultiStatus)
	other(strings.ReplaceAll(body, `"value":`, `"value":2`), http.StatusUnprocessableEntity)
	if again := len(readAll(t, n.base, "t", first.Results[1].Partition)); again > 4 {
		t.Errorf("it was stored: %d records", again)
	}
}
