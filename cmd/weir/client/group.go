package client

import (
	"bufio"
	"cmp"
	"context"
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
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// groupSummary is a group in the list.
type groupSummary struct {
	Group   string `json:"group"`
	State   string `json:"state"`
	Members int    `json:"members"`
	Epoch   int64  `json:"epoch"`
}

// groupsPage is a page of the list of groups.
type groupsPage struct {
	Groups []json.RawMessage
	Next   string `json:"next_page_token"`
}

// group as the API describes it, as far as the table shows it.
type group struct {
	Group      string
	State      string
	Epoch      int64
	Lag        *int64
	Settings   map[string]string
	Effective  map[string]string `json:"effective_settings"`
	Members    []groupMember
	Partitions []groupPartition
}

// groupMember is a member of a group.
type groupMember struct {
	Member      string
	Kind        string
	Node        int32
	LastPoll    int64 `json:"last_poll"`
	SessionEnds int64 `json:"session_ends"`
	Assignment  []assigned
	Leaving     []assigned
	WaitingFor  []waitingFor `json:"waiting_for"`
	Missing     []string     `json:"missing_topics"`
}

// groupPartition is a group's position in a partition. What is not known is nil.
type groupPartition struct {
	Topic     string
	Partition int32
	Committed *int64 `json:"committed_offset"`
	End       *int64 `json:"end_offset"`
	Lag       *int64
	Member    string
}

func groupCommand() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:     "group",
		Aliases: []string{"groups"},
		Short:   "List, describe, move and delete consumer groups",
	}
	conn.register(cmd)
	return Group(cmd, groupList(&conn), groupDescribe(&conn), groupSeek(&conn), groupAlter(&conn), groupRemoveMember(&conn), groupDelete(&conn))
}

// oneGroup takes the name of a group as the only argument.
func oneGroup(cmd *cobra.Command, args []string) error {
	if err := Arguments("GROUP")(cmd, args); err != nil {
		return err
	}
	return checkWord("GROUP", args[0])
}

// checkWord refuses what openapi.yaml does not call the name of a group or a member, before it becomes a part
// of an address.
func checkWord(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s must not be empty", what)
	case len(name) > 249 || name == "." || name == ".." || !utf8.ValidString(name) ||
		strings.ContainsAny(name, `/\`) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf(`%s %.80q: must have 1 to 249 bytes of UTF-8 without '/', '\' and control characters, and not be "." or ".."`, what, name)
	default:
		return nil
	}
}

func groupList(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the groups",
		Args:    Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			out := bufio.NewWriter(output{cmd.OutOrStdout()})
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(table, "GROUP\tSTATE\tMEMBERS\tEPOCH")
			}
			for raw, err := range c.groups(cmd.Context(), 500) {
				if err != nil {
					return err
				}
				if asJSON {
					if err := json.NewEncoder(out).Encode(raw); err != nil {
						return err
					}
					continue
				}
				var g groupSummary
				if err := json.Unmarshal(raw, &g); err != nil {
					return fmt.Errorf("the node sent a group that is not as expected: %w", err)
				}
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", g.Group, g.State, g.Members, g.Epoch)
			}
			return errors.Join(table.Flush(), out.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object a line")
	return cmd
}

// groups walks the list of groups, page by page. An error ends the walk.
func (c *Client) groups(ctx context.Context, size int) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		query := url.Values{"page_size": {strconv.Itoa(size)}}
		for {
			var page groupsPage
			if err := c.Call(ctx, http.MethodGet, "/v1/groups?"+query.Encode(), nil, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, g := range page.Groups {
				if !yield(g, nil) {
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

func groupDescribe(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's members, and its position and lag in each partition",
		Long: `Show a group's members, and its position and lag in each partition.

The lag is how many offsets are between the position and the end of the partition; where nothing is committed, from the
partition's start. A member that waits for a partition is shown with who has still to give it up.`,
		Args:              oneGroup,
		ValidArgsFunction: completeGroups(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := c.Call(cmd.Context(), http.MethodGet, groupPath(args[0]), nil, &raw); err != nil {
				return err
			}
			out := bufio.NewWriter(output{cmd.OutOrStdout()})
			if asJSON {
				return errors.Join(json.NewEncoder(out).Encode(raw), out.Flush())
			}
			var g group
			if err := json.Unmarshal(raw, &g); err != nil {
				return fmt.Errorf("the node sent a group that is not as expected: %w", err)
			}
			return errors.Join(g.table(out), out.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one object, as the API gives it")
	return cmd
}

// table prints a group for a person.
func (g *group) table(out io.Writer) error {
	fmt.Fprintf(out, "group    %s\nstate    %s\nepoch    %d\nmembers  %d\nlag      %s\n", g.Group, g.State, g.Epoch, len(g.Members), known(g.Lag))
	for _, name := range slices.Sorted(maps.Keys(g.Settings)) {
		fmt.Fprintf(out, "setting  %s=%s\n", name, g.Settings[name])
	}
	if len(g.Members) > 0 {
		table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "\nMEMBER\tKIND\tNODE\tREADS\tLAST POLL\tSESSION ENDS")
		for _, m := range g.Members {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n", m.Member, m.Kind, m.Node, cmp.Or(shares(m.Assignment), "-"), moment(m.LastPoll), moment(m.SessionEnds))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	g.waiting(out)
	g.missing(out)
	if len(g.Partitions) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "\nTOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER")
	for _, p := range g.Partitions {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", p.Topic, p.Partition, known(p.Committed), known(p.End), known(p.Lag), cmp.Or(p.Member, "-"))
	}
	return table.Flush()
}

// waiting says who waits for whom.
func (g *group) waiting(out io.Writer) {
	line := "\n"
	for _, m := range g.Members {
		for _, w := range m.WaitingFor {
			fmt.Fprintf(out, "%s%s waits for %s, which %s has still to give up\n", line, m.Member, spot(w.Topic, w.Partition), w.Member)
			line = ""
		}
	}
}

// missing says who asked for topics that do not exist: names may be mistyped.
func (g *group) missing(out io.Writer) {
	line := "\n"
	for _, m := range g.Members {
		for _, topic := range m.Missing {
			fmt.Fprintf(out, "%s%s asks for topic %s, which does not exist\n", line, m.Member, topic)
			line = ""
		}
	}
}

// shares is what a member reads: each topic with its partitions, runs of them as first-last.
func shares(all []assigned) string {
	var b strings.Builder
	for _, a := range all {
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		b.WriteString(a.Topic + "/" + runs(a.Partitions))
	}
	return b.String()
}

func runs(partitions []int32) string {
	var words []string
	for i := 0; i < len(partitions); {
		last := i
		for last+1 < len(partitions) && partitions[last+1] == partitions[last]+1 {
			last++
		}
		word := strconv.Itoa(int(partitions[i]))
		if last > i {
			word += "-" + strconv.Itoa(int(partitions[last]))
		}
		words = append(words, word)
		i = last + 1
	}
	return strings.Join(words, ",")
}

// moment is a time of the API for a person.
func moment(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
