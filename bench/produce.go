package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const producers = 64

func produceRows() []row {
	var all []row
	for _, partitions := range []int{1, 24} {
		for _, c := range []struct {
			id      string
			records int
			async   bool
			target  float64
		}{{"P1", 1, false, 0.5}, {"P2", 100, false, 0.5}, {"P3/1", 1, true, 0.75}, {"P3/100", 100, true, 0.75}} {
			all = append(all, row{
				id:   fmt.Sprintf("%s/%dp", c.id, partitions),
				what: fmt.Sprintf("HTTP produce, %d a request, %s, %d partitions, against a bare Fiber handler", c.records, ackWord(c.async), partitions),
				unit: "requests/s", target: c.target,
				setup: func(ctx context.Context, b *bench) (sides, error) {
					return produceAgainstFiber(ctx, b, c.records, partitions, c.async)
				},
			})
		}
	}
	return append(all,
		row{id: "P4/1", what: "HTTP produce, 1 a request, synced, against NATS JetStream R1 synced, 64 publishers", unit: "records/s", target: 5,
			setup: func(ctx context.Context, b *bench) (sides, error) { return produceAgainstNATS(ctx, b, 1) }},
		row{id: "P4/100", what: "HTTP produce, 100 a request, synced, against NATS JetStream atomic batches of 100", unit: "records/s", target: 20,
			setup: func(ctx context.Context, b *bench) (sides, error) { return produceAgainstNATS(ctx, b, 100) }},
		row{id: "P5", what: "HTTP produce, 100 a request, synced, against Redis Streams, appendfsync always, pipeline 100", unit: "records/s", target: 2,
			setup: produceAgainstRedis},
	)
}

func ackWord(async bool) string {
	if async {
		return "acks=leader flush.messages=0"
	}
	return "acks=all synced"
}

// weirProducer starts a node and 64 connections that produce bodies of so many records.
func weirProducer(ctx context.Context, b *bench, recordCount, partitions int, async bool) (*process, *httpLoad, error) {
	p, err := b.startWeir(ctx)
	if err != nil {
		return nil, nil, err
	}
	path, settings := "/v1/topics/bench/records?acks=all", ""
	if async {
		path, settings = "/v1/topics/bench/records?acks=leader", `"flush.messages":"0"`
	}
	// Old segments go, so that a run does not fill the disk.
	settings = strings.Trim(settings+`,"retention.bytes":"536870912"`, ",")
	if err := createTopic(p, "bench", partitions, settings); err != nil {
		return nil, nil, errors.Join(err, p.stop())
	}
	body := records(recordCount)
	load, err := dialLoad(p.addr, producers, always(post(p.addr, path, body)))
	if err != nil {
		return nil, nil, errors.Join(err, p.stop())
	}
	return p, load, nil
}

func produceAgainstFiber(ctx context.Context, b *bench, recordCount, partitions int, async bool) (sides, error) {
	p, load, err := weirProducer(ctx, b, recordCount, partitions, async)
	if err != nil {
		return sides{}, err
	}
	ref, err := startReference(ctx, "fiber")
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	body := records(recordCount)
	refLoad, err := dialLoad(ref.addr, producers, always(post(ref.addr, "/v1/topics/bench/records", body)))
	if err != nil {
		return sides{}, errors.Join(err, stopAll(p, ref)())
	}
	return sides{
		weir:      func(ctx context.Context) (float64, error) { return load.run(ctx, b.span) },
		reference: func(ctx context.Context) (float64, error) { return refLoad.run(ctx, b.span) },
		stop:      func() error { return errors.Join(load.close(), refLoad.close(), stopAll(p, ref)()) },
	}, nil
}

func produceAgainstNATS(ctx context.Context, b *bench, recordCount int) (sides, error) {
	p, load, err := weirProducer(ctx, b, recordCount, 1, false)
	if err != nil {
		return sides{}, err
	}
	dir, err := b.data("nats")
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	ref, err := startReference(ctx, "nats", dir)
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	ref.dir = dir
	pub, err := newNATSPublishers(ref.addr, recordCount)
	if err != nil {
		return sides{}, errors.Join(err, stopAll(p, ref)())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			answers, err := load.run(ctx, b.span)
			return answers * float64(recordCount), err
		},
		reference: func(ctx context.Context) (float64, error) { return pub.run(ctx, b.span) },
		stop: func() error {
			pub.close()
			return errors.Join(load.close(), stopAll(p, ref)())
		},
	}, nil
}

// natsBatches is how many atomic batches are under way at once: the server takes 50 a stream.
const natsBatches = 48

// natsPublishers are connections that each wait for the answer of one publish, or of one atomic
// batch, before they send the next.
type natsPublishers struct {
	conns  []*nats.Conn
	batch  int
	values [][]byte
	ids    atomic.Int64
}

func newNATSPublishers(addr string, batch int) (*natsPublishers, error) {
	n := &natsPublishers{batch: batch}
	for i := range batch {
		n.values = append(n.values, value(i))
	}
	count := producers
	if batch > 1 {
		count = natsBatches
	}
	for range count {
		c, err := nats.Connect("nats://" + addr)
		if err != nil {
			n.close()
			return nil, err
		}
		n.conns = append(n.conns, c)
	}
	// By its own API subject, since the client library of this version has no field for atomic batches.
	config := `{"name":"bench","subjects":["bench"],"retention":"limits","storage":"file","num_replicas":1,` +
		`"max_bytes":536870912,"discard":"old","max_consumers":-1,"max_msgs":-1,"allow_atomic":true}`
	answer, err := n.conns[0].Request("$JS.API.STREAM.CREATE.bench", []byte(config), 5*time.Second)
	if err == nil && bytes.Contains(answer.Data, []byte(`"error"`)) {
		err = fmt.Errorf("create stream: %s", answer.Data)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *natsPublishers) close() {
	for _, c := range n.conns {
		c.Close()
	}
}

func (n *natsPublishers) run(ctx context.Context, span time.Duration) (float64, error) {
	var stored atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, len(n.conns))
	begin := time.Now()
	for _, c := range n.conns {
		wg.Go(func() {
			for time.Since(begin) < span && ctx.Err() == nil {
				if err := n.publish(c); err != nil {
					errs <- err
					return
				}
				stored.Add(int64(n.batch))
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(stored.Load()) / took.Seconds(), ctx.Err()
	}
}

// publish stores one value, or one atomic batch: numbered messages, the last of which commits.
func (n *natsPublishers) publish(c *nats.Conn) error {
	if n.batch == 1 {
		return natsAnswer(c.Request("bench", n.values[0], 20*time.Second))
	}
	id := strconv.FormatInt(n.ids.Add(1), 10)
	for i, v := range n.values {
		m := &nats.Msg{Subject: "bench", Data: v, Header: nats.Header{"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(i + 1)}}}
		if i == len(n.values)-1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
			return natsAnswer(c.RequestMsg(m, 20*time.Second))
		}
		if i == 0 { // the first is answered too, which says that the server takes the batch
			if err := natsAnswer(c.RequestMsg(m, 20*time.Second)); err != nil {
				return err
			}
			continue
		}
		if err := c.PublishMsg(m); err != nil {
			return err
		}
	}
	return nil
}

func natsAnswer(m *nats.Msg, err error) error {
	if err != nil {
		return err
	}
	if bytes.Contains(m.Data, []byte(`"error"`)) {
		return fmt.Errorf("%s", m.Data)
	}
	return nil
}

// startRedis starts redis-server with a file that is synced before each answer.
func startRedis(ctx context.Context, b *bench) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, absent{"redis-server is not installed (Debian: apt-get install redis-server)"}
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := b.data("redis")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, addr, path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes",
		"--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return nil, err
	}
	p.dir = dir
	return p, nil
}

func produceAgainstRedis(ctx context.Context, b *bench) (sides, error) {
	ref, err := startRedis(ctx, b)
	if err != nil {
		return sides{}, err
	}
	p, load, err := weirProducer(ctx, b, 100, 1, false)
	if err != nil {
		return sides{}, errors.Join(err, ref.stop())
	}
	const conns, pipeline = 4, 100
	var request []byte
	for i := range pipeline {
		request = redisCommand(request, "XADD", "bench", "MAXLEN", "~", "1000000", "*", "k", fmt.Sprintf("user-%04d", i), "v", string(value(i)))
	}
	clients, err := dialRedis(ref.addr, conns)
	if err != nil {
		return sides{}, errors.Join(err, load.close(), stopAll(p, ref)())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			answers, err := load.run(ctx, b.span)
			return answers * 100, err
		},
		reference: func(ctx context.Context) (float64, error) {
			return clients.run(ctx, b.span, pipeline, func(c *redisConn) error { return c.exchange(request, pipeline) })
		},
		stop: func() error { return errors.Join(load.close(), clients.close(), stopAll(p, ref)()) },
	}, nil
}
