package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlog/weir/cmd/weir/client"
	"github.com/weirlog/weir/cmd/weir/config"
)

func serveCommand() *cobra.Command {
	var flags settingFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node. With nothing configured it serves on 127.0.0.1:8080 and keeps its data in ./weir-data.

SIGTERM or Ctrl-C stops it: waiting readers are answered, subscribers are told, appends under way finish,
files are closed. A second signal ends the process at once, which loses nothing that was acknowledged.`,
		Args: client.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := flags.load(cmd)
			if err != nil {
				return err
			}
			cfg := loaded.Config
			logger := newLogger(cfg.Log, cmd.ErrOrStderr())
			fitDescriptors(&cfg, mostDescriptors(), logger)
			s := server{cfg: cfg, logger: logger}
			if cfg.Log.Format == "text" {
				s.greet = func(addr net.Addr) { greet(cmd.OutOrStdout(), addr, cfg) }
			}
			return s.run(cmd.Context())
		},
	}
	flags.register(cmd)
	return cmd
}

// newLogger makes the process's logger.
func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // a word that the configuration has checked
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// greet tells a person at a terminal what to do next, with commands for this very node.
func greet(w io.Writer, addr net.Addr, cfg config.Config) {
	base := "http://" + reachable(addr)
	var b strings.Builder
	fmt.Fprintf(&b, "weir %s serves on %s with its data in %s\n\n", versionText(), base, cfg.Broker.Dir)
	fmt.Fprintf(&b, "  curl -d 'hello' %s/v1/topics/greetings/records\n", base)
	fmt.Fprintf(&b, "  curl '%s/v1/topics/greetings/partitions/0/records?offset=earliest'\n", base)
	fmt.Fprintf(&b, "  curl -N -H 'Accept: application/x-ndjson' '%s/v1/topics/greetings/records?from=earliest&follow=true'\n\n", base)
	fmt.Fprintf(&b, "Or open %s/ in a browser. Ctrl-C stops the node.\n", base)
	if loopback(addr) {
		b.WriteString("Nobody is asked who they are, so only this machine is served: the address is a loopback one.\n")
	} else {
		b.WriteString("WARNING: nobody is asked who they are, and other machines reach this address. Anyone there can read and write everything.\n")
	}
	fmt.Fprint(w, b.String())
}

// reachable is an address that a client on this machine can use.
func reachable(addr net.Addr) string {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil || !ap.Addr().IsUnspecified() {
		return addr.String()
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String()
}

func loopback(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
