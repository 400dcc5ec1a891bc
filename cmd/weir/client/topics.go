package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// Topic as the API describes it.
type Topic struct {
	Name        string
	ID          string
	Partitions  int
	Replication int
	Settings    map[string]string
	Effective   map[string]string `json:"effective_settings"`
	CreatedAt   int64             `json:"created_at"` // milliseconds since 1970
	Internal    bool
}

// topicsPage is a page of the list of topics.
type topicsPage struct {
	Topics []Topic
	Next   string `json:"next_page_token"`
}

// partitionsPage is a page of the partitions of a topic.
type partitionsPage struct {
	Partitions []struct {
		Partition     int32
		Leader        int32
		LeaderEpoch   int32 `json:"leader_epoch"`
		Replicas      []int32
		InSync        []int32 `json:"in_sync"`
		LogStart      *int64  `json:"log_start_offset"`
		HighWatermark *int64  `json:"high_watermark"`
	}
	Next string `json:"next_page_token"`
}

func topicCommand() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use: "topic", Aliases: []string{"topics"}, Short: "Create, list, describe, alter and delete topics", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	conn.register(cmd)
	cmd.AddCommand(topicCreate(&conn), topicList(&conn), topicDescribe(&conn), topicAlter(&conn), topicDelete(&conn))
	return cmd
}

func topicCreate(conn *connection) *cobra.Command {
	var partitions, replication int
	var settings []string
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "Make a topic",
		Example: "  weir topic create orders --partitions 6 --config retention.ms=86400000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			body := map[string]any{"name": args[0]}
			if partitions > 0 {
				body["partitions"] = partitions
			}
			if replication > 0 {
				body["replication"] = replication
			}
			set, err := pairs(settings, nil)
			if err != nil {
				return err
			}
			if len(set) > 0 {
				body["settings"] = set
			}
			var made Topic
			if err := c.Call(cmd.Context(), http.MethodPost, "/v1/topics", body, &made); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "topic %s was created with %d %s\n", made.Name, made.Partitions, plural(int64(made.Partitions), "partition"))
			return err
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "number of partitions; 0 takes the node's default")
	cmd.Flags().IntVarP(&replication, "replication", "r", 0, "replicas of each partition; 0 takes the node's default")
	cmd.Flags().StringArrayVarP(&settings, "config", "c", nil, "setting as name=value; may be repeated (docs/config.md lists them)")
	return cmd
}

// pairs reads name=value, and names that go back to their default.
func pairs(set, unset []string) (map[string]any, error) {
	all := map[string]any{}
	for _, pair := range set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("the setting %q must be given as name=value", pair)
		}
		all[name] = value
	}
	for _, name := range unset {
		if _, both := all[name]; both {
			return nil, fmt.Errorf("the setting %s is both set and unset", name)
		}
		all[name] = nil
	}
	return all, nil
}

func topicList(conn *connection) *cobra.Command {
	var asJSON, internal bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the topics",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			out := bufio.NewWriter(output{cmd.OutOrStdout()})
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(table, "NAME\tPARTITIONS\tREPLICATION\tSETTINGS")
			}
			query := url.Values{"page_size": {"500"}, "internal": {strconv.FormatBool(internal)}}
			for {
				var page topicsPage
				if err := c.Call(cmd.Context(), http.MethodGet, "/v1/topics?"+query.Encode(), nil, &page); err != nil {
					return err
				}
				for _, t := range page.Topics {
					if asJSON {
						if err := json.NewEncoder(out).Encode(summary(t)); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", t.Name, t.Partitions, t.Replication, printSettings(t.Settings))
				}
				if page.Next == "" {
					return errors.Join(table.Flush(), out.Flush())
				}
				query.Set("page_token", page.Next)
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object a line")
	cmd.Flags().BoolVar(&internal, "internal", false, "list weir's own topics too")
	return cmd
}

// summary is a topic for programs.
func summary(t Topic) map[string]any {
	return map[string]any{"name": t.Name, "id": t.ID, "partitions": t.Partitions, "replication": t.Replication, "settings": t.Settings}
}

func printSettings(settings map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		words = append(words, name+"="+settings[name])
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, " ")
}

func topicDescribe(conn *connection) *cobra.Command {
	return &cobra.Command{
		Use:               "describe TOPIC",
		Short:             "Show a topic's partitions and settings",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			var t Topic
			if err := c.Call(cmd.Context(), http.MethodGet, topicPath(args[0]), nil, &t); err != nil {
				return err
			}
			out := bufio.NewWriter(output{cmd.OutOrStdout()})
			fmt.Fprintf(out, "name         %s\nid           %s\npartitions   %d\nreplication  %d\ncreated      %s\n\n",
				t.Name, t.ID, t.Partitions, t.Replication, time.UnixMilli(t.CreatedAt).UTC().Format(time.RFC3339))
			if err := printPartitions(cmd.Context(), c, out, t.Name); err != nil {
				return err
			}
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(table, "\nSETTING\tVALUE")
			for _, name := range slices.Sorted(maps.Keys(t.Effective)) {
				mark := ""
				if _, set := t.Settings[name]; set {
					mark = "\t(set)"
				}
				fmt.Fprintf(table, "%s\t%s%s\n", name, t.Effective[name], mark)
			}
			return errors.Join(table.Flush(), out.Flush())
		},
	}
}

func printPartitions(ctx context.Context, c *Client, out io.Writer, topic string) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PARTITION\tLEADER\tEPOCH\tIN SYNC\tSTART\tEND")
	query := url.Values{"page_size": {"1000"}}
	for {
		var page partitionsPage
		if err := c.Call(ctx, http.MethodGet, topicPath(topic, "partitions")+"?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, p := range page.Partitions {
			fmt.Fprintf(table, "%d\t%d\t%d\t%s\t%s\t%s\n", p.Partition, p.Leader, p.LeaderEpoch, numbers(p.InSync), known(p.LogStart), known(p.HighWatermark))
		}
		if page.Next == "" {
			return table.Flush()
		}
		query.Set("page_token", page.Next)
	}
}

func numbers(ids []int32) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(int(id))
	}
	return strings.Join(words, ",")
}

// known is an offset, or a dash where the node that was asked does not know it.
func known(offset *int64) string {
	if offset == nil {
		return "-"
	}
	return strconv.FormatInt(*offset, 10)
}

func topicAlter(conn *connection) *cobra.Command {
	var partitions int
	var settings, unset []string
	cmd := &cobra.Command{
		Use:               "alter TOPIC",
		Short:             "Change a topic's settings or add partitions",
		Example:           "  weir topic alter orders --config retention.ms=3600000 --unset cleanup.policy --partitions 12",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			set, err := pairs(settings, unset)
			if err != nil {
				return err
			}
			body := map[string]any{}
			if len(set) > 0 {
				body["settings"] = set
			}
			if partitions > 0 {
				body["partitions"] = partitions
			}
			if len(body) == 0 {
				return errors.New("nothing to change: give --config, --unset or --partitions")
			}
			var now Topic
			if err := c.Call(cmd.Context(), http.MethodPatch, topicPath(args[0]), body, &now); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "topic %s has %d %s and the settings %s\n",
				now.Name, now.Partitions, plural(int64(now.Partitions), "partition"), printSettings(now.Settings))
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&settings, "config", "c", nil, "setting as name=value; may be repeated")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "setting that goes back to its default; may be repeated")
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "the new number of partitions; it can only rise")
	return cmd
}

func topicDelete(conn *connection) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete TOPIC",
		Short:             "Delete a topic with its records",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if in, ok := cmd.InOrStdin().(*os.File); ok && !yes && terminal(in) {
				fmt.Fprintf(cmd.ErrOrStderr(), "Delete the topic %s with all its records? Type its name: ", args[0])
				answer, err := bufio.NewReader(in).ReadString('\n')
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				if strings.TrimSpace(answer) != args[0] {
					return errors.New("nothing was deleted")
				}
			}
			if err := c.Call(cmd.Context(), http.MethodDelete, topicPath(args[0]), nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "topic %s was deleted\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask, also at a terminal")
	return cmd
}
