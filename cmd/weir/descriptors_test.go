package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlog/weir/cmd/weir/config"
)

func TestFitDescriptors(t *testing.T) {
	for _, c := range []struct{ most, connections, files int }{
		{1 << 20, 20_000, 4096},
		{24_608, 20_000, 4096},
		{20_000, 15_392, 4096},
		{4096, 2560, 1024},
		{1024, 512, 256},
		{0, 32, 16},
	} {
		cfg := config.Default()
		cfg.Gateway.Connections, cfg.Broker.OpenFiles = 20_000, 4096
		fitDescriptors(&cfg, c.most, slog.New(slog.DiscardHandler))
		if cfg.Gateway.Connections != c.connections || cfg.Broker.OpenFiles != c.files {
			t.Errorf("of %d: %d connections and %d files, want %d and %d", c.most, cfg.Gateway.Connections, cfg.Broker.OpenFiles, c.connections, c.files)
		}
	}
}

// TestConnectionsDoNotTakeTheDescriptorsOfLogs: more clients connect than the process may have descriptors,
// and appends that need new files go on.
func TestConnectionsDoNotTakeTheDescriptorsOfLogs(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell to set a limit with")
	}
	n, lines, err := launchUnder([]string{sh, "-c", `ulimit -n 300 && exec "$0" "$@"`}, "--http", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.cmd.Process.Kill() }) // an error means that it is gone already
	if !n.awaitReady(lines) {
		t.Fatalf("the node did not become ready: %s", n.stderr)
	}
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"rolls","partitions":4,"settings":{"segment.bytes":4096}}`, nil, "Content-Type", "application/json")
	for range 400 {
		c, err := net.Dial("tcp", strings.TrimPrefix(n.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	body := fmt.Sprintf(`{"records":[{"value":%q}]}`, strings.Repeat("x", 2000))
	for i := range 40 { // over a connection of before
		must(t, http.MethodPost, fmt.Sprintf("%s/v1/topics/rolls/partitions/%d/records", n.base, i%4), body, nil, "Content-Type", "application/json")
	}
	if log := n.stderr.String(); strings.Contains(log, "too many open files") {
		t.Errorf("the node ran out of descriptors: %s", log[:min(len(log), 2000)])
	}
	if err := n.stop(t); err != nil {
		t.Errorf("the node ended with %v: %s", err, n.stderr)
	}
}
