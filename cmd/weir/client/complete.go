package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// completeTopics offers the names of topics on the command line. A shell that waits gets an answer within
// a second, or nothing.
func completeTopics(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := New(conn.server, time.Second)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var page topicsPage
		if c.Call(ctx, http.MethodGet, "/v1/topics?"+url.Values{"page_size": {"200"}}.Encode(), nil, &page) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, t := range page.Topics {
			names = append(names, t.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGroups offers the names of groups where one is wanted as the first argument, and behind it nothing.
func completeGroups(conn *connection) cobra.CompletionFunc {
	names := groupNames(conn)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, args, prefix)
	}
}

// groupNames offers the names of groups, as completeTopics does those of topics.
func groupNames(conn *connection) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := New(conn.server, time.Second)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var names []string
		for raw, err := range c.groups(ctx, 200) {
			var g groupSummary
			if err != nil || json.Unmarshal(raw, &g) != nil || len(names) == 200 {
				break
			}
			names = append(names, g.Group)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
