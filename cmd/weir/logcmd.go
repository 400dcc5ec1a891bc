package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlog/weir/cmd/weir/client"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func logCommand() *cobra.Command {
	return client.Group(&cobra.Command{Use: "log", Short: "Look at a partition's files without a server"}, logDumpCommand())
}

func logDumpCommand() *cobra.Command {
	var opts storage.DumpOptions
	var from int64
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Verify a partition's directory and print what is in it; only reads",
		Long: `Verify the log in DIR, such as weir-data/topics/<id>/0 (weir topic describe names a
topic's directory), and print its segments, with --batches a line per
batch and with --records a line per record. It only reads and needs no server. The exit code is 1 when
the log is damaged; indexes that can be rebuilt are mentioned and do not count.`,
		Args: client.Arguments("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.From = topic.Offset(from)
			out := bufio.NewWriter(cmd.OutOrStdout())
			found, err := storage.Dump(vfs.OS{}, args[0], out, opts)
			if err := errors.Join(err, out.Flush()); err != nil {
				return err
			}
			if found.Problems > 0 {
				return fmt.Errorf("%s is damaged in %d places", args[0], found.Problems)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Batches, "batches", false, "a line per batch")
	flags.BoolVar(&opts.Records, "records", false, "a line per record")
	flags.Int64Var(&from, "from", 0, "leave out batches that end at or below this offset")
	return cmd
}
