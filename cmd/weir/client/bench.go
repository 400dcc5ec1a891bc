package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// benching is the flags of bench.
type benching struct {
	conn        connection
	topic       string
	keep        bool
	connections int
	batch       int
	size        int
	partitions  int
	acks        string
	span        time.Duration
	mostBytes   int64
}

func benchCommand() *cobra.Command {
	var b benching
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Produce to a node and read it back, as fast as it goes, for a bounded time",
		Long: `Produce to a node and read it back as fast as it goes, and print rates and latencies.

The load goes to a topic of its own, which is deleted afterwards. It ends after --duration or --max-bytes,
whichever comes first, and then reads everything back once. Client and node share what the machine has,
so the figures say what this machine does with both on it.`,
		Args: Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.conn.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&b.topic, "topic", "", "topic to make and use; the default is a new name")
	flags.BoolVar(&b.keep, "keep", false, "do not delete the topic afterwards")
	flags.IntVar(&b.connections, "connections", 16, "producers at work at the same time")
	flags.IntVar(&b.batch, "batch", 100, "records a request")
	flags.IntVar(&b.size, "size", 200, "bytes of a record's value")
	flags.IntVar(&b.partitions, "partitions", 1, "partitions of the topic")
	flags.StringVar(&b.acks, "acks", "all", "when a record counts as stored: all, leader or none")
	flags.DurationVar(&b.span, "duration", 5*time.Second, "longest time to produce")
	flags.Int64Var(&b.mostBytes, "max-bytes", 1<<30, "most bytes of values to produce")
	return cmd
}

func (b *benching) check() error {
	var mistakes []error
	bound := func(flag string, value, least, most int64) {
		if value < least || value > most {
			mistakes = append(mistakes, fmt.Errorf("--%s %d: must be from %d to %d", flag, value, least, most))
		}
	}
	bound("connections", int64(b.connections), 1, 1000)
	bound("batch", int64(b.batch), 1, 10_000)
	bound("size", int64(b.size), 1, 1<<20)
	bound("partitions", int64(b.partitions), 1, 1000)
	bound("max-bytes", b.mostBytes, 1, 1<<40)
	if b.span <= 0 || b.span > 10*time.Minute {
		mistakes = append(mistakes, fmt.Errorf("--duration %v: must be more than 0 and at most 10m", b.span))
	}
	return errors.Join(mistakes...)
}

func (b *benching) run(cmd *cobra.Command) error {
	if err := b.check(); err != nil {
		return err
	}
	c, err := b.conn.client()
	if err != nil {
		return err
	}
	if b.topic == "" {
		b.topic = "weir-bench-" + rand.Text()[:8]
	}
	ctx := cmd.Context()
	creation := map[string]any{"name": b.topic, "partitions": b.partitions}
	if err := c.Call(ctx, http.MethodPost, "/v1/topics", creation, nil); err != nil {
		return err
	}
	err = b.measure(ctx, c, output{cmd.OutOrStdout()})
	if b.keep {
		return err
	}
	// Also after an interrupt: a bench leaves nothing behind.
	return errors.Join(err, c.Call(context.WithoutCancel(ctx), http.MethodDelete, topicPath(b.topic), nil, nil))
}

func (b *benching) measure(ctx context.Context, c *Client, out io.Writer) error {
	fmt.Fprintf(out, "%d connections, %d records of %d bytes a request, %d %s, acks=%s\n",
		b.connections, b.batch, b.size, b.partitions, plural(int64(b.partitions), "partition"), b.acks)
	produced, err := b.produce(ctx, c)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, produced.line("produce")); err != nil {
		return err
	}
	if b.acks == "none" {
		return nil // nobody knows how much there is to read
	}
	consumed, err := b.consume(ctx, c)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, consumed.line("consume")); err != nil {
		return err
	}
	if consumed.records != produced.records {
		return fmt.Errorf("%d records were acknowledged, but %d came back", produced.records, consumed.records)
	}
	return nil
}

// tally is what one side of the bench did.
type tally struct {
	records   int64
	bytes     int64
	elapsed   time.Duration
	latencies []time.Duration // a request each
}

func (t *tally) line(what string) string {
	slices.Sort(t.latencies)
	seconds := max(t.elapsed.Seconds(), 1e-9)
	return fmt.Sprintf("%s  %10.0f records/s  %8.1f MB/s  request p50 %s  p95 %s  p99 %s  max %s  (%d records in %.1f s)",
		what, float64(t.records)/seconds, float64(t.bytes)/seconds/1e6,
		t.percentile(50), t.percentile(95), t.percentile(99), t.percentile(100), t.records, seconds)
}

// percentile is the smallest latency that p of a hundred requests did not exceed. The latencies are sorted.
func (t *tally) percentile(p int) string {
	if len(t.latencies) == 0 {
		return "-"
	}
	i := max((len(t.latencies)*p+99)/100-1, 0)
	return fmt.Sprintf("%.2fms", float64(t.latencies[i])/float64(time.Millisecond))
}

// produce lets every connection send one request after the other until the time or the bytes are used up.
func (b *benching) produce(ctx context.Context, c *Client) (*tally, error) {
	body := b.body()
	path := topicPath(b.topic, "records") + "?" + url.Values{"acks": {b.acks}}.Encode()
	perRequest := int64(b.batch) * int64(b.size)
	var (
		sum    tally
		mu     sync.Mutex
		wg     sync.WaitGroup
		failed error
		budget atomic.Int64
	)
	budget.Store(b.mostBytes)
	start := time.Now()
	for range b.connections {
		wg.Go(func() {
			var own tally
			for time.Since(start) < b.span && budget.Add(-perRequest) > -perRequest {
				began := time.Now()
				var answer struct{ Stored int64 }
				err := c.Call(ctx, http.MethodPost, path, body, &answer)
				own.latencies = append(own.latencies, time.Since(began))
				if err != nil || answer.Stored != int64(b.batch) && b.acks != "none" {
					if err == nil {
						err = fmt.Errorf("%d of %d records were stored", answer.Stored, b.batch)
					}
					mu.Lock()
					failed = cmp.Or(failed, err) // the others say the same
					mu.Unlock()
					break
				}
				own.records += int64(b.batch)
				own.bytes += perRequest
			}
			mu.Lock()
			defer mu.Unlock()
			sum.records += own.records
			sum.bytes += own.bytes
			sum.latencies = append(sum.latencies, own.latencies...)
		})
	}
	wg.Wait()
	sum.elapsed = time.Since(start)
	return &sum, failed
}

// body is the request that every producer repeats.
func (b *benching) body() json.RawMessage {
	value := make([]byte, b.size)
	for i := range value {
		value[i] = "weir keeps events. "[i%19]
	}
	record := fmt.Sprintf(`{"value":%q,"value_encoding":"string"}`, value)
	body := []byte(`{"records":[`)
	for i := range b.batch {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, record...)
	}
	return append(body, "]}"...)
}

// consume reads every partition once, side by side.
func (b *benching) consume(ctx context.Context, c *Client) (*tally, error) {
	var (
		sum    tally
		mu     sync.Mutex
		wg     sync.WaitGroup
		failed error
	)
	start := time.Now()
	for partition := range b.partitions {
		wg.Go(func() {
			own, err := b.read(ctx, c, partition)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			sum.records += own.records
			sum.bytes += own.bytes
			sum.latencies = append(sum.latencies, own.latencies...)
		})
	}
	wg.Wait()
	sum.elapsed = time.Since(start)
	return &sum, failed
}

func (b *benching) read(ctx context.Context, c *Client, partition int) (tally, error) {
	var own tally
	for next := int64(0); ; {
		path := topicPath(b.topic, "partitions", strconv.Itoa(partition), "records") + "?max_records=5000&max_bytes=4194304&wait_ms=0&offset=" + strconv.FormatInt(next, 10)
		began := time.Now()
		var p struct {
			Records    []struct{ Value json.RawMessage }
			NextOffset int64 `json:"next_offset"`
		}
		if err := c.Call(ctx, http.MethodGet, path, nil, &p); err != nil {
			return own, err
		}
		if len(p.Records) == 0 {
			return own, nil
		}
		own.latencies = append(own.latencies, time.Since(began))
		own.records += int64(len(p.Records))
		own.bytes += int64(len(p.Records)) * int64(b.size)
		next = p.NextOffset
	}
}
