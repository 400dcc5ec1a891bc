package client

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// partition as the API describes it.
type partition struct {
	Partition     int32   `json:"partition"`
	Leader        int32   `json:"leader"`
	LeaderEpoch   int32   `json:"leader_epoch"`
	Replicas      []int32 `json:"replicas"`
	InSync        []int32 `json:"in_sync"`
	LogStart      *int64  `json:"log_start_offset,omitempty"`
	HighWatermark *int64  `json:"high_watermark,omitempty"`
}

// partitionsPage is a page of the partitions of a topic.
type partitionsPage struct {
	Partitions []partition
	Next       string `json:"next_page_token"`
}

func topicDescribe(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show a topic's partitions and settings",
		Long: `Show a topic's partitions and settings. The directory is that of its records, below the data directory of each
node that has some; weir log dump takes one of the partitions in it.`,
		Args:              Arguments("TOPIC"),
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
			describe := describeTable
			if asJSON {
				describe = describeJSON
			}
			return errors.Join(describe(out, t, c.partitions(cmd.Context(), t.Name)), out.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one object")
	return cmd
}

// partitions walks the partitions of a topic, page by page. An error ends the walk.
func (c *Client) partitions(ctx context.Context, topic string) iter.Seq2[partition, error] {
	return func(yield func(partition, error) bool) {
		query := url.Values{"page_size": {"1000"}}
		for {
			var page partitionsPage
			if err := c.Call(ctx, http.MethodGet, topicPath(topic, "partitions")+"?"+query.Encode(), nil, &page); err != nil {
				yield(partition{}, err)
				return
			}
			for _, p := range page.Partitions {
				if !yield(p, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("page_token", page.Next)
		}
	}
}

func describeTable(out io.Writer, t Topic, partitions iter.Seq2[partition, error]) error {
	fmt.Fprintf(out, "name         %s\nid           %s\ndirectory    %s\npartitions   %d\nreplication  %d\ncreated      %s\n\n",
		t.Name, t.ID, directory(t.ID), t.Partitions, t.Replication, time.UnixMilli(t.CreatedAt).UTC().Format(time.RFC3339))
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PARTITION\tLEADER\tEPOCH\tIN SYNC\tSTART\tEND")
	for p, err := range partitions {
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%s\t%s\t%s\n", p.Partition, p.Leader, p.LeaderEpoch, numbers(p.InSync), known(p.LogStart), known(p.HighWatermark))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	table = tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "\nSETTING\tVALUE")
	for _, name := range slices.Sorted(maps.Keys(t.Effective)) {
		mark := ""
		if _, set := t.Settings[name]; set {
			mark = "\t(set)"
		}
		fmt.Fprintf(table, "%s\t%s%s\n", name, t.Effective[name], mark)
	}
	return table.Flush()
}

func describeJSON(out io.Writer, t Topic, partitions iter.Seq2[partition, error]) error {
	about := summary(t)
	about["effective_settings"] = t.Effective
	about["directory"] = directory(t.ID)
	all := []partition{}
	for p, err := range partitions {
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	about["partition_list"] = all
	return json.NewEncoder(out).Encode(about)
}

// directory of a topic below a data directory: its id in hexadecimal digits, because not every file system
// tells apart the letters of base64url.
func directory(id string) string {
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(raw) == 0 {
		return "-"
	}
	return "topics/" + hex.EncodeToString(raw)
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
