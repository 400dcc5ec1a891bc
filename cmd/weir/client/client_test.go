package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// against makes a client for a handler.
func against(t *testing.T, timeout time.Duration, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(server.URL, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAProblemPrintsAsItsSentence(t *testing.T) {
	c := against(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"status":422,"code":"validation_failed","title":"Not valid","detail":"the topic is not valid","retryable":false,"errors":[{"field":"partitions","message":"must be at least 1"}]}`)
	})
	err := c.Call(t.Context(), http.MethodGet, "/", nil, nil)
	if want := "the topic is not valid\n  partitions must be at least 1"; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %q", err, want)
	}
	if retryable(err) {
		t.Error("it is worth no second try")
	}
}

func TestAMistakeIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		problem Problem
		want    string
	}{
		{Problem{Detail: "no line is stored: value is missing", Errors: []FieldError{{"line 3", "value is missing"}}}, "no line is stored: line 3: value is missing"},
		{Problem{Detail: "records[0].value: is missing", Errors: []FieldError{{"records[0].value", "is missing"}}}, "records[0].value: is missing"},
		{Problem{Detail: "two mistakes: a", Errors: []FieldError{{"x", "a"}, {"y", "b"}}}, "two mistakes: a\n  x a\n  y b"},
	} {
		if got := c.problem.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnAnswerThatIsNotWeirsIsSaidInWords(t *testing.T) {
	c := against(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<h1>nginx</h1>"+strings.Repeat("x", 1000))
	})
	err := c.Call(t.Context(), http.MethodGet, "/", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "502 Bad Gateway: <h1>nginx") || len(err.Error()) > 400 {
		t.Fatalf("got %v", err)
	}
	if !retryable(err) {
		t.Error("a gateway in between may recover")
	}
}

func TestARequestIsBoundedInTime(t *testing.T) {
	hang := make(chan struct{})
	c := against(t, 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	defer close(hang)
	err := c.Call(t.Context(), http.MethodGet, "/", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "timed out after 50ms") || !retryable(err) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Call(ctx, http.MethodGet, "/", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("after an interrupt: got %v", err)
	}
}

func TestOnlyAnAddressIsAServer(t *testing.T) {
	for _, server := range []string{"", "ftp://x", "http://", "http://x/path", "http://x?q=1", "http://%zz"} {
		if _, err := New(server, time.Second); err == nil {
			t.Errorf("%q was taken", server)
		}
	}
	for _, server := range []string{"localhost:8080", "http://127.0.0.1:1/", "https://weir.example"} {
		if _, err := New(server, time.Second); err != nil {
			t.Errorf("%q: %v", server, err)
		}
	}
}

func TestAStreamGivesUpOnANodeThatTakesNothing(t *testing.T) {
	hang := make(chan struct{})
	c := against(t, 100*time.Millisecond, func(_ http.ResponseWriter, _ *http.Request) { <-hang })
	defer close(hang)
	_, err := c.Stream(t.Context(), "t", nil, "", func(w *bufio.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "took nothing for 100ms") || !strings.Contains(err.Error(), "may have been stored") {
		t.Fatalf("got %v", err)
	}
}

func TestAStreamThatNobodyTookStoredNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there now
	c, err := New(l.Addr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Stream(t.Context(), "t", nil, "", func(w *bufio.Writer) error {
		_, err := w.WriteString("{}\n")
		return errors.Join(err, w.Flush())
	})
	if err == nil || !strings.Contains(err.Error(), "connection refused; start a node") || strings.Contains(err.Error(), "stored") {
		t.Errorf("got %v", err)
	}
}

func TestAStreamHearsAnAnswerBeforeItsEnd(t *testing.T) {
	c := against(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"title":"No","detail":"there is no such topic"}`)
	})
	block, unblock := io.Pipe()
	defer unblock.Close()
	_, err := c.Stream(t.Context(), "t", nil, "", func(w *bufio.Writer) error {
		if _, err := w.WriteString("{}\n"); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		_, err := block.Read(make([]byte, 1)) // a terminal at which nobody types
		return err
	})
	if err == nil || err.Error() != "there is no such topic" {
		t.Fatalf("got %v", err)
	}
}

func TestAMistakeInTheInputIsTheErrorOfTheStream(t *testing.T) {
	c := against(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"end":true}`)
	})
	broken := errors.New("line 3 is broken")
	if _, err := c.Stream(t.Context(), "t", nil, "", func(*bufio.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
}

func TestLinesKeepTheirBytes(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	in := "a\r\n\n" + long + "\n\xff\xfe\nno end"
	want := []string{"a", "", long, "\xff\xfe", "no end"}
	lines := bufio.NewReaderSize(strings.NewReader(in), 64<<10)
	for i, w := range want {
		got, err := readLine(lines)
		if err != nil || string(got) != w {
			t.Fatalf("line %d: got %.40q, %v", i+1, got, err)
		}
	}
	if _, err := readLine(lines); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: got %v", err)
	}
	huge := bufio.NewReader(io.LimitReader(zeros{}, maxLine+10))
	if _, err := readLine(huge); err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("a line without an end: got %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestRecordsAreJSONWhateverTheirBytes(t *testing.T) {
	for _, content := range []string{"", "plain", `"quoted" \`, "\x00\x1f", "\xff\xfe", "🙂", "</script>&\u2028"} {
		p := producing{key: content, keyed: true, partition: 3}
		raw, err := p.record(nil, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Key, Value                 string
			KeyEncoding, ValueEncoding string
			Partition                  int
		}
		if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte("_encoding"), []byte("Encoding")), &r); err != nil {
			t.Fatalf("%q gives %s: %v", content, raw, err)
		}
		for _, got := range []struct{ text, encoding string }{{r.Key, r.KeyEncoding}, {r.Value, r.ValueEncoding}} {
			value := got.text
			if got.encoding == "base64" {
				var b []byte
				if err := json.Unmarshal([]byte(`"`+got.text+`"`), &b); err != nil {
					t.Fatal(err)
				}
				value = string(b)
			}
			if value != content || r.Partition != 3 {
				t.Errorf("%q came out as %q (%s)", content, value, raw)
			}
		}
	}
}

// pages serves a topic of one partition, a record a page, and counts the requests.
func pages(records int, requests *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/offsets") {
			_, _ = fmt.Fprintf(w, `{"partitions":[{"partition":0,"offset":%d,"log_start_offset":0,"high_watermark":%d}]}`, records, records)
			return
		}
		requests.Add(1)
		at := 0
		_, _ = fmt.Sscanf(r.URL.Query().Get("cursor"), "c1.%d", &at)
		_, _ = fmt.Fprintf(w, `{"records":[{"partition":0,"offset":%d,"value":"%s"}],"cursor":"c1.%d"}`, at, "eA==", at+1)
	}
}

func TestReadingEndsWhereTheLogEndedAtTheCall(t *testing.T) {
	var requests atomic.Int32
	c := against(t, time.Minute, pages(3, &requests)) // the log grows for ever
	r := c.reader("t", -1, "earliest")
	if err := r.untilEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := bufio.NewWriter(&out)
	if err := (&consuming{}).pump(t.Context(), r, &printer{w: w}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if out.String() != "x\nx\nx\n" || requests.Load() != 3 {
		t.Fatalf("printed %q with %d requests", out.String(), requests.Load())
	}
}

func TestFollowingGoesOnWhereItBrokeOff(t *testing.T) {
	var requests atomic.Int32
	good := pages(0, new(atomic.Int32))
	c := against(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if n := requests.Add(1); n == 2 || n == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail":"the node is stopping","retryable":true}`)
			return
		}
		good(w, r)
	})
	var out, diagnostics strings.Builder
	w := bufio.NewWriter(&out)
	flags := &consuming{follow: true, most: 3}
	if err := flags.pump(t.Context(), c.reader("t", -1, "earliest"), &printer{w: w, asJSON: true}, &diagnostics); err != nil {
		t.Fatal(err)
	}
	want := `{"partition":0,"offset":0,"value":"eA=="}` + "\n" + `{"partition":0,"offset":1,"value":"eA=="}` + "\n" + `{"partition":0,"offset":2,"value":"eA=="}` + "\n"
	if out.String() != want {
		t.Fatalf("printed %s", out.String())
	}
	if diagnostics.String() != "weir: the node is stopping; trying again\n" {
		t.Fatalf("said %q", diagnostics.String())
	}
}

func TestAnOutputThatIsClosedIsNoError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := (output{w}).Write([]byte("x")); !errors.Is(err, ErrOutputClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestPercentilesAndBars(t *testing.T) {
	tally := tally{latencies: []time.Duration{1e6, 2e6, 3e6, 4e6}, records: 10, bytes: 1e6, elapsed: time.Second}
	for p, want := range map[int]string{50: "2.00ms", 95: "4.00ms", 100: "4.00ms"} {
		if got := tally.percentile(p); got != want {
			t.Errorf("p%d is %s, want %s", p, got, want)
		}
	}
	if got := bar(10, 512, 1024, time.Second); got != "[============            ]  50 %  10 records, 512 B, 10 records/s" {
		t.Errorf("got %q", got)
	}
	if got := bar(10, 2<<20, -1, 2*time.Second); got != "10 records, 2.0 MiB, 5 records/s" {
		t.Errorf("got %q", got)
	}
}
