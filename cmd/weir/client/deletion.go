package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// deletion is what the commands share that destroy something.
type deletion struct{ yes bool }

func (d *deletion) register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask; needed where nobody can be asked")
}

// confirm asks whether to go on, at a terminal. Elsewhere only --yes is an answer: a script that feeds a
// command its input has not agreed to anything.
func (d *deletion) confirm(cmd *cobra.Command, what, kind, name string) error {
	if d.yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !terminal(in) {
		return fmt.Errorf("nothing was deleted: this deletes %s; say --yes if you mean it", what)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This deletes %s. Type the name of the %s to go on: ", what, kind)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != name {
		return errors.New("nothing was deleted")
	}
	return nil
}

func topicDelete(conn *connection) *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:               "delete TOPIC",
		Short:             "Delete a topic with its records",
		Args:              Arguments("TOPIC"),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := d.confirm(cmd, "the topic "+args[0]+" with all its records", "topic", args[0]); err != nil {
				return err
			}
			if err := c.Call(cmd.Context(), http.MethodDelete, topicPath(args[0]), nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(output{cmd.OutOrStdout()}, "topic %s was deleted\n", args[0])
			return err
		},
	}
	d.register(cmd)
	return cmd
}

// recordsDeleted is the answer to a deletion of records.
type recordsDeleted struct {
	Partitions []struct {
		Partition int32
		LogStart  int64 `json:"log_start_offset"`
		Error     *Problem
	}
}

func topicDeleteRecords(conn *connection) *cobra.Command {
	var d deletion
	var partition int32
	var before string
	cmd := &cobra.Command{
		Use:   "delete-records TOPIC",
		Short: "Delete the oldest records of a partition",
		Long: `Delete the records of a partition that are before an offset. They cannot be read any more when the command
returns; the disk gets its room back segment by segment, within seconds.`,
		Example: `  weir topic delete-records orders --partition 3 --before 10422
  weir topic delete-records orders --partition 3 --before latest --yes`,
		Args:              Arguments("TOPIC"),
		ValidArgsFunction: completeTopics(conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNumber(cmd, "partition", int64(partition), 0); err != nil {
				return err
			}
			offset, err := strconv.ParseInt(before, 10, 64)
			what := fmt.Sprintf("the records of partition %d of %s before offset %d", partition, args[0], offset)
			switch {
			case before == "latest":
				offset = -1 // the API's word for it
				what = fmt.Sprintf("all records of partition %d of %s", partition, args[0])
			case err != nil || offset < 0:
				return fmt.Errorf("--before %q: must be an offset, the first that stays, or latest", before)
			}
			c, err := conn.client()
			if err != nil {
				return err
			}
			if err := d.confirm(cmd, what, "topic", args[0]); err != nil {
				return err
			}
			body := map[string]any{"partitions": []any{map[string]any{"partition": partition, "before_offset": offset}}}
			var done recordsDeleted
			if err := c.Call(cmd.Context(), http.MethodPost, topicPath(args[0], "delete-records"), body, &done); err != nil {
				return err
			}
			for _, p := range done.Partitions {
				if p.Error != nil {
					return p.Error
				}
				if _, err := fmt.Fprintf(output{cmd.OutOrStdout()}, "partition %d of %s begins at offset %d now\n", p.Partition, args[0], p.LogStart); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().Int32VarP(&partition, "partition", "p", 0, "partition to delete from")
	cmd.Flags().StringVar(&before, "before", "", "first offset that stays, or latest to delete all there are")
	_ = cmd.MarkFlagRequired("partition") // fails only for a flag that is not there
	_ = cmd.MarkFlagRequired("before")
	d.register(cmd)
	return cmd
}
