package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pollers        = 64   // members, each of a group of its own, each with a connection of its own
	pollsPerSecond = 4000 // of all of them together: as 1,000 groups of four members that poll once a second
)

func groupRows() []row {
	return []row{{id: "P20", what: "group polls of one record, each with the ack of the one before, 4,000 a second over 64 connections, server CPU a poll, against a bare Fiber POST of the same bytes",
		unit: "µs", target: 3, atMost: true, setup: pollAgainstFiber}}
}

func pollAgainstFiber(ctx context.Context, b *bench) (sides, error) {
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, err
	}
	span := 2 * b.span
	// Each member has a record for each poll of all rounds.
	count := int(span.Seconds()+1)*(b.roundCount+1)*pollsPerSecond/pollers + 1000
	if err := fillTopic(ctx, p, count); err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	members, err := dialPollers(p.addr)
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	// The reference answers with what weir answered.
	ref, err := startReference(ctx, "poll", members[0].answer.String())
	if err != nil {
		return sides{}, errors.Join(err, members.close(), p.stop())
	}
	bare, err := dialPollers(ref.addr)
	if err != nil {
		return sides{}, errors.Join(err, members.close(), stopAll(p, ref)())
	}
	return sides{
		weir:      func(ctx context.Context) (float64, error) { return members.paced(ctx, p, span) },
		reference: func(ctx context.Context) (float64, error) { return bare.paced(ctx, ref, span) },
		stop:      func() error { return errors.Join(members.close(), bare.close(), stopAll(p, ref)()) },
	}, nil
}

// fillTopic stores so many records in a topic of one partition.
func fillTopic(ctx context.Context, p *process, count int) error {
	if err := createTopic(p, "bench", 1, ""); err != nil {
		return err
	}
	pub, err := newPublisher(p.addr, post(p.addr, "/v1/topics/bench/records", records(100)), 100)
	if err != nil {
		return err
	}
	for n := 0; n < count && ctx.Err() == nil; n += 100 {
		if err := pub.publish(); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), pub.conn.Close())
}

// poller is the only member of a group.
type poller struct {
	conn   net.Conn
	r      *bufio.Reader
	addr   string
	path   string
	answer bytes.Buffer // to the last poll
}

type pollerCrowd []*poller

// dialPollers connects the members and has each join and read its first record.
func dialPollers(addr string) (pollerCrowd, error) {
	var all pollerCrowd
	for i := range pollers {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		p := &poller{conn: conn, r: bufio.NewReader(conn), addr: addr, path: fmt.Sprintf("/v1/groups/group-%02d/members/member-1/poll", i)}
		all = append(all, p)
		if err := p.poll([]byte(`{"topics":["bench"],"wait_ms":0,"max_records":1}`)); err != nil {
			return nil, errors.Join(err, all.close())
		}
	}
	return all, nil
}

func (all pollerCrowd) close() error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.conn.Close())
	}
	return errors.Join(errs...)
}

// poll sends a body and keeps the answer, which has to have a record.
func (p *poller) poll(body []byte) error {
	if err := p.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := p.conn.Write(post(p.addr, p.path, body)); err != nil {
		return err
	}
	p.answer.Reset()
	if _, err := readAnswer(p.r, &p.answer); err != nil {
		return err
	}
	if !bytes.Contains(p.answer.Bytes(), inRecord) {
		return fmt.Errorf("a poll without a record: %.300s", p.answer.Bytes())
	}
	return nil
}

var inCursor = []byte(`"cursor":"`)

// next acknowledges what the last answer gave, and asks for one more.
func (p *poller) next() error {
	_, rest, found := bytes.Cut(p.answer.Bytes(), inCursor)
	end := bytes.IndexByte(rest, '"')
	if !found || end < 0 {
		return fmt.Errorf("an answer without a cursor: %.300s", p.answer.Bytes())
	}
	return p.poll(fmt.Appendf(nil, `{"ack":"%s","wait_ms":0,"max_records":1}`, rest[:end]))
}

// paced polls at the fixed rate and returns the server's CPU time a poll in microseconds.
func (all pollerCrowd) paced(ctx context.Context, server *process, span time.Duration) (float64, error) {
	cpuBefore, err := server.cpu()
	if err != nil {
		return 0, err
	}
	var polls atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, len(all))
	began := time.Now()
	every := time.Second * time.Duration(len(all)) / pollsPerSecond
	for i, p := range all {
		wg.Go(func() {
			// Each at a moment of its own.
			for due := every * time.Duration(i) / time.Duration(len(all)); due < span && ctx.Err() == nil; due += every {
				time.Sleep(time.Until(began.Add(due)))
				if err := p.next(); err != nil {
					errs <- err
					return
				}
				polls.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	cpuAfter, err := server.cpu()
	if err != nil {
		return 0, err
	}
	return (cpuAfter - cpuBefore) * 1e6 / float64(polls.Load()), ctx.Err()
}
