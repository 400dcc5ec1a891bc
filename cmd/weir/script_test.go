package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scenes of testdata with the real binary. `node start` starts a server with its data
// in $WORK/data and sets WEIR_SERVER and ADDR; `node stop` ends it in order, `node kill` at once.
// `await FILE TEXT` waits until a file has a text in it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Values[running{}] = &running{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"node": nodeCommand, "await": awaitCommand},
	})
}

// running is the node of a script.
type running struct{ node *node }

func nodeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: node start|stop|kill [flags]")
	}
	r := ts.Value(running{}).(*running)
	switch args[0] {
	case "start":
		dir := filepath.Join(ts.Getenv("WORK"), "data")
		n, lines, err := launch(append([]string{"--http", "127.0.0.1:0", "--data", dir}, args[1:]...)...)
		ts.Check(err)
		ts.Defer(func() { _ = n.cmd.Process.Kill() }) // an error means that it is gone already
		if !n.awaitReady(lines) {
			ts.Fatalf("the node did not become ready: %s", n.stderr)
		}
		r.node = n
		ts.Setenv("WEIR_SERVER", n.base)
		ts.Setenv("ADDR", strings.TrimPrefix(n.base, "http://"))
	case "stop":
		ts.Check(r.node.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-r.node.exited:
			ts.Check(err)
		case <-time.After(60 * time.Second):
			ts.Fatalf("the node did not stop: %s", r.node.stderr)
		}
	case "kill":
		r.node.kill()
	default:
		ts.Fatalf("node %s: no such thing", args[0])
	}
}

func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		content, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(content), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s has no %q: %v, %s", args[0], args[1], err, content)
		}
	}
}
