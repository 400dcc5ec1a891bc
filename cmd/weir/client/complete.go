package client

import (
	"context"
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
