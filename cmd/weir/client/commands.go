package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// DefaultServer is the node that is asked when nobody names one.
const DefaultServer = "http://127.0.0.1:8080"

// ErrOutputClosed says that whoever read the output has gone: nothing went wrong, and nothing is left to do.
var ErrOutputClosed = errors.New("the output was closed")

// Commands are those that ask a running node.
func Commands() []*cobra.Command {
	return []*cobra.Command{topicCommand(), produceCommand(), consumeCommand(), groupCommand(), benchCommand(), healthCommand()}
}

// connection is the flags that say which node is asked.
type connection struct {
	server  string
	timeout time.Duration
}

func (c *connection) register(cmd *cobra.Command) {
	server := os.Getenv("WEIR_SERVER")
	if server == "" {
		server = DefaultServer
	}
	flags := cmd.PersistentFlags()
	flags.StringVarP(&c.server, "server", "s", server, "node to ask (WEIR_SERVER)")
	flags.DurationVar(&c.timeout, "timeout", 30*time.Second, "longest wait for an answer, or for progress of a stream")
}

func (c *connection) client() (*Client, error) { return New(c.server, c.timeout) }

// output is where records go. A reader that has gone is ErrOutputClosed.
type output struct{ w io.Writer }

func (o output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		err = ErrOutputClosed
	}
	return n, err
}

// terminal says whether a file is something that a person looks at.
func terminal(f *os.File) bool {
	return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
}

func healthCommand() *cobra.Command {
	var conn connection
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a node whether it is ready to serve; the exit code says so",
		Args:  Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			path, word := "/readyz", "ready"
			if live {
				path, word = "/healthz", "alive"
			}
			if err := c.Call(cmd.Context(), "GET", path, nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "%s is %s\n", c.base, word)
			return err
		},
	}
	conn.register(cmd)
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the process is alive")
	return cmd
}
