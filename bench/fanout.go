package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const subscribers = 1000

func fanoutRows() []row {
	return []row{
		{id: "P8", what: "fan-out to 1,000 WebSocket subscribers as fast as possible, frames of 100 records, against a bare broadcast with joined writes",
			unit: "records/s", target: 0.35, setup: fanoutFast},
		{id: "P9", what: "fan-out of 50 records/s to 1,000 WebSocket subscribers, server CPU a delivery, against a bare loop with prepared frames",
			unit: "µs", target: 1.25, atMost: true, setup: fanoutPaced},
	}
}

// audience is a crowd of WebSocket subscribers that counts what it gets.
type audience struct {
	conns    []net.Conn
	received atomic.Int64 // records, over all subscribers
	group    sync.WaitGroup
	mu       sync.Mutex
	err      error // the first that was not the end by close
	closing  atomic.Bool
}

// subscribe connects the crowd to a path.
func subscribe(addr, path string, count int) (*audience, error) {
	a := &audience{}
	for range count {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, a.close())
		}
		a.conns = append(a.conns, conn)
		r, err := handshake(conn, addr, path)
		if err != nil {
			return nil, errors.Join(err, a.close())
		}
		a.group.Go(func() {
			if err := a.read(conn, r); err != nil && !a.closing.Load() {
				a.mu.Lock()
				a.err = errors.Join(a.err, err)
				a.mu.Unlock()
			}
		})
	}
	return a, nil
}

func handshake(conn net.Conn, addr, path string) (*bufio.Reader, error) {
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, addr)
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 32<<10)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("upgrade of %s: %s", path, resp.Status)
	}
	return r, nil
}

// inRecord stands once in each record, and nowhere else in a frame.
var inRecord = []byte(`"offset":`)

// read counts the records in text frames, and answers pings.
func (a *audience) read(conn net.Conn, r *bufio.Reader) error {
	payload := make([]byte, 0, 64<<10)
	var head [14]byte
	for {
		if _, err := io.ReadFull(r, head[:2]); err != nil {
			return err
		}
		size := uint64(head[1] & 0x7f)
		switch size {
		case 126:
			if _, err := io.ReadFull(r, head[2:4]); err != nil {
				return err
			}
			size = uint64(binary.BigEndian.Uint16(head[2:]))
		case 127:
			if _, err := io.ReadFull(r, head[2:10]); err != nil {
				return err
			}
			size = binary.BigEndian.Uint64(head[2:])
		}
		if size > 64<<20 {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		if uint64(cap(payload)) < size {
			payload = make([]byte, 0, size)
		}
		payload = payload[:size]
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		switch head[0] & 0x0f {
		case 1, 0:
			a.received.Add(int64(bytes.Count(payload, inRecord)))
		case 8:
			return fmt.Errorf("closed by the server: %q", payload)
		case 9: // a pong with an all-zero mask
			pong := append([]byte{0x8a, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
			if _, err := conn.Write(pong); err != nil {
				return err
			}
		}
	}
}

func (a *audience) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *audience) close() error {
	a.closing.Store(true)
	var errs []error
	for _, c := range a.conns {
		errs = append(errs, c.Close())
	}
	a.group.Wait()
	return errors.Join(append(errs, a.failed())...)
}

// publisher posts one prepared request at a time.
type publisher struct {
	conn    net.Conn
	r       *bufio.Reader
	request []byte
	records int64
}

func newPublisher(addr string, request []byte, recordCount int) (*publisher, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &publisher{conn, bufio.NewReader(conn), request, int64(recordCount)}, nil
}

func (p *publisher) publish() error {
	if err := p.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := p.conn.Write(p.request); err != nil {
		return err
	}
	_, err := readAnswer(p.r, nil)
	return err
}

// fast publishes as fast as the crowd takes it: at most so many requests ahead of what was delivered.
func (p *publisher) fast(ctx context.Context, a *audience, span time.Duration) (float64, error) {
	const ahead = 8
	crowd := int64(len(a.conns))
	began, before := time.Now(), a.received.Load()
	sent := int64(0)
	for time.Since(began) < span {
		for sent*p.records*crowd-(a.received.Load()-before) > ahead*p.records*crowd {
			if err := errors.Join(ctx.Err(), a.failed()); err != nil {
				return 0, err
			}
			if time.Since(began) > span+20*time.Second {
				return 0, errors.New("the crowd stopped receiving")
			}
			time.Sleep(100 * time.Microsecond)
		}
		if err := p.publish(); err != nil {
			return 0, err
		}
		sent++
	}
	if err := drained(ctx, a, before+sent*p.records*crowd); err != nil {
		return 0, err
	}
	return float64(a.received.Load()-before) / time.Since(began).Seconds(), nil
}

// drained waits until the crowd has received so many records in all.
func drained(ctx context.Context, a *audience, total int64) error {
	deadline := time.Now().Add(30 * time.Second)
	for a.received.Load() < total {
		if err := errors.Join(ctx.Err(), a.failed()); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d records arrived", a.received.Load(), total)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return nil
}

// paced publishes at a fixed rate and returns the server's CPU time a delivery in microseconds.
func (p *publisher) paced(ctx context.Context, a *audience, server *process, span time.Duration) (float64, error) {
	const perSecond = 50
	before := a.received.Load()
	cpuBefore, err := server.cpu()
	if err != nil {
		return 0, err
	}
	ticker := time.NewTicker(time.Second / perSecond)
	defer ticker.Stop()
	sent := int64(0)
	for range int(span.Seconds() * perSecond) {
		<-ticker.C
		if err := p.publish(); err != nil {
			return 0, err
		}
		sent++
	}
	if err := drained(ctx, a, before+sent*int64(len(a.conns))); err != nil {
		return 0, err
	}
	cpuAfter, err := server.cpu()
	if err != nil {
		return 0, err
	}
	return (cpuAfter - cpuBefore) * 1e6 / float64(a.received.Load()-before), nil
}

// weirFrame is what weir sends for the records of a produce body, so that the reference's frames have
// as many bytes.
func weirFrame(recordCount int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"op":"records","sub":"main","cursor":"c1.` + string(bytes.Repeat([]byte("A"), 44)) + `","records":[`)
	for i := range recordCount {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"topic":"bench","partition":0,"offset":%d,"timestamp":1762077600123,"key":"user-%04d","value":%s}`, 100000+i, i, value(i))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// crowds connects 1,000 subscribers and a publisher to a weir node and to a reference.
func crowds(ctx context.Context, b *bench, reference string, recordCount int) (weir, ref crowd, stop func() error, err error) {
	var ps []*process
	var as []*audience
	stop = func() error {
		var errs []error
		for _, a := range as {
			errs = append(errs, a.close())
		}
		return errors.Join(append(errs, stopAll(ps...)())...)
	}
	fail := func(err error) (crowd, crowd, func() error, error) {
		return crowd{}, crowd{}, nil, errors.Join(err, stop())
	}
	p, err := b.startWeir(ctx)
	if err != nil {
		return fail(err)
	}
	ps = append(ps, p)
	if err := createTopic(p, "bench", 1, `"retention.bytes":"268435456"`); err != nil {
		return fail(err)
	}
	r, err := startReference(ctx, reference)
	if err != nil {
		return fail(err)
	}
	ps = append(ps, r)
	for _, side := range []struct {
		c       *crowd
		p       *process
		path    string
		request []byte
	}{
		{&weir, p, "/v1/topics/bench/ws?from=latest", post(p.addr, "/v1/topics/bench/records", records(recordCount))},
		{&ref, r, "/ws", post(r.addr, "/publish", weirFrame(recordCount))},
	} {
		side.c.server = side.p
		if side.c.audience, err = subscribe(side.p.addr, side.path, subscribers); err != nil {
			return fail(err)
		}
		as = append(as, side.c.audience)
		if side.c.publisher, err = newPublisher(side.p.addr, side.request, recordCount); err != nil {
			return fail(err)
		}
		// Until each subscriber has had one publication, some may not be listening yet.
		if err := side.c.settle(ctx); err != nil {
			return fail(err)
		}
	}
	return weir, ref, stop, nil
}

type crowd struct {
	server    *process
	audience  *audience
	publisher *publisher
}

// settle publishes until a publication reaches everybody.
func (c crowd) settle(ctx context.Context) error {
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		before := c.audience.received.Load()
		if err := c.publisher.publish(); err != nil {
			return err
		}
		everybody := c.publisher.records * int64(len(c.audience.conns))
		for quiet := time.Now().Add(2 * time.Second); time.Now().Before(quiet); time.Sleep(time.Millisecond) {
			if c.audience.received.Load()-before == everybody {
				return nil
			}
		}
	}
	return errors.New("not every subscriber gets what is published")
}

func fanoutFast(ctx context.Context, b *bench) (sides, error) {
	weir, ref, stop, err := crowds(ctx, b, "broadcast", 100)
	if err != nil {
		return sides{}, err
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) { return weir.publisher.fast(ctx, weir.audience, b.span) },
		reference: func(ctx context.Context) (float64, error) {
			return ref.publisher.fast(ctx, ref.audience, b.span)
		},
		stop: stop,
	}, nil
}

func fanoutPaced(ctx context.Context, b *bench) (sides, error) {
	weir, ref, stop, err := crowds(ctx, b, "prepared", 1)
	if err != nil {
		return sides{}, err
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			return weir.publisher.paced(ctx, weir.audience, weir.server, 2*b.span)
		},
		reference: func(ctx context.Context) (float64, error) {
			return ref.publisher.paced(ctx, ref.audience, ref.server, 2*b.span)
		},
		stop: stop,
	}, nil
}
