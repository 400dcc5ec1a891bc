package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const readCount = 100_000 // records that the readers go over again and again

func readRows() []row {
	return []row{{id: "P11", what: "HTTP read, JSON pages of 500, 4 readers, against Redis XREAD COUNT 500",
		unit: "records/s", target: 0.5, setup: readAgainstRedis}}
}

func readAgainstRedis(ctx context.Context, b *bench) (sides, error) {
	ref, err := startRedis(ctx, b)
	if err != nil {
		return sides{}, err
	}
	clients, err := dialRedis(ref.addr, 4)
	if err != nil {
		return sides{}, errors.Join(err, ref.stop())
	}
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, errors.Join(err, clients.close(), ref.stop())
	}
	stop := func() error { return errors.Join(clients.close(), stopAll(p, ref)()) }
	if err := fillBoth(ctx, p, clients[0]); err != nil {
		return sides{}, errors.Join(err, stop())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) { return readPages(ctx, p.addr, 4, b.span) },
		reference: func(ctx context.Context) (float64, error) {
			// Identifiers are 1-0 … readCount-0, so a page's start is known without reading the answer.
			var turn atomic.Int64
			return clients.run(ctx, b.span, 500, func(c *redisConn) error {
				from := (turn.Add(1) * 500) % (readCount - 500)
				return c.exchange(redisCommand(nil, "XREAD", "COUNT", "500", "STREAMS", "bench", fmt.Sprintf("%d-0", from)), 1)
			})
		},
		stop: stop,
	}, nil
}

func fillBoth(ctx context.Context, p *process, c *redisConn) error {
	if err := createTopic(p, "bench", 1, ""); err != nil {
		return err
	}
	pub, err := newPublisher(p.addr, post(p.addr, "/v1/topics/bench/records", records(100)), 100)
	if err != nil {
		return err
	}
	for n := 0; n < readCount && ctx.Err() == nil; n += 100 {
		if err := pub.publish(); err != nil {
			return err
		}
		var request []byte
		for i := range 100 {
			request = redisCommand(request, "XADD", "bench", fmt.Sprintf("%d-0", n+i+1), "k", fmt.Sprintf("user-%04d", i), "v", string(value(i)))
		}
		if err := c.exchange(request, 100); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), pub.conn.Close())
}

// readPages lets readers fetch pages of 500 by offset, each over the whole log.
func readPages(ctx context.Context, addr string, readers int, span time.Duration) (float64, error) {
	var got atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, readers)
	began := time.Now()
	for i := range readers {
		wg.Go(func() {
			n, err := readLoop(ctx, addr, i*readCount/readers, began.Add(span))
			got.Add(n)
			errs <- err
		})
	}
	wg.Wait()
	took := time.Since(began)
	close(errs)
	for err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(got.Load()) / took.Seconds(), nil
}

func readLoop(ctx context.Context, addr string, offset int, end time.Time) (got int64, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 256<<10)
	var body bytes.Buffer
	for time.Now().Before(end) && ctx.Err() == nil {
		request := get(addr, fmt.Sprintf("/v1/topics/bench/partitions/0/records?offset=%d&max_records=500", offset))
		if _, err := conn.Write(request); err != nil {
			return got, err
		}
		body.Reset()
		if _, err := readAnswer(r, &body); err != nil {
			return got, err
		}
		// Where to go on stands at the end; a full decode would measure the client.
		next, err := numberAfter(body.Bytes(), []byte(`"next_offset":`))
		if err != nil {
			return got, err
		}
		got += int64(next - offset)
		if offset = next; offset >= readCount-500 {
			offset = 0
		}
	}
	return got, ctx.Err()
}

// numberAfter is the number behind the last place of a name.
func numberAfter(body, name []byte) (int, error) {
	at := bytes.LastIndex(body, name)
	if at < 0 {
		return 0, fmt.Errorf("no %s in %.200q", name, body)
	}
	var n int
	err := json.NewDecoder(bytes.NewReader(body[at+len(name):])).Decode(&n)
	return n, err
}
