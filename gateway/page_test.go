package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestPagesNobodyTakesAreBounded: clients that ask for large pages and take nothing of them get no more
// of the node's memory than pages may hold, whatever they ask for; it comes back when they take them or
// go, and nothing is lost where a page was shorter than asked.
func TestPagesNobodyTakesAreBounded(t *testing.T) {
	const most, records, slack = 4 << 20, 24, 1 << 20
	for _, path := range []string{"/v1/topics/orders/partitions/0/records", "/v1/topics/orders/records"} {
		for _, coding := range []string{"", "gzip"} {
			t.Run(path+" "+coding, func(t *testing.T) {
				w := start(t, func(c *Config, _ *Deps) { c.SendBufferBytes = 64 << 10 })
				w.server.pages.most = most
				for i := range records {
					w.produceValues(fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 500<<10)))
				}
				ask := func() (net.Conn, *bufio.Reader) {
					t.Helper()
					c, err := net.Dial("tcp", w.addr())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = c.Close() })
					_, err = fmt.Fprintf(c, "GET %s?max_bytes=67108864 HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: %s\r\n\r\n", path, coding)
					if err != nil {
						t.Fatal(err)
					}
					return c, bufio.NewReader(c)
				}
				if coding != "" { // packed, all of it fits into the sockets
					w.send("GET", path+"?max_bytes=67108864", "", "Accept-Encoding", coding).want(t, 200)
					until(t, func() bool { return w.server.pages.held.Load() == 0 })
					return
				}
				first, in := ask()
				until(t, func() bool { return w.server.pages.held.Load() > most-slack && w.server.inFlight.Load() == 0 })
				var others []net.Conn
				for range 20 {
					c, _ := ask()
					others = append(others, c)
				}
				until(t, func() bool { return w.send("GET", path, "").status == 503 })
				if held := w.server.pages.held.Load(); held > most+slack {
					t.Errorf("pages hold %d bytes", held)
				}
				for _, c := range others {
					_ = c.Close()
				}

				answer, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				var page struct {
					Records []struct{ Offset int64 }
					Cursor  string
				}
				if err := json.Unmarshal(body, &page); err != nil || len(page.Records) == 0 || len(page.Records) == records {
					t.Fatalf("%d records, %v", len(page.Records), err)
				}
				for i, r := range page.Records {
					if r.Offset != int64(i) {
						t.Fatalf("record %d has offset %d", i, r.Offset)
					}
				}
				_ = first.Close()
				until(t, func() bool { return w.server.pages.held.Load() == 0 })
				if page.Cursor != "" {
					next := w.send("GET", path+"?max_records=1&cursor="+page.Cursor, "")
					next.want(t, 200, fmt.Sprintf(`"offset":%d,`, len(page.Records)))
				}
			})
		}
	}
}
