package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func (w *world) lines(path, body string, headers ...string) reply {
	w.t.Helper()
	return w.send("POST", path, body, append([]string{"Content-Type", typeNDJSON}, headers...)...)
}

func TestLinesAreStoredAndCounted(t *testing.T) {
	w := start(t)
	w.json("/v1/topics", `{"name":"log","partitions":2}`).want(t, 201)
	r := w.lines("/v1/topics/log/records", "{\"value\":1}\r\n\n{\"value\":2,\"partition\":1}\n  \n{\"key\":\"a\"}\nnonsense\n{\"value\":\"last\"}").want(t, 207,
		`"stored":3`, `"failed":2`, `"last_line":7`, `{"line":5,"error":{`, `{"line":6,"error":{`, `"code":"invalid_json"`,
		`"partitions":[{"partition":0,"first_offset":0,"last_offset":1},{"partition":1,"first_offset":0,"last_offset":0}]`)
	if strings.Index(r.body, "\n") != len(r.body)-1 {
		t.Errorf("the answer is more than one line")
	}
	if got := w.node.stored("log", 0); len(got) != 2 || string(got[1].Value) != `"last"` {
		t.Errorf("stored %+v", got)
	}
	w.lines("/v1/topics/log/records", "").want(t, 200, `"stored":0`, `"errors":[]`)
	w.lines("/v1/topics/log/records", "nonsense\n{\"key\":1}\n").want(t, 400, `no line is stored`, `"field":"line 1"`, `"field":"line 2"`)
	w.lines("/v1/topics/log/records?acks=none", "{\"value\":1}\n{\"value\":2}\n").want(t, 202, `"topic":"log","accepted":2`)
	w.lines("/v1/topics/log/partitions/1/records", "{\"value\":1}\n{\"value\":1,\"partition\":0}\n").want(t, 207, `"partition":1,"first_offset":1`, `"line":2`)
	w.lines("/v1/topics/log/partitions/1/records", "{\"value\":1}\n", "If-Last-Offset", "1").want(t, 422, `If-Last-Offset`)
	w.lines("/v1/topics/log/partitions/1/records?acks=none", "{\"value\":1}\n").want(t, 202)
}

// Chunks are cut by what the lines are alone, never by how they arrive.
func TestLinesAreCutAlikeHoweverTheyArrive(t *testing.T) {
	w := start(t)
	var body strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&body, "{\"value\":\"%s\"}\n", strings.Repeat(strconv.Itoa(i*7919), i%399))
	}
	cuts := func(send func(body string) io.Reader, headers ...string) (sizes []int) {
		var keyed *topic.KeyedStream
		w.node.answer(func(_ context.Context, a *topic.Append) error {
			if keyed == nil {
				keyed = a.Keyed
			}
			if a.Keyed == nil || a.Keyed != keyed {
				return fault.Newf("test", fault.Internal, nil, "the calls of one request do not share their stream")
			}
			sizes = append(sizes, len(a.Records))
			for i := range a.Results {
				a.Results[i].Offset = topic.Offset(i)
			}
			return nil
		})
		req, err := http.NewRequest("POST", w.url+"/v1/topics/log/records", send(body.String()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", typeNDJSON)
		req.Header.Set("Idempotency-Key", "k")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		w.do(req).want(t, 200, `"stored":4000`, `"last_line":4000`)
		return sizes
	}
	whole := cuts(func(b string) io.Reader { return strings.NewReader(b) })
	if len(whole) < 6 {
		t.Errorf("4000 lines were %d chunks", len(whole))
	}
	chunked := cuts(func(b string) io.Reader {
		return io.MultiReader(strings.NewReader(b[:len(b)/3]), strings.NewReader(b[len(b)/3:]))
	})
	slow := cuts(func(b string) io.Reader { return &slowReader{r: strings.NewReader(b), every: len(b) / 5} })
	zipped := cuts(func(b string) io.Reader { return strings.NewReader(packed(t, "gzip", b)) }, "Content-Encoding", "gzip")
	for name, got := range map[string][]int{"chunked": chunked, "slow": slow, "zipped": zipped} {
		if fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("%s: cut into %v, in one piece into %v", name, got, whole)
		}
	}
}

// slowReader is silent for a moment after each piece.
type slowReader struct {
	r     io.Reader
	every int
	left  int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.left <= 0 {
		s.left = s.every
		<-time.After(3 * idleAfter)
	}
	n, err := s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// Who pipes a log file that grows slowly wants its lines stored when they come.
func TestLinesOfASilentClientAreStoredAtOnce(t *testing.T) {
	w := start(t)
	body, more := io.Pipe()
	done := make(chan reply, 1)
	go func() {
		req, err := http.NewRequest("POST", w.url+"/v1/topics/log/records", body)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", typeNDJSON)
		done <- w.do(req)
	}()
	for i := range 3 {
		// A line that has begun is not stored before it is whole.
		if _, err := fmt.Fprintf(more, "{\"value\":%d}\n{\"val", i); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return len(w.node.stored("log", 0)) == 2*i+1 })
		if _, err := io.WriteString(more, "ue\":null}\n"); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return len(w.node.stored("log", 0)) == 2*i+2 })
	}
	if err := more.Close(); err != nil {
		t.Fatal(err)
	}
	(<-done).want(t, 200, `"stored":6`)
}

func until(t testing.TB, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !what(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come about within 10 s")
		}
	}
}

// A client that waits for each receipt before it sends the next line gets it.
func TestReceiptsComeWhileTheBodyIsSent(t *testing.T) {
	w := start(t)
	body, more := io.Pipe()
	req, err := http.NewRequest("POST", w.url+"/v1/topics/log/records?receipts=record", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", typeNDJSON)
	go func() {
		if _, err := io.WriteString(more, "{\"value\":0}\n"); err != nil {
			t.Error(err)
		}
	}()
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != typeNDJSON {
		t.Fatalf("status %d, %v", resp.StatusCode, resp.Header)
	}
	receipts := bufio.NewScanner(resp.Body)
	next := func() (r struct {
		Line, Status   int
		Offset         int64
		End            bool
		Stored, Failed int
		LastLine       int `json:"last_line"`
	},
	) {
		t.Helper()
		if !receipts.Scan() {
			t.Fatalf("no receipt: %v", receipts.Err())
		}
		if err := json.Unmarshal(receipts.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", receipts.Bytes(), err)
		}
		return r
	}
	for i := range 5 {
		if r := next(); r.Line != i+1 || r.Status != 200 || r.Offset != int64(i) {
			t.Fatalf("receipt %d is %s", i, receipts.Bytes())
		}
		if _, err := fmt.Fprintf(more, "{\"value\":%d}\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
	if r := next(); r.Line != 6 {
		t.Fatalf("got %s", receipts.Bytes())
	}
	if _, err := io.WriteString(more, "nonsense\n"); err != nil {
		t.Fatal(err)
	}
	if err := more.Close(); err != nil {
		t.Fatal(err)
	}
	if r := next(); r.Line != 7 || r.Status != 400 {
		t.Fatalf("got %s", receipts.Bytes())
	}
	if r := next(); !r.End || r.Stored != 6 || r.Failed != 1 || r.LastLine != 7 {
		t.Fatalf("got %s", receipts.Bytes())
	}
	if receipts.Scan() {
		t.Fatalf("after the end came %s", receipts.Bytes())
	}
}

// Many receipts than fit in any buffer: writer and reader go in step.
func TestManyReceipts(t *testing.T) {
	w := start(t)
	const n = 20_000
	body, more := io.Pipe()
	go func() {
		for i := range n {
			if _, err := fmt.Fprintf(more, "{\"value\":%d}\n", i); err != nil {
				t.Error(err)
				return
			}
		}
		if err := more.Close(); err != nil {
			t.Error(err)
		}
	}()
	req, err := http.NewRequest("POST", w.url+"/v1/topics/log/records?receipts=record", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", typeNDJSON)
	r := w.do(req).want(t, 200, fmt.Sprintf(`"stored":%d,"failed":0,"last_line":%d`, n, n))
	if lines := strings.Count(r.body, "\n"); lines != n+1 {
		t.Errorf("%d lines of receipts", lines)
	}
}

func TestAKeyedStreamEndsAtItsFirstFailure(t *testing.T) {
	w := start(t)
	w.node.answer(func(_ context.Context, a *topic.Append) error {
		if w.node.calls.Load() == 2 {
			return fault.Newf("test", fault.Limit, nil, "a request with a key may have 1024 batches in a partition")
		}
		for i := range a.Results {
			a.Results[i].Offset = topic.Offset(i)
		}
		return nil
	})
	body := strings.Repeat("{\"value\":1}\n", 5*chunkRecords)
	w.lines("/v1/topics/log/records", body, "Idempotency-Key", "k").want(t, 207, `"stored":1000`, `"failed":1000`, `"last_line":2000`,
		`"error":{"title":"Limit exceeded"`, `"line":1001`)
	if n := w.node.calls.Load(); n != 2 {
		t.Errorf("the node was asked %d times", n)
	}
	w.node.answer(func(context.Context, *topic.Append) error {
		return fault.Newf("test", fault.StorageFull, nil, "the disk is full")
	})
	w.lines("/v1/topics/log/records", body).want(t, 503, `no line is stored`, `storage_full`)
	w.node.answer(func(context.Context, *topic.Append) error { return context.DeadlineExceeded })
	w.lines("/v1/topics/log/partitions/0/records", body).want(t, 504, `outcome is unknown`)
	w.node.answer(func(context.Context, *topic.Append) error {
		return fault.Newf("test", fault.OutOfSequence, nil, "sequence 5 does not follow 3")
	})
	w.lines("/v1/topics/log/records", body).want(t, 409)
	w.lines("/v1/topics/log/partitions/0/records", body).want(t, 409)
}

func TestARepeatedStreamSaysHowMuchWasStoredBefore(t *testing.T) {
	w := start(t)
	w.node.answer(func(_ context.Context, a *topic.Append) error {
		for i := range a.Results {
			a.Results[i] = topic.Stored{Offset: topic.Offset(i), Duplicate: i < 2}
		}
		return nil
	})
	w.lines("/v1/topics/log/records", strings.Repeat("{\"value\":1}\n", 3), "Idempotency-Key", "k").want(t, 200, `"stored":3,"failed":0,"duplicates":2,"last_line":3`)
}

func TestALineThatIsTooLongIsLeftOut(t *testing.T) {
	w := start(t)
	long := `{"value":"` + strings.Repeat("a", worstEncoding*topic.DefaultMaxMessageBytes/2+recordOverhead) + "\"}\n"
	w.lines("/v1/topics/log/records", "{\"value\":1}\n"+long+"{\"value\":2}\n").want(t, 207, `"stored":2`, `"failed":1`, `"line":2`, `the line is longer`)
	w.lines("/v1/topics/log/records", long).want(t, 413)
	if held := w.server.bodies.held.Load(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// A stream that waits for lines does not hold up a drain; what came is stored, and the answer says so.
func TestADrainEndsAStreamedBody(t *testing.T) {
	w := start(t)
	body, more := io.Pipe()
	defer more.Close()
	done := make(chan reply, 1)
	go func() {
		req, err := http.NewRequest("POST", w.url+"/v1/topics/log/records", body)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", typeNDJSON)
		done <- w.do(req)
	}()
	if _, err := io.WriteString(more, "{\"value\":1}\n"); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(w.node.stored("log", 0)) == 1 })
	begun := time.Now()
	w.stop()
	(<-done).want(t, 207, `"stored":1`, `"code":"stopping"`)
	w.end()
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the drain took %v", took)
	}
}
