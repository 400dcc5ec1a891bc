package client

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func groupSeek(conn *connection) *cobra.Command {
	var to string
	var offsets []string
	cmd := &cobra.Command{
		Use:   "seek GROUP [TOPIC...]",
		Short: "Move a group's position",
		Long: `Move a group's position, in all partitions of some topics or in single ones, at any time: its members go on from there
with their next poll, and what they have read before is not acknowledged any more. A group that does not exist yet is made.

The positions that hold now are printed.`,
		Example: `  weir group seek billing orders --to earliest
  weir group seek billing orders payments --to ts:2026-03-01T00:00:00Z
  weir group seek billing --offset orders/0=10422 --offset orders/3=7`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("GROUP is missing: %s", cmd.UseLine())
			}
			for _, topic := range args[1:] {
				if err := checkTopic(topic); err != nil {
					return err
				}
			}
			return checkWord("GROUP", args[0])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return completeTopics(conn)(cmd, nil, prefix)
			}
			return groupNames(conn)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := seekBody(args[1:], to, offsets)
			if err != nil {
				return err
			}
			c, err := conn.client()
			if err != nil {
				return err
			}
			var now struct {
				Offsets []struct {
					Topic     string
					Partition int32
					Offset    int64
				}
			}
			if err := c.Call(cmd.Context(), http.MethodPost, groupPath(args[0], "seek"), body, &now); err != nil {
				return err
			}
			if at, _ := body["to"].(string); strings.HasPrefix(at, "ts:") {
				fmt.Fprintf(cmd.ErrOrStderr(), "weir: to the first records from %s on\n", understood(at))
			}
			out := bufio.NewWriter(output{cmd.OutOrStdout()})
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(table, "TOPIC\tPARTITION\tCOMMITTED")
			for _, o := range now.Offsets {
				fmt.Fprintf(table, "%s\t%d\t%d\n", o.Topic, o.Partition, o.Offset)
			}
			return errors.Join(table.Flush(), out.Flush())
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "where to, in all partitions of the topics: earliest, latest or ts:<time>")
	cmd.Flags().StringArrayVar(&offsets, "offset", nil, "where to in one partition, as TOPIC/PARTITION=OFFSET; may be repeated")
	return cmd
}

// understood is the time of a position, for a person to see what a number was taken for.
func understood(at string) string {
	ms, err := strconv.ParseInt(strings.TrimPrefix(at, "ts:"), 10, 64)
	if err != nil {
		return at
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// seekBody is what the API takes: whole topics, or positions.
func seekBody(topics []string, to string, offsets []string) (map[string]any, error) {
	switch {
	case len(offsets) > 0 && (to != "" || len(topics) > 0):
		return nil, errors.New("give topics with --to, or --offset for each partition, not both")
	case len(offsets) == 0 && len(topics) == 0:
		return nil, errors.New("nothing to move: give topics with --to, or --offset TOPIC/PARTITION=OFFSET")
	case len(offsets) == 0 && to == "":
		return nil, errors.New("say where --to: earliest, latest or ts:<time>")
	case len(offsets) == 0:
		at, err := place("--to", to, "earliest, latest or ts:<time>")
		if err == nil && strings.HasPrefix(at, "-") {
			err = fmt.Errorf("--to %q: must be earliest, latest or ts:<time>", to)
		}
		return map[string]any{"topics": topics, "to": at}, err
	}
	var positions []any
	for _, text := range offsets {
		path, number, _ := strings.Cut(text, "=")
		topic, partition, _ := strings.Cut(path, "/")
		offset, err := strconv.ParseInt(number, 10, 64)
		p, err2 := strconv.ParseInt(partition, 10, 32)
		if err != nil || err2 != nil || offset < 0 || p < 0 {
			return nil, fmt.Errorf("--offset %q: must be TOPIC/PARTITION=OFFSET, such as orders/0=10422", text)
		}
		if err := checkTopic(topic); err != nil {
			return nil, err
		}
		positions = append(positions, map[string]any{"topic": topic, "partition": p, "offset": offset})
	}
	return map[string]any{"offsets": positions}, nil
}

func groupAlter(conn *connection) *cobra.Command {
	var settings, unset []string
	cmd := &cobra.Command{
		Use:   "alter GROUP",
		Short: "Change a group's settings",
		Example: `  weir group alter billing --config max.poll.interval.ms=900000
  weir group alter billing --unset max.poll.interval.ms`,
		Args:              oneGroup,
		ValidArgsFunction: completeGroups(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs(settings, unset)
			if err != nil {
				return err
			}
			if len(set) == 0 {
				return errors.New("nothing to change: give --config or --unset")
			}
			c, err := conn.client()
			if err != nil {
				return err
			}
			var now group
			if err := c.Call(cmd.Context(), http.MethodPatch, groupPath(args[0]), map[string]any{"settings": set}, &now); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "group %s has the settings %s\n", args[0], printSettings(now.Settings))
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&settings, "config", "c", nil, "setting as name=value; may be repeated (docs/config.md lists them)")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "setting that goes back to the node's; may be repeated")
	return cmd
}

func groupDelete(conn *connection) *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:               "delete GROUP",
		Short:             "Delete a group that has no members, with its position",
		Args:              oneGroup,
		ValidArgsFunction: completeGroups(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := d.confirm(cmd, "the group "+args[0]+" with its position in all topics", "group", args[0]); err != nil {
				return err
			}
			if err := c.Call(cmd.Context(), http.MethodDelete, groupPath(args[0]), nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "group %s was deleted\n", args[0])
			return err
		},
	}
	d.register(cmd)
	return cmd
}

func groupRemoveMember(conn *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "remove-member GROUP MEMBER",
		Short: "Free the partitions of a member that is dead, before its session ends",
		Long: `Free the partitions of a member that is dead, before its session ends.

A member that lives joins again with its next poll.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := Arguments("GROUP", "MEMBER")(cmd, args); err != nil {
				return err
			}
			return errors.Join(checkWord("GROUP", args[0]), checkWord("MEMBER", args[1]))
		},
		ValidArgsFunction: completeGroups(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := c.Call(cmd.Context(), http.MethodDelete, groupPath(args[0], "members", url.PathEscape(args[1])), nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "%s was removed from group %s\n", args[1], args[0])
			return err
		},
	}
}
