package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlog/weir/cmd/weir/client"
	"github.com/weirlog/weir/cmd/weir/config"
)

// settingFlags are the flags of commands that read a node's configuration.
type settingFlags struct {
	file      string
	set       []string
	data      string
	http      string
	nodeID    int32
	insecure  bool
	logLevel  string
	logFormat string
}

func (f *settingFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "config", "c", os.Getenv("WEIR_CONFIG"), "YAML file of settings (WEIR_CONFIG)")
	flags.StringVar(&f.data, "data", "", "data directory (setting data)")
	flags.StringVar(&f.http, "http", "", "address to listen on; port 0 takes a free one (setting http.address)")
	flags.Int32Var(&f.nodeID, "node-id", 0, "number of this node (setting node.id)")
	flags.BoolVar(&f.insecure, "insecure", false, "allow an address beyond loopback although nobody is asked who they are (setting http.insecure)")
	flags.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (setting log.level)")
	flags.StringVar(&f.logFormat, "log-format", "", "text or json (setting log.format)")
	flags.StringArrayVar(&f.set, "set", nil, "any setting, as name=value; may be repeated (docs/config.md lists them)")
}

// load composes the settings: default, file, environment, flags.
func (f *settingFlags) load(cmd *cobra.Command) (*config.Loaded, error) {
	given := map[string]string{}
	for _, pair := range f.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageError{cmd.CommandPath(), fmt.Errorf("--set %q: must be name=value", pair)}
		}
		given[name] = value
	}
	for flag, setting := range map[string]struct{ name, value string }{
		"data":       {"data", f.data},
		"http":       {"http.address", f.http},
		"node-id":    {"node.id", strconv.Itoa(int(f.nodeID))},
		"insecure":   {"http.insecure", strconv.FormatBool(f.insecure)},
		"log-level":  {"log.level", f.logLevel},
		"log-format": {"log.format", f.logFormat},
	} {
		if cmd.Flags().Changed(flag) {
			given[setting.name] = setting.value
		}
	}
	loaded, err := config.Load(config.Sources{File: f.file, Environ: os.Environ(), Flags: given})
	if err != nil {
		return nil, fmt.Errorf("the configuration has mistakes:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return loaded, nil
}

func configCommand() *cobra.Command {
	return client.Group(&cobra.Command{Use: "config", Short: "Look at the configuration of a node"}, configPrintCommand())
}

func configPrintCommand() *cobra.Command {
	var flags settingFlags
	var origins bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print what `weir serve` would run with, as YAML that --config reads back",
		Args:  client.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := flags.load(cmd)
			if err != nil {
				return err
			}
			return loaded.Print(cmd.OutOrStdout(), origins)
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&origins, "origin", false, "say of each value where it comes from")
	return cmd
}
