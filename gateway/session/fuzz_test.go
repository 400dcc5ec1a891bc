package session_test

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"go.uber.org/goleak"

	"github.com/weirlog/weir/gateway/session"
)

// TestMain checks, after everything else, that no goroutine is left and that asyncapi.yaml promises no
// message that no server has sent.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	whole := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == ""
	if unseen := unseenOps(); code == 0 && whole && len(unseen) > 0 {
		fmt.Fprintf(os.Stderr, "no test has got these messages that asyncapi.yaml promises: %v\n", unseen)
		code = 1
	}
	os.Exit(code)
}

// listenTCP serves every connection to a port of loopback as a WebSocket.
func listenTCP(t testing.TB, h *session.Hub) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				_ = c.Close()
				continue
			}
			h.WebSocket(c, session.WebSocket{Request: req.Header})
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// masked is a frame as a client has to send it.
func masked(op byte, payload string) string {
	head := []byte{op, 0x80}
	switch n := len(payload); {
	case n < 126:
		head[1] |= byte(n)
	case n < 1<<16:
		head[1] |= 126
		head = binary.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[1] |= 127
		head = binary.BigEndian.AppendUint64(head, uint64(n))
	}
	return string(append(head, 0, 0, 0, 0)) + payload
}

// goodFrames are what mutations begin with.
var goodFrames = []string{
	`{"id":1,"op":"subscribe","sub":"a","topic":"orders","from":"earliest","credit":{"records":10,"bytes":1000},"on_gap":"latest"}`,
	`{"id":"x","op":"subscribe","sub":"b","topics":["orders"],"from":{"offsets":{"0":1}},"value_format":"base64"}`,
	`{"op":"subscribe","sub":"c","topic":"orders","partitions":[0],"from":{"timestamp":5}}`,
	`{"op":"subscribe","sub":"d","topic":"orders","from":{"cursor":"c1.AAHWZFWzGBFR__0OCDggur51AwAAAgFrcuZN"}}`,
	`{"id":2,"op":"subscribe","sub":"g","group":"billing","member":"w1","topics":["orders"],"ack":"auto","start":"ts:5","credit":{"records":3}}`,
	`{"op":"subscribe","sub":"g2","group":"billing","topic_pattern":"or.*","ack":"manual"}`,
	`{"id":3,"op":"ack","sub":"g","cursor":"g1.AapWbYgMAJUXbZQ"}`, `{"op":"unsubscribe","sub":"g"}`,
	`{"op":"seek","sub":"a","to":"-5"}`, `{"op":"seek","sub":"a","to":{"offsets":{"0":2}}}`,
	`{"op":"credit","sub":"a","records":500,"bytes":524288}`,
	`{"op":"pause","sub":"a"}`, `{"op":"resume","sub":"a"}`, `{"op":"unsubscribe","sub":"a"}`, `{"id":7,"op":"ping"}`,
	`{"id":4,"op":"produce","topic":"orders","records":[{"key":"k","value":{"a":[1,2]},"headers":{"h":"v"}}],"idempotency_key":"x1","acks":"leader","timeout_ms":100}`,
}

var odd = []string{
	"\x00", "\xff", "\xed\xa0\x80", `\ud800`, `"`, `\`, "{", "}", "[", "]", ":", ",", "null", "true", "-1", "1e999", "9223372036854775808",
	`"op":`, `"op":"ping",`, "😀", strings.Repeat("[", 600), strings.Repeat("9", 400), "c1.", `"partitions":[2147483648],`,
}

// mangle changes a frame here and there.
func mangle(rnd *rand.Rand, s string) string {
	b := []byte(s)
	for range rnd.IntN(5) {
		at := rnd.IntN(len(b) + 1)
		switch rnd.IntN(5) {
		case 0:
			if at < len(b) {
				b[at] ^= 1 << rnd.IntN(8)
			}
		case 1:
			b = b[:at]
		case 2:
			b = append(b[:at:at], append([]byte(odd[rnd.IntN(len(odd))]), b[at:]...)...)
		case 3:
			b = append(b[:at:at], b[min(len(b), at+rnd.IntN(9)):]...)
		case 4:
			b = append(b, b[:at]...)
		}
	}
	return string(b)
}

// conversation is what one client sends: frames that are good, mangled, or no frames at all.
func conversation(rnd *rand.Rand) (raw string, frames int) {
	var b strings.Builder
	for range 1 + rnd.IntN(20) {
		frames++
		text := goodFrames[rnd.IntN(len(goodFrames))]
		switch rnd.IntN(8) {
		case 0, 1, 2:
			b.WriteString(masked(0x81, text))
		case 3, 4, 5:
			b.WriteString(masked(0x81, mangle(rnd, text)))
		case 6:
			ops := []byte{0x01, 0x80, 0x82, 0x89, 0x8a, 0x88, 0x83, 0xc1, 0x91}
			short := mangle(rnd, text)
			b.WriteString(masked(ops[rnd.IntN(len(ops))], short[:min(len(short), rnd.IntN(20))]))
		case 7:
			frame := []byte(masked(0x81, text))
			frame[rnd.IntN(6)] ^= byte(1 << rnd.IntN(8))
			b.Write(frame)
		}
	}
	return b.String(), frames
}

// Frames of every kind leave goroutines, descriptors and memory as before.
func TestFuzzedFramesLeaveNothingBehind(t *testing.T) {
	most := 1_000
	if os.Getenv("WEIR_SOAK") != "" {
		most = 10_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	log := newFakeLog(t)
	log.create("orders", 2)
	log.values("orders", 0, "1", `"two"`, "[3]", "null")
	cfg := session.DefaultConfig()
	cfg.Goodbye = 100 * time.Millisecond
	h, err := session.NewHub(cfg, session.Deps{Log: log, Producer: log, Groups: newFakeGroups(t, log, orders0), NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	addr := listenTCP(t, h)
	exchange := func(raw string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := (&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: addr, Header: handshake()}).Write(c); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err != nil || resp.StatusCode != 101 {
			t.Fatalf("the handshake is answered with %v, %v", resp, err)
		}
		go func() { _, _ = io.WriteString(c, raw) }() // the server may close before it has all of it
		if err := c.SetReadDeadline(time.Now().Add(time.Duration(rnd.IntN(20)) * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // ends with the deadline or with the connection
	}
	settle := func() {
		for end := time.Now().Add(20 * time.Second); h.Live() > 0 || log.listeners() > 0; {
			if time.Now().After(end) {
				t.Fatalf("%d sessions and %d bells are left", h.Live(), log.listeners())
			}
			runtime.Gosched()
		}
	}
	for range 20 { // what is made once is made before the count
		raw, _ := conversation(rnd)
		exchange(raw)
	}
	settle()
	runtime.GC()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent := 0
	for sent < most {
		raw, n := conversation(rnd)
		exchange(raw)
		sent += n
	}
	settle()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines || openFiles(t) > files; {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines and %d files, before there were %d and %d", runtime.NumGoroutine(), openFiles(t), goroutines, files)
		}
		runtime.Gosched()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// What was produced is in the fake log, in this process.
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d frames have left %d kB", sent, grown>>10)
	}
	// And it still serves.
	c := dialTCP(t, addr)
	c.next("hello")
	c.send(`{"op":"subscribe","sub":"a","topic":"orders","from":"earliest"}`)
	c.next("ok")
	c.next("records")
	h.Drain(t.Context())
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this machine does not tell which files are open")
	}
	return len(entries)
}

// dialTCP connects a client over a real socket.
func dialTCP(t testing.TB, addr string) *client {
	t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t: t, conn: c, raw: c.NetConn()}
}

// Sessions at the tail, laggards, credit and stalled sockets at once: every reader sees every record, in
// order and once, whoever served it.
func TestEverybodySeesEverything(t *testing.T) {
	const records, readers = 1500, 20
	log := newFakeLog(t)
	log.create("orders", 2)
	h := newHub(t, log, nil)
	addr := listenTCP(t, h)
	type outcome struct {
		who int
		err error
	}
	outcomes := make(chan outcome, readers)
	for who := range readers {
		c := dialTCP(t, addr)
		c.next("hello")
		go func() { outcomes <- outcome{who, follow(c, who, records)} }()
	}
	go func() {
		value := strings.Repeat("x", 300)
		for i := range records {
			log.values("orders", 0, fmt.Sprintf(`{"n":%d,"x":%q}`, i, value))
			if i%7 == 0 {
				log.values("orders", 1, "1")
			}
			if i%200 == 0 {
				time.Sleep(time.Millisecond) // lets readers reach the end now and then
			}
		}
	}()
	for range readers {
		if o := <-outcomes; o.err != nil {
			t.Errorf("reader %d: %v", o.who, o.err)
		}
	}
	h.Drain(t.Context())
}

// follow reads partition 0 of orders up to a number of records, each reader in a way of its own.
func follow(c *client, who, records int) error {
	credit := ""
	if who%4 == 1 {
		credit = `,"credit":{"records":50}`
	}
	whole := `,"partitions":[0]`
	if who%4 == 2 {
		whole = ""
	}
	c.send(`{"op":"subscribe","sub":"a","topic":"orders"%s%s}`, credit, whole)
	next, got := 0, 0
	for next < records {
		if who%10 == 3 && next > 100 && next < 200 {
			time.Sleep(20 * time.Millisecond) // a slow reader
		}
		m, err := c.read()
		if err != nil {
			return err
		}
		if m.Op == "error" || m.Op == "gap" {
			return fmt.Errorf("got %s", m.raw)
		}
		for _, raw := range m.Records {
			got++
			var p, offset int
			if _, err := fmt.Sscanf(string(raw), `{"topic":"orders","partition":%d,"offset":%d,`, &p, &offset); err != nil {
				return fmt.Errorf("%s: %w", raw, err)
			}
			if p == 0 && offset != next {
				return fmt.Errorf("offset %d comes instead of %d", offset, next)
			}
			if p == 0 {
				next++
			}
		}
		if credit != "" && len(m.Records) > 0 {
			c.send(`{"op":"credit","sub":"a","records":%d}`, len(m.Records))
		}
	}
	return nil
}

func FuzzFrame(f *testing.F) {
	for _, s := range goodFrames {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := session.CheckFrame([]byte(text)); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
