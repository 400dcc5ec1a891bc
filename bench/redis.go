package main

import (
	"bufio"
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

// redisConn speaks just enough of Redis's protocol to be no bottleneck: requests prepared as bytes,
// answers walked without keeping them.
type redisConn struct {
	conn net.Conn
	r    *bufio.Reader
}

type redisClients []*redisConn

func dialRedis(addr string, n int) (redisClients, error) {
	var all redisClients
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, &redisConn{c, bufio.NewReaderSize(c, 64<<10)})
	}
	return all, nil
}

func (r redisClients) close() error {
	var errs []error
	for _, c := range r {
		errs = append(errs, c.conn.Close())
	}
	return errors.Join(errs...)
}

// run calls once on every connection again and again and returns weight x calls a second.
func (r redisClients) run(ctx context.Context, span time.Duration, weight int, once func(*redisConn) error) (float64, error) {
	var calls atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, len(r))
	begin := time.Now()
	for _, c := range r {
		wg.Go(func() {
			for time.Since(begin) < span && ctx.Err() == nil {
				if err := once(c); err != nil {
					errs <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(calls.Load()) * float64(weight) / took.Seconds(), ctx.Err()
	}
}

func redisCommand(dst []byte, words ...string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(words))
	for _, w := range words {
		dst = fmt.Appendf(dst, "$%d\r\n%s\r\n", len(w), w)
	}
	return dst
}

// exchange writes a request and reads as many answers as it has commands.
func (c *redisConn) exchange(request []byte, answers int) error {
	if err := c.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	for range answers {
		if err := c.skip(); err != nil {
			return err
		}
	}
	return nil
}

// skip reads one answer of any kind.
func (c *redisConn) skip() error {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	kind := line[0]
	if kind == '+' || kind == ':' {
		return nil
	}
	if kind == '-' {
		return fmt.Errorf("redis: %s", line)
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil {
		return err
	}
	switch kind {
	case '$':
		if n >= 0 {
			_, err = io.CopyN(io.Discard, c.r, int64(n+2))
		}
		return err
	case '*':
		for range n {
			if err := c.skip(); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("redis: answer of kind %q", kind)
	}
}
