package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

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

func topicCommand() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{Use: "topic", Aliases: []string{"topics"}, Short: "Create, list, describe, alter and delete topics"}
	conn.register(cmd)
	return Group(cmd, topicCreate(&conn), topicList(&conn), topicDescribe(&conn), topicAlter(&conn), topicDelete(&conn), topicDeleteRecords(&conn))
}

func topicCreate(conn *connection) *cobra.Command {
	var partitions, replication int
	var settings []string
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "Make a topic",
		Example: "  weir topic create orders --partitions 6 --config retention.ms=86400000",
		Args:    Arguments("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := errors.Join(checkNumber(cmd, "partitions", int64(partitions), 0), checkNumber(cmd, "replication", int64(replication), 0)); err != nil {
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
		Args:    Arguments(),
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
	return map[string]any{
		"name": t.Name, "id": t.ID, "partitions": t.Partitions, "replication": t.Replication, "settings": t.Settings,
		"created_at": t.CreatedAt, "internal": t.Internal,
	}
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

func topicAlter(conn *connection) *cobra.Command {
	var partitions int
	var settings, unset []string
	cmd := &cobra.Command{
		Use:               "alter TOPIC",
		Short:             "Change a topic's settings or add partitions",
		Example:           "  weir topic alter orders --config retention.ms=3600000 --unset cleanup.policy --partitions 12",
		Args:              Arguments("TOPIC"),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := checkNumber(cmd, "partitions", int64(partitions), 1); err != nil {
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
