package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxLine bounds a line of input: no topic takes a larger record, in its worst encoding.
const maxLine = 64 << 20

// producing is the flags of produce.
type producing struct {
	conn      connection
	key       string
	separator string
	asJSON    bool
	file      string
	partition int32
	acks      string
	idem      string
	quiet     bool
	keyed     bool // key was given
}

func produceCommand() *cobra.Command {
	var p producing
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Store a record for each line of input",
		Long: `Store a record for each line of input, as it comes: the lines of a pipe, a file, or of what you type.

The value of a record is the line's own bytes without its end. With --json a line is a whole record,
{"key":"k","value":{"n":1},"headers":{"h":"v"}}, as the API takes it. The exit code is 0 when every
record was stored.

When the node goes away in the middle the command ends with an error, and some records may be stored. It does not
begin again by itself, because a pipe cannot be read twice. Run it with --idempotency-key from the start, and after
an error again with the same key and the same input: what is stored already is not stored twice, for as long as the
node remembers the key (its setting idempotency.window, 10 minutes).`,
		Example: `  echo hello | weir produce greetings
  weir produce orders --file orders.ndjson --json
  printf 'ann:1\nbob:2\n' | weir produce scores --key-separator :`,
		Args:              Arguments("TOPIC"),
		ValidArgsFunction: completeTopics(&p.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNumber(cmd, "partition", int64(p.partition), 0); err != nil {
				return err
			}
			p.keyed = cmd.Flags().Changed("key")
			return p.run(cmd, args[0])
		},
	}
	p.conn.register(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&p.key, "key", "k", "", "key of every record")
	flags.StringVar(&p.separator, "key-separator", "", "what stands in each line between its key and its value")
	flags.BoolVar(&p.asJSON, "json", false, "a line is a whole record in JSON")
	flags.StringVarP(&p.file, "file", "f", "-", "file to read; - is the standard input")
	flags.Int32VarP(&p.partition, "partition", "p", -1, "partition of every record; the default leaves it to the key")
	flags.StringVar(&p.acks, "acks", "all", "when a record counts as stored: all, leader or none")
	flags.StringVar(&p.idem, "idempotency-key", "", "name of this input, so that a second try stores only what is missing")
	flags.BoolVarP(&p.quiet, "quiet", "q", false, "print nothing when all went well")
	cmd.MarkFlagsMutuallyExclusive("key", "key-separator", "json")
	return cmd
}

func (p *producing) run(cmd *cobra.Command, topic string) error {
	c, err := p.conn.client()
	if err != nil {
		return err
	}
	in, size, closeInput, err := openInput(p.file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer closeInput()
	bar := newProgress(cmd.ErrOrStderr(), size, in)
	defer bar.stop()

	query := url.Values{"acks": {p.acks}}
	receipt, err := c.Stream(cmd.Context(), topic, query, p.idem, func(w *bufio.Writer) error {
		return p.encode(w, in, bar)
	})
	bar.stop()
	if err != nil {
		return err
	}
	for _, e := range receipt.Errors {
		fmt.Fprintf(cmd.ErrOrStderr(), "line %d: %s\n", e.Line, e.Error.Error())
	}
	if !p.quiet {
		if err := receipt.print(output{cmd.OutOrStdout()}, topic, p.acks); err != nil {
			return err
		}
	}
	if receipt.Error != nil {
		return fmt.Errorf("the node stopped after line %d: %w", receipt.LastLine, receipt.Error)
	}
	if receipt.Failed > 0 {
		return fmt.Errorf("%d of %d records were not stored", receipt.Failed, receipt.Failed+receipt.Stored)
	}
	return nil
}

// openInput opens a file or takes the standard input. size is -1 where it is not known.
func openInput(name string, stdin io.Reader) (in io.Reader, size int64, done func(), err error) {
	if name == "-" {
		return stdin, -1, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, nil, err
	}
	size = -1
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, func() { _ = f.Close() }, nil // it was only read
}

// encode writes a record of NDJSON for each line of input. It flushes when the input has nothing more at
// hand, so that a record typed is a record sent.
func (p *producing) encode(w *bufio.Writer, in io.Reader, bar *progress) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	var buf []byte
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return w.Flush()
		}
		if err != nil {
			return fmt.Errorf("line %d of the input: %w", n, err)
		}
		buf, err = p.record(buf[:0], line)
		if err != nil {
			return fmt.Errorf("line %d of the input: %w", n, err)
		}
		if _, err := w.Write(append(buf, '\n')); err != nil {
			return err
		}
		bar.add(len(line) + 1)
		if lines.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// readLine returns the next line without its end. The last may lack one.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLine {
			line, err = r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	switch {
	case len(line) > maxLine:
		return nil, fmt.Errorf("is longer than %d bytes", maxLine)
	case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
		return nil, err
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// record appends a line's record to buf.
func (p *producing) record(buf, line []byte) ([]byte, error) {
	if p.asJSON {
		if p.partition >= 0 {
			return nil, errors.New(`--partition does not go with --json; name "partition" in the records`)
		}
		return append(buf, line...), nil
	}
	key, keyed := []byte(p.key), p.keyed
	if p.separator != "" {
		before, after, ok := bytes.Cut(line, []byte(p.separator))
		if !ok {
			return nil, fmt.Errorf("has no %q between a key and a value", p.separator)
		}
		key, line, keyed = before, after, true
	}
	buf = append(buf, '{')
	if keyed {
		buf = append(appendField(buf, "key", key), ',')
	}
	if p.partition >= 0 {
		buf = fmt.Appendf(buf, `"partition":%d,`, p.partition)
	}
	return append(appendField(buf, "value", line), '}'), nil
}

// appendField writes bytes as a member and, where JSON needs it, its encoding.
func appendField(buf []byte, name string, content []byte) []byte {
	if !utf8.Valid(content) {
		buf = fmt.Appendf(buf, `"%s_encoding":"base64",`, name)
		buf = fmt.Appendf(buf, `"%s":`, name)
		encoded, _ := json.Marshal(content) // of bytes, which cannot fail
		return append(buf, encoded...)
	}
	buf = fmt.Appendf(buf, `"%s_encoding":"string",`, name)
	buf = fmt.Appendf(buf, `"%s":`, name)
	encoded, _ := json.Marshal(string(content)) // of a string, which cannot fail
	return append(buf, encoded...)
}

// Receipt is the answer to a stream of records.
type Receipt struct {
	Stored     int64
	Failed     int64
	Partitions []struct {
		Partition   int32
		FirstOffset int64 `json:"first_offset"`
		LastOffset  int64 `json:"last_offset"`
	}
	Errors []struct {
		Line  int64
		Error Problem
	}
	LastLine int64    `json:"last_line"`
	Error    *Problem // why the node stopped before the end of the input
}

func (r *Receipt) print(w io.Writer, topic, acks string) error {
	if acks == "none" {
		_, err := fmt.Fprintf(w, "records sent to %s, without waiting for an answer\n", topic)
		return err
	}
	text := fmt.Sprintf("%d %s stored in %s", r.Stored, plural(r.Stored, "record"), topic)
	for i, p := range r.Partitions {
		sign := ","
		if i == 0 {
			sign = ":"
		}
		text += fmt.Sprintf("%s partition %d offsets %d to %d", sign, p.Partition, p.FirstOffset, p.LastOffset)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// Stream sends records of NDJSON as write produces them, in bounded memory, and returns the node's receipt.
// It gives up when the node takes nothing for the client's timeout, or does not answer within it after
// the last record.
func (c *Client) Stream(ctx context.Context, topic string, query url.Values, idempotencyKey string, write func(*bufio.Writer) error) (*Receipt, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr, pw := io.Pipe()
	stalled := func() { cancel(fmt.Errorf("the node took nothing for %v", c.timeout)) }
	wrote := make(chan error, 1)
	go func() {
		err := write(bufio.NewWriterSize(&watched{w: pw, limit: c.timeout, stalled: stalled}, 32<<10))
		wrote <- err
		if err == nil {
			time.AfterFunc(c.timeout, func() { cancel(errTimeout(c.timeout)) })
		}
		_ = pw.CloseWithError(err) // never fails
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+topicPath(topic, "records")+"?"+query.Encode(), pr)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	resp, err := c.do(req)
	_ = pr.CloseWithError(errAnswered) // never fails; ends a writer whose reader has gone
	if err != nil {
		if inputErr := finished(wrote); inputErr != nil {
			return nil, inputErr
		}
		var unreachable *UnreachableError
		if errors.As(err, &unreachable) && unreachable.Unsent {
			return nil, err
		}
		return nil, fmt.Errorf("%w; records may have been stored", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var receipt Receipt
	if err := decode(resp, &receipt); err != nil {
		return nil, err
	}
	return &receipt, finished(wrote)
}

// errAnswered is what a writer gets when the node answered before it had read everything.
var errAnswered = errors.New("the node has answered")

// finished is the writer's own error, if it has one to tell: one of its input.
func finished(wrote <-chan error) error {
	select {
	case err := <-wrote:
		if errors.Is(err, errAnswered) || errors.Is(err, io.ErrClosedPipe) {
			return nil
		}
		return err
	default:
		return nil // still reading an input that nobody wants any more
	}
}

// watched calls stalled when a write takes longer than limit.
type watched struct {
	w       io.Writer
	limit   time.Duration
	stalled func()
}

func (w *watched) Write(p []byte) (int, error) {
	timer := time.AfterFunc(w.limit, w.stalled)
	defer timer.Stop()
	return w.w.Write(p)
}
