package session_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlog/weir/gateway/session"
)

// BenchmarkTail is one record on its way to many WebSockets that have all read what was before it.
func BenchmarkTail(b *testing.B) {
	for _, subscribers := range []int{1, 1000} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			log := newFakeLog(b)
			log.create("orders", 1)
			h := newHub(b, log, nil)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			var received atomic.Int64
			all := make(chan struct{}, 1)
			for range subscribers {
				client, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				server, err := l.Accept()
				if err != nil {
					b.Fatal(err)
				}
				r, err := h.Open(b.Context(), session.Spec{Topics: names("orders")})
				if err != nil {
					b.Fatal(err)
				}
				h.WebSocket(server, session.WebSocket{Request: handshake(), Reader: r, Sub: "a"})
				in := bufio.NewReader(client)
				if _, err := http.ReadResponse(in, nil); err != nil {
					b.Fatal(err)
				}
				go func() { // counts records by their last member
					chunk := make([]byte, 4096)
					for {
						n, err := in.Read(chunk)
						if err != nil {
							return
						}
						if c := bytes.Count(chunk[:n], []byte(`END`)); c > 0 && received.Add(int64(c)) == int64(subscribers) {
							received.Store(0)
							all <- struct{}{}
						}
					}
				}()
			}
			value := `"` + strings.Repeat("x", 200) + `END"`
			for b.Loop() {
				log.values("orders", 0, value)
				<-all
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subscribers), "ns/delivery")
			h.Drain(b.Context())
		})
	}
}
