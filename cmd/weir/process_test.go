package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// asWeir, set in the environment, makes the test's own binary the program: what is tested is the real
// one, as a process of its own.
const asWeir = "WEIR_TEST_AS_WEIR"

func TestMain(m *testing.M) {
	if os.Getenv(asWeir) != "" {
		_ = os.Unsetenv(asWeir)
		os.Exit(execute(os.Args[1:]))
	}
	if config := os.Getenv(asMember); config != "" {
		os.Exit(runMember(config))
	}
	testscript.Main(m, map[string]func(){"weir": main})
}

// soak says whether the long forms of tests are wanted.
func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

// node is a running `weir serve`.
type node struct {
	cmd    *exec.Cmd
	base   string // http://127.0.0.1:port
	stderr *lockedBuffer
	exited chan error // gets the end of the process, once
}

// lockedBuffer is read while a process still writes to it.
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

var servesOn = regexp.MustCompile(`serves on (http://\S+)`)

// launch starts a node and does not wait for it. lines gets what it prints to stdout.
func launch(args ...string) (n *node, lines <-chan string, err error) {
	return launchUnder(nil, args...)
}

// launchUnder is launch by another program, which gets the node's command line behind its own words.
func launchUnder(program []string, args ...string) (n *node, lines <-chan string, err error) {
	n = &node{stderr: &lockedBuffer{}, exited: make(chan error, 1)}
	words := slices.Concat(program, []string{os.Args[0], "serve"}, args)
	n.cmd = exec.Command(words[0], words[1:]...)
	n.cmd.Env = append(os.Environ(), asWeir+"=1")
	n.cmd.Stderr = n.stderr
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, nil, err
	}
	read := make(chan string, 64)
	go func() {
		for in := bufio.NewScanner(stdout); in.Scan(); {
			select {
			case read <- in.Text():
			default: // nobody reads them any more
			}
		}
		close(read)
		n.exited <- n.cmd.Wait()
	}()
	return n, read, nil
}

// serve starts a node on a free port and waits until it is ready.
func serve(t *testing.T, args ...string) *node {
	t.Helper()
	n, lines, err := launch(append([]string{"--http", "127.0.0.1:0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.cmd.Process.Kill() }) // an error means that it is gone already
	if !n.awaitReady(lines) {
		t.Fatalf("the node did not become ready: %s", n.stderr)
	}
	return n
}

// awaitReady reads the address from the greeting, which comes when the node is ready.
func (n *node) awaitReady(lines <-chan string) bool {
	timeout := time.After(60 * time.Second)
	for {
		select {
		case line, open := <-lines:
			if !open {
				return false
			}
			if m := servesOn.FindStringSubmatch(line); m != nil {
				n.base = m[1]
				return true
			}
		case <-timeout:
			return false
		}
	}
}

// kill ends the process as a power cut of the process would: it gets no chance to write anything.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // an error means that it is gone already
	<-n.exited
}

// stop ends it in order, and returns how it ended.
func (n *node) stop(t *testing.T) error {
	t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.exited:
		return err
	case <-time.After(60 * time.Second):
		t.Fatalf("the node did not stop: %s", n.stderr)
		return nil
	}
}

// httpc is the client of all tests here. A request that hangs is a failure, not a wait.
var httpc = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 128}}

// answer is what a request got.
type answer struct {
	status int
	body   []byte
	header http.Header
}

// ask makes one request. headers are name and value in turn.
func ask(ctx context.Context, method, url, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpc.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, content, resp.Header}, err
}

// must is ask for requests that have to succeed; out, when not nil, gets the answer's JSON.
func must(t *testing.T, method, url, body string, out any, headers ...string) answer {
	t.Helper()
	a, err := ask(t.Context(), method, url, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	if a.status/100 != 2 {
		t.Fatalf("%s %s: status %d: %s", method, url, a.status, a.body)
	}
	if out != nil {
		if err := json.Unmarshal(a.body, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, url, err, a.body)
		}
	}
	return a
}

// readRecord is a record as the API gives it.
type readRecord struct {
	Offset int64
	Value  string
}

// readAll reads a partition from its beginning up to its end.
func readAll(t *testing.T, base, topic string, partition int) []readRecord {
	t.Helper()
	var all []readRecord
	for next := int64(0); ; {
		var page struct {
			Records    []readRecord
			NextOffset int64 `json:"next_offset"`
			Gaps       []any
		}
		must(t, http.MethodGet, fmt.Sprintf("%s/v1/topics/%s/partitions/%d/records?offset=%d&wait_ms=0&max_records=5000&value_format=string", base, topic, partition, next), "", &page)
		if len(page.Gaps) > 0 {
			t.Fatalf("%s/%d has gaps: %v", topic, partition, page.Gaps)
		}
		if len(page.Records) == 0 {
			return all
		}
		all = append(all, page.Records...)
		next = page.NextOffset
	}
}

// startEndlessRequest begins a request whose body goes on until the returned function is called.
func startEndlessRequest(t *testing.T, base string) (end func(), err error) {
	t.Helper()
	body, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/topics/endless/records", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	go func() {
		if resp, err := httpc.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(w, `{"value":1}`+"\n"); err != nil {
		return nil, err
	}
	return func() { _ = w.Close() }, nil
}
