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
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// consuming is the flags of consume.
type consuming struct {
	grouping
	conn      connection
	from      string
	offset    string
	partition int32
	follow    bool
	most      int64
	format    string
	position  bool
}

func consumeCommand() *cobra.Command {
	var c consuming
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print the records of a topic, alone or as a member of a group",
		Long: `Print the records of a topic: those that are there at the moment of the call, or with --follow also those
that come. The default is to begin with the earliest record, with --follow with what comes next.

--format value prints the bytes of each value and a line end; json prints a record a line, with its
partition, offset, key and headers. A lost connection is taken up again where it broke off, without a
record twice or left out. --print-position says at the end how a later call goes on behind the last record printed.

Several topics need a --group. With it the position is the group's: the command joins it as a member, gets its share of the partitions of all
topics named, and goes on where the group stands; --from says where a new group begins. What was printed is
acknowledged after it has left the process, so records may come twice after a crash, and none is left out; --ack auto turns that
round. It follows until it is interrupted, or with --follow=false until nothing is left, and leaves the group at its
end. When another process joins as the same --member, this one ends with exit code 3.`,
		Example: `  weir consume greetings --from earliest --follow
  weir consume orders --partition 3 --offset -10
  weir consume orders --from ts:2026-03-01T00:00:00Z
  weir consume orders --format json --max 100 | jq .value
  weir consume orders payments --group billing --member worker-1`,
		Args: c.arguments,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if c.group != "" {
				args = nil // a member takes any number
			}
			return completeTopics(&c.conn)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkNumber(cmd, "partition", int64(c.partition), 0), c.checkGroup(cmd, len(args)), c.check()); err != nil {
				return err
			}
			if c.group != "" {
				return c.runGroup(cmd, args)
			}
			return c.run(cmd, args[0])
		},
	}
	c.conn.register(cmd)
	c.registerGroup(cmd, &c.conn)
	flags := cmd.Flags()
	flags.StringVar(&c.from, "from", "", "where to begin: earliest, latest, ts:<time> as RFC 3339 or in milliseconds, -<n> for the last n of each partition, or a cursor")
	flags.StringVarP(&c.offset, "offset", "o", "", "where to begin in the partition: an offset, earliest, latest, ts:<time> or -<n>")
	flags.Int32VarP(&c.partition, "partition", "p", -1, "read this partition alone")
	flags.BoolVarP(&c.follow, "follow", "f", false, "go on with what comes")
	flags.Int64VarP(&c.most, "max", "n", 0, "end after this many records; 0: no end")
	flags.StringVar(&c.format, "format", "value", "value or json")
	flags.BoolVar(&c.position, "print-position", false, "at the end print the flags that go on from there, on the standard error")
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
	cl, err := c.conn.client()
	if err != nil {
		return err
	}
	from, err := c.begin()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(output{cmd.OutOrStdout()}, 64<<10)
	printer := printer{w: out, asJSON: c.format == "json"}
	r := cl.reader(topic, c.partition, from)
	if printer.asJSON {
		r.format = "auto"
	}
	r.whole = c.position
	if !c.follow {
		if err := r.untilEnd(cmd.Context()); err != nil {
			return err
		}
	}
	return c.pump(cmd.Context(), r, &printer, cmd.ErrOrStderr())
}

// begin is where to begin, as the API takes it.
func (c *consuming) begin() (string, error) {
	switch {
	case c.offset != "":
		if _, err := strconv.ParseUint(c.offset, 10, 63); err == nil {
			return c.offset, nil
		}
		return place("--offset", c.offset, "an offset, earliest, latest, ts:<time> or -<n> for the last n")
	case c.from != "":
		if strings.HasPrefix(c.from, "c") {
			return c.from, nil
		}
		return place("--from", c.from, "earliest, latest, ts:<time>, -<n> for the last n of each partition, or a cursor")
	case c.follow:
		return "latest", nil
	default:
		return "earliest", nil
	}
}

// place reads what --from and --offset both take.
func place(flag, text, takes string) (string, error) {
	if text == "earliest" || text == "latest" {
		return text, nil
	}
	if at, is := strings.CutPrefix(text, "ts:"); is {
		return instant(at)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < 0 {
		return text, nil
	}
	return "", fmt.Errorf("%s %q: must be %s", flag, text, takes)
}

// leastMillis is in 1973, and as seconds in the year 5138: a number below was meant as seconds.
const leastMillis = 100_000_000_000

// instant turns a time of RFC 3339 into the milliseconds that every node takes.
func instant(text string) (string, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n != 0 && n < leastMillis {
			return "", fmt.Errorf("ts:%s is %s: a number is in milliseconds since 1970; did you mean ts:%s000?", text, time.UnixMilli(n).UTC().Format(time.RFC3339), text)
		}
		return "ts:" + text, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "", fmt.Errorf("ts:%s: must be a time such as ts:2026-03-01T00:00:00Z, or milliseconds since 1970", text)
	}
	return "ts:" + strconv.FormatInt(at.UnixMilli(), 10), nil
}

// pump prints page after page. What was printed is flushed before the next page is asked for.
func (c *consuming) pump(ctx context.Context, r *reader, p *printer, diagnostics io.Writer) error {
	position := ""
	if c.position {
		defer func() {
			if position != "" {
				fmt.Fprintln(diagnostics, "weir: go on with", position)
			}
		}()
	}
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
		position = r.position()
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
	Gaps       []gap
	last       bool
}

// gap is a range of offsets that a page steps over.
type gap struct {
	Topic     string // in a group's page alone
	Partition int32
	From, To  int64
	Reason    string
}

// reader reads a topic, or one partition, page by page, and keeps the position in between.
type reader struct {
	client    *Client
	topic     string
	partition int32 // -1: all
	at        string
	begun     bool            // at is a cursor or an offset that a page gave
	format    string          // value_format
	whole     bool            // pages are not cut where reading ends, so that at is behind what was returned
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

// position is the flags that begin where the reader stands; empty before the first page.
func (r *reader) position() string {
	switch {
	case !r.begun:
		return ""
	case r.partition >= 0:
		return fmt.Sprintf("--partition %d --offset %s", r.partition, r.at)
	default:
		return "--from " + r.at
	}
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
		if r.whole || known && at.Offset < end {
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
