package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlog/weir/broker"
	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/broker/cluster/quorum"
	"github.com/weirlog/weir/cmd/weir/client"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

func metadataCommand() *cobra.Command {
	return client.Group(&cobra.Command{Use: "metadata", Short: "Repair a data directory whose metadata is lost"}, metadataRebuildCommand())
}

func metadataRebuildCommand() *cobra.Command {
	var force bool
	var node int32
	cmd := &cobra.Command{
		Use:   "rebuild DIR",
		Short: "Make the metadata of a data directory anew, from what is left of it and from the topics' directories",
		Long: `Make the metadata in DIR/raft anew when it is damaged or missing and there is no backup of it. DIR is the
data directory, such as weir-data; no node may be running on it.

Topics, their partitions and settings come from the topics' directories, and what these do not say comes
from the old metadata as far as it can be read. Records are not touched. The old DIR/raft is kept as
DIR/raft.aside-N. What was found, and what could not be, is printed: read it before you start the node.

A topic whose settings are lost gets retention.ms=-1, so that nothing of it is deleted until you say so.
A directory that cannot be told whose it is, or whose name another topic has, is left alone; the node sets
it aside when it starts and never deletes it. Deleted topics do not come back.

Metadata that a node would start with is left as it is, unless --force is given.`,
		Args: client.Arguments("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rebuildMetadata(cmd, args[0], topic.NodeID(node), force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "make it anew although it is sound, or although it is of another cluster or node")
	cmd.Flags().Int32Var(&node, "node-id", 1, "number of the node that DIR belongs to (its setting node.id)")
	return cmd
}

func rebuildMetadata(cmd *cobra.Command, path string, node topic.NodeID, force bool) (err error) {
	if err := checkDataDir(path); err != nil {
		return err
	}
	// Without a boot id: a node that starts next must not conclude from this process's that the machine
	// has been up since its own last use.
	dir, err := storage.OpenDir(vfs.OS{}, path, storage.DirConfig{NodeID: node})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	found, err := broker.Look(vfs.OS{}, path)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	built, err := quorum.Rebuild(quorum.Rebuilding{
		Dir: filepath.Join(path, "raft"), Node: node, ClusterID: dir.ClusterID, Topics: found.Topics, Force: force, Logger: logger,
	})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	tellRebuilt(out, path, built, found.Others)
	return out.Flush()
}

// checkDataDir keeps a directory that somebody named by mistake from becoming a data directory.
func checkDataDir(path string) error {
	for _, name := range []string{"weir.json", "weir.boot"} {
		there, err := vfs.Exists(vfs.OS{}, filepath.Join(path, name))
		if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s is no data directory: there is no weir.json in it", path)
}

// tellRebuilt says what was made of what, and what was not.
func tellRebuilt(w *bufio.Writer, path string, built quorum.Rebuilt, others []broker.Unclaimed) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) } // Flush returns its error
	partitions := 0
	for _, t := range built.Topics {
		partitions += t.Partitions
		say("topic %s: %s, %s", t.Name, counted(t.Partitions, "partition"), settingsOf(t))
	}
	for _, left := range built.Left {
		tellLeft(w, left)
	}
	for _, other := range others {
		say("left alone: topics/%s: %s", other.Name, other.Why)
	}
	source := "Of the old metadata nothing could be read. Access rules, quotas and webhooks, if there were any, are lost."
	if built.Source != "" {
		source = fmt.Sprintf("Of the old metadata %s was used, with %s (access rules, quotas, webhooks); what changed in these after it is lost.",
			built.Source, counted(built.Entries, "entry"))
	}
	say("%s", source)
	if built.Aside != "" {
		say("The old metadata is kept in %s.", built.Aside)
	}
	say("The metadata in %s was made anew: %s with %s. Start the node with `weir serve --data %s`.",
		filepath.Join(path, "raft"), counted(len(built.Topics), "topic"), counted(partitions, "partition"), path)
}

func settingsOf(t cluster.Revived) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(t.Overrides)) {
		pairs = append(pairs, name+"="+t.Overrides[name])
	}
	set := "all settings are defaults"
	if len(pairs) > 0 {
		set = strings.Join(pairs, " ")
	}
	switch {
	case t.Empty:
		return fmt.Sprintf("NO DIRECTORY: it comes back without records; delete it if it was deleted (%s, from %s)", set, t.Settings)
	case t.Settings == cluster.FromNowhere:
		return fmt.Sprintf("SETTINGS LOST: it has %s until you set them again", set)
	default:
		return fmt.Sprintf("%s (from %s)", set, t.Settings)
	}
}

func tellLeft(w io.Writer, left cluster.LeftOut) {
	name := ""
	if left.Name != "" {
		name = fmt.Sprintf(" (%s)", left.Name)
	}
	what := "left alone"
	if left.Doomed {
		what = "not brought back, the next start removes it"
	}
	fmt.Fprintf(w, "%s: topics/%s%s: %s\n", what, hex.EncodeToString(left.ID[:]), name, left.Why)
}

func counted(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}
