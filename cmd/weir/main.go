// Command weir is a node of a web-native event log, and the client that talks to one.
//
// `weir serve` starts a node; every other command asks a running one over its public HTTP API, but
// for `log dump` and `metadata rebuild`, which work on a data directory, and `config`. This package holds
// what starts and stops and the wiring, the only place that knows every room; its subpackages read the configuration
// (config) and make the requests (client).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlog/weir/cmd/weir/client"
)

// version is set by the linker; see the Makefile.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:])) }

// execute carries out one command line and returns the process's exit code: 0, 1 for an error, 2 for a
// command line that makes no sense, 3 when another process has taken over a group's member, so that a supervisor can tell
// that from what a new start mends, and 130 or 143 after a SIGINT or SIGTERM that cut a client command short.
func execute(args []string) int {
	ctx, first, stop := signals()
	defer stop()
	root := command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return signalled(first())
	case errors.Is(err, client.ErrOutputClosed):
		return 0 // `weir consume … | head`: whoever reads has enough
	}
	var usage usageError
	fmt.Fprintln(os.Stderr, "weir:", sentence(err))
	var taken *client.TakenOverError
	if errors.As(err, &taken) {
		return 3
	}
	if errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "Try `%s --help`.\n", usage.command)
		return 2
	}
	return 1
}

// echo is how long after the first signal the same one is taken for the first: timeout(1) and some terminals
// send theirs to the process and to its group.
const echo = 500 * time.Millisecond

// signalled is the exit code that shells expect of a process that a signal has ended.
func signalled(by os.Signal) int {
	if by == syscall.SIGTERM {
		return 143
	}
	return 130
}

// signals returns a context that ends with the first SIGINT or SIGTERM, and what returns that signal. The second ends the
// process at once, for when a graceful stop takes longer than its user likes.
func signals() (context.Context, func() os.Signal, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var first atomic.Value
	begin := func(by os.Signal) {
		first.Store(by)
		cancel()
	}
	by := func() os.Signal {
		sig, _ := first.Load().(os.Signal)
		return sig
	}
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		if secondSignal(got, done, begin) {
			fmt.Fprintln(os.Stderr, "weir: stopped at once by a second signal")
			os.Exit(signalled(by()))
		}
	}()
	return ctx, by, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}

// secondSignal calls stop with the first signal and returns true at the second, or false when done.
func secondSignal(got <-chan os.Signal, done <-chan struct{}, stop func(os.Signal)) bool {
	var first os.Signal
	select {
	case first = <-got:
		stop(first)
	case <-done:
		return false
	}
	begun := time.Now()
	for {
		select {
		case again := <-got:
			if again != first || time.Since(begun) >= echo {
				return true
			}
		case <-done:
			return false
		}
	}
}

// usageError is a command line that makes no sense.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A web-native event log: curl events in, read them by offset, WebSocket or SSE",
		Long: `weir keeps events in partitioned, durable logs and serves them over plain HTTP.

  weir serve                                   a node on 127.0.0.1:8080, its data in ./weir-data
  echo hello | weir produce greetings          store a record a line
  weir consume greetings --from earliest -f    print them, and go on with what comes`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionText(),
	}
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() { // a misspelt command whose flags its group does not know
			if unknown := client.Subcommand(cmd, cmd.Flags().Args()); unknown != nil {
				err = unknown
			}
		}
		return usageError{cmd.CommandPath(), err}
	})
	client.Group(root, serveCommand(), configCommand(), logCommand(), metadataCommand(), versionCommand())
	root.AddCommand(client.Commands()...)
	root.CompletionOptions.HiddenDefaultCmd = false
	asUsage(root)
	return root
}

// asUsage makes the mistakes that cobra finds in arguments usage errors.
func asUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{cmd.CommandPath(), err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		asUsage(sub)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  client.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine is what `weir version` and --version print.
func versionLine() string {
	return fmt.Sprintf("weir %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionText is the linker's version, or the module's when `go install` built the binary.
func versionText() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return version
}
