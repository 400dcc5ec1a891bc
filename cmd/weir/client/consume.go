package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// consuming is the flags of consume.
type consuming struct {
	conn      connection
	from      string
	offset    string
	partition int32
	follow    bool
	most      int64
	format    string
}

func consumeCommand() *cobra.Command {
	var c consuming
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic",
		Long: `Print the records of a topic: those that are there at the moment of the call, or with --follow also those
that come. The default is to begin with the earliest record, with --follow with what comes next.

--format value prints the bytes of each value and a line end; json prints a record a line, with its
partition, offset, key and headers. A lost connection is taken up again where it broke off, without a
record twice or left out.`,
		Example: `  weir consume greetings --from earliest --follow
  weir consume orders --partition 3 --offset -10
  weir consume orders --format json --max 100 | jq .value`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(&c.conn),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.conn.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.from, "from", "", "where to begin: earliest, latest, ts:<milliseconds>, -<n> for the last n of each partition, or a cursor")
	flags.StringVarP(&c.offset, "offset", "o", "", "where to begin in the partition: an offset, earliest, latest, ts:<milliseconds> or -<n>")
	flags.Int32VarP(&c.partition, "partition", "p", -1, "read this partition alone")
	flags.BoolVarP(&c.follow, "follow", "f", false, "go on with what comes")
	flags.Int64VarP(&c.most, "max", "n", 0, "end after this many records; 0: no end")
	flags.StringVar(&c.format, "format", "value", "value or json")
	cmd.MarkFlagsMutuallyExclusive("from", "offset")
	return cmd
}

func (c *consuming) check() error {
	switch {
	case c.format != "value" && c.format != "json":
		return fmt.Errorf("--format %q: must be value or json", c.format)
	case c.most < 0:
		return fmt.Errorf("--max %d: must not be negative", c.most)
	case c.offset != "" && c.partition < 0:
		return errors.New("--offset needs a --partition; --from begins in all of them")
	}
	return nil
}

func (c *consuming) run(cmd *cobra.Command, topic string) error {
	if err := c.check(); err != nil {
		return err
	}
	cl, err := c.conn.client()
	if err != nil {
		return err
	}
	from := c.from
	switch {
	case c.offset != "":
		from = c.offset
	case from == "" && c.follow:
		from = "latest"
	case from == "":
		from = "earliest"
	}
	out := bufio.NewWriterSize(output{cmd.OutOrStdout()}, 64<<10)
	printer := printer{w: out, asJSON: c.format == "json"}
	r := cl.reader(topic, c.partition, from)
	if printer.asJSON {
		r.format = "auto"
	}
	if !c.follow {
		if err := r.untilEnd(cmd.Context()); err != nil {
			return err
		}
	}
	return c.pump(cmd.Context(), r, &printer, cmd.ErrOrStderr())
}

// pump prints page after page. What was printed is flushed before the next page is asked for.
func (c *consuming) pump(ctx context.Context, r *reader, p *printer, diagnostics io.Writer) error {
	for n := int64(0); c.most == 0 || n < c.most; {
		most := int64(pageRecords)
		if c.most > 0 {
			most = min(most, c.most-n)
		}
		page, err := r.next(ctx, most, c.follow, diagnostics)
		if err != nil {
			return err
		}
		for _, g := range page.Gaps {
			fmt.Fprintf(diagnostics, "weir: partition %d has no offsets from %d up to %d: %s\n", g.Partition, g.From, g.To, g.Reason)
		}
		for _, record := range page.Records {
			if err := p.print(record); err != nil {
				return err
			}
		}
		n += int64(len(page.Records))
		if err := p.w.Flush(); err != nil {
			return err
		}
		if page.last {
			return nil
		}
	}
	return nil
}

// pageRecords is how many records are asked for at a time.
const pageRecords = 1000

// page is an answer to a read, of a topic or of one partition.
type page struct {
	Records    []json.RawMessage
	Cursor     string
	NextOffset *int64 `json:"next_offset"`
	CaughtUp   bool   `json:"caught_up"`
	Gaps       []struct {
		Partition int32
		From, To  int64
		Reason    string
	}
	last bool
}

// reader reads a topic, or one partition, page by page, and keeps the position in between.
type reader struct {
	client    *Client
	topic     string
	partition int32 // -1: all
	at        string
	begun     bool            // at is a cursor or an offset that a page gave
	format    string          // value_format
	ends      map[int32]int64 // where to stop, by partition; nil: never
}

func (c *Client) reader(topic string, partition int32, from string) *reader {
	return &reader{client: c, topic: topic, partition: partition, at: from, format: "base64"}
}

// untilEnd makes the reader stop where the log ends now.
func (r *reader) untilEnd(ctx context.Context) error {
	var offsets offsetsAnswer
	if err := r.client.Call(ctx, http.MethodGet, topicPath(r.topic, "offsets")+"?at=latest", nil, &offsets); err != nil {
		return err
	}
	r.ends = map[int32]int64{}
	for _, p := range offsets.Partitions {
		if (r.partition < 0 || p.Partition == r.partition) && p.LogStartOffset < p.Offset {
			r.ends[p.Partition] = p.Offset
		}
	}
	return nil
}

// offsetsAnswer is a position in every partition.
type offsetsAnswer struct {
	Partitions []struct {
		Partition      int32
		Offset         int64
		LogStartOffset int64 `json:"log_start_offset"`
		HighWatermark  int64 `json:"high_watermark"`
	}
}

// next asks for a page. With follow it waits for records, and tries again for as long as that makes sense.
func (r *reader) next(ctx context.Context, most int64, follow bool, diagnostics io.Writer) (*page, error) {
	for try := 0; ; try++ {
		var p page
		err := r.client.get(ctx, r.path(most, follow), follow, &p)
		if err == nil {
			r.move(&p)
			return &p, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !follow || !retryable(err) || try == 0 && !r.begun {
			return nil, err
		}
		wait := backoff(try)
		if try == 0 {
			fmt.Fprintf(diagnostics, "weir: %v; trying again\n", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// backoff is the pause before a try: from a tenth of a second up to 5 s, and never the same for everyone.
func backoff(try int) time.Duration {
	most := min(100*time.Millisecond<<min(try, 10), 5*time.Second)
	return most/2 + rand.N(most/2)
}

// pageWait is how long a node may wait for records before it answers an empty page.
const pageWait = 20 * time.Second

// get reads one page. The time that the node may wait comes on top of the client's timeout.
func (c *Client) get(ctx context.Context, path string, follow bool, p *page) error {
	waiting := *c
	if follow {
		waiting.timeout += pageWait
	}
	return waiting.Call(ctx, http.MethodGet, path, nil, p)
}

// path is the address of the next page.
func (r *reader) path(most int64, follow bool) string {
	q := url.Values{"max_records": {strconv.FormatInt(most, 10)}, "value_format": {r.format}, "wait_ms": {"0"}}
	if follow {
		q.Set("wait_ms", strconv.FormatInt(pageWait.Milliseconds(), 10))
	}
	if r.partition >= 0 {
		q.Set("offset", r.at)
		return topicPath(r.topic, "partitions", strconv.Itoa(int(r.partition)), "records") + "?" + q.Encode()
	}
	if r.begun {
		q.Set("cursor", r.at)
	} else {
		q.Set("from", r.at)
	}
	return topicPath(r.topic, "records") + "?" + q.Encode()
}

// move takes the position over from a page, and marks the last one.
func (r *reader) move(p *page) {
	r.begun = true
	if r.partition >= 0 && p.NextOffset != nil {
		r.at = strconv.FormatInt(*p.NextOffset, 10)
	} else if p.Cursor != "" {
		r.at = p.Cursor
	}
	if r.ends == nil {
		return
	}
	if len(p.Records) == 0 && len(p.Gaps) == 0 {
		p.last = true
		return
	}
	kept := p.Records[:0]
	for _, raw := range p.Records {
		var at struct {
			Partition *int32
			Offset    int64
		}
		if json.Unmarshal(raw, &at) != nil {
			kept = append(kept, raw)
			continue // the printer says what is wrong with it
		}
		partition := r.partition
		if at.Partition != nil {
			partition = *at.Partition
		}
		end, known := r.ends[partition]
		if known && at.Offset >= end-1 {
			delete(r.ends, partition)
		}
		if known && at.Offset < end {
			kept = append(kept, raw)
		}
	}
	p.Records = kept
	p.last = len(r.ends) == 0 || p.CaughtUp
}

// printer writes records.
type printer struct {
	w      *bufio.Writer
	asJSON bool
}

// print writes one record and a line end: in JSON the record as it came, else the bytes of its value.
func (p *printer) print(raw json.RawMessage) error {
	if p.asJSON {
		// A line end inside of JSON can only be white space.
		for i, c := range raw {
			if c == '\n' || c == '\r' {
				raw[i] = ' '
			}
		}
		_, err := p.w.Write(append(raw, '\n'))
		return err
	}
	var record struct {
		Value *[]byte // base64 in JSON
	}
	if err := json.Unmarshal(raw, &record); err != nil {
		return fmt.Errorf("the node sent a record that is not as expected: %w", err)
	}
	value := []byte("null") // a tombstone
	if record.Value != nil {
		value = *record.Value
	}
	if _, err := p.w.Write(value); err != nil {
		return err
	}
	return p.w.WriteByte('\n')
}
