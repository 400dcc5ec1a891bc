package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// httpLoad sends prepared requests again and again over a number of connections, one at a time on
// each, and counts answers. It is as small as it can be, since it shares the machine with the server.
type httpLoad struct {
	conns []net.Conn
	reads []*bufio.Reader
	// requests of connection i, sent in turn; prepared once.
	requests [][][]byte
}

func dialLoad(addr string, count int, requests func(i int) [][]byte) (*httpLoad, error) {
	l := &httpLoad{}
	for i := range count {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.conns = append(l.conns, c)
		l.reads = append(l.reads, bufio.NewReaderSize(c, 64<<10))
		l.requests = append(l.requests, requests(i))
	}
	return l, nil
}

func (l *httpLoad) close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// run sends for a span and returns answers a second. A status other than 200 is an error.
func (l *httpLoad) run(ctx context.Context, span time.Duration) (float64, error) {
	var answers atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, len(l.conns))
	begin := time.Now()
	end := begin.Add(span)
	for i, c := range l.conns {
		wg.Go(func() {
			if err := c.SetDeadline(end.Add(20 * time.Second)); err != nil {
				errs <- err
				return
			}
			n := 0
			for time.Now().Before(end) && ctx.Err() == nil {
				if _, err := c.Write(l.requests[i][n%len(l.requests[i])]); err != nil {
					errs <- err
					return
				}
				if _, err := readAnswer(l.reads[i], nil); err != nil {
					errs <- err
					return
				}
				n++
			}
			answers.Add(int64(n))
		})
	}
	wg.Wait()
	took := time.Since(begin)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(answers.Load()) / took.Seconds(), ctx.Err()
	}
}

var contentLength = []byte("content-length:")

// readAnswer reads one HTTP/1.1 answer with a Content-Length. The body goes to keep, or nowhere.
func readAnswer(r *bufio.Reader, keep *bytes.Buffer) (bodyBytes int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("status line %q", line)
	}
	status := string(line[9:12])
	length := -1
	for {
		line, err = r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("an answer without Content-Length")
	}
	if status != "200" {
		text := make([]byte, min(length, 500))
		if _, err := io.ReadFull(r, text); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("status %s: %s", status, text)
	}
	if keep != nil {
		_, err = io.CopyN(keep, r, int64(length))
	} else {
		_, err = r.Discard(length)
	}
	return length, err
}

// always lets every connection send one and the same request.
func always(request []byte) func(int) [][]byte {
	return func(int) [][]byte { return [][]byte{request} }
}

// post prepares a POST of a JSON body.
func post(addr, path string, body []byte) []byte { return send("POST", addr, path, body) }

// send prepares a request with a JSON body.
func send(method, addr, path string, body []byte) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, addr, len(body), body)
}

// get prepares a GET.
func get(addr, path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, addr)
}

// records is a produce body of n records with values of about 200 bytes.
func records(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"records":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"key":"user-%04d","value":`, i*37%10000)
		b.Write(value(i))
		b.WriteByte('}')
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// value is a JSON event of 200 bytes.
func value(i int) []byte {
	v := fmt.Appendf(nil, `{"order":%08d,"total":%d.50,"currency":"EUR","items":[{"sku":"A-%05d","n":2},{"sku":"B-%05d","n":1}],"note":"`,
		10_000_000+i, i%1000, i%100000, (i*7)%100000)
	for len(v) < 198 {
		v = append(v, 'a'+byte(len(v)%26))
	}
	return append(v, `"}`...)
}
