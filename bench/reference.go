package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"

	fastws "github.com/fasthttp/websocket"
)

// runReference serves one of the references until it is told to stop.
func runReference(name string, args []string) error {
	if len(args) == 0 {
		return errors.New("an address is missing")
	}
	switch name {
	case "fiber":
		return serveFiber(args[0])
	case "broadcast":
		return serveBroadcast(args[0])
	case "prepared":
		return servePrepared(args[0])
	case "poll":
		if len(args) < 2 {
			return errors.New("an answer is missing")
		}
		return servePoll(args[0], []byte(args[1]))
	case "nats":
		if len(args) < 2 {
			return errors.New("a directory is missing")
		}
		return serveNATS(args[0], args[1])
	default:
		return fmt.Errorf("no reference %q", name)
	}
}

func untilSignal(stop func() error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}()
}

// serveFiber is the ceiling for produce: a handler that scans the body, drops it, and answers with as
// many bytes as a produce answer has.
func serveFiber(addr string) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, BodyLimit: 16 << 20})
	app.Post("/v1/topics/:topic/records", func(c *fiber.Ctx) error {
		n, err := scan(c.Body())
		if err != nil {
			return err
		}
		out := make([]byte, 0, 64+80*n)
		out = append(out, `{"topic":"bench","stored":`...)
		out = strconv.AppendInt(out, int64(n), 10)
		out = append(out, `,"failed":0,"results":[`...)
		for i := range n {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, `{"status":200,"partition":0,"offset":`...)
			out = strconv.AppendInt(out, int64(i), 10)
			out = append(out, `,"timestamp":1762077600123}`...)
		}
		out = append(out, `]}`...)
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Send(out)
	})
	untilSignal(app.Shutdown)
	return app.Listen(addr)
}

// servePoll is the ceiling for a group poll: a handler that scans the body and answers what it was given
// at the start.
func servePoll(addr string, answer []byte) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/v1/groups/:group/members/:member/poll", func(c *fiber.Ctx) error {
		if _, err := scan(c.Body()); err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Send(answer)
	})
	untilSignal(app.Shutdown)
	return app.Listen(addr)
}

// broadcast is a bare WebSocket fan-out. It has a plain port for the producer: what comes in there is
// one record a line, in lines of JSON, and goes to every subscriber as a text frame.
type broadcast struct {
	mu   sync.Mutex
	subs map[*sub]struct{}
}

type sub struct {
	mu      sync.Mutex
	waiting []byte // frames that nobody has written yet
	wake    chan struct{}
}

// push adds a frame to what waits for the subscriber's socket.
func (s *sub) push(frame []byte) {
	s.mu.Lock()
	s.waiting = append(s.waiting, frame...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take swaps the waiting bytes for an empty buffer.
func (s *sub) take(empty []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.waiting
	s.waiting = empty[:0]
	return full
}

// serveBroadcast is the ceiling for fan-out as fast as possible: all frames that wait for a socket
// leave in one write. A frame holds what came in one write of the producer.
func serveBroadcast(addr string) error {
	b := &broadcast{subs: map[*sub]struct{}{}}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/ws", websocket.New(func(c *websocket.Conn) {
		s := &sub{wake: make(chan struct{}, 1)}
		b.mu.Lock()
		b.subs[s] = struct{}{}
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			delete(b.subs, s)
			b.mu.Unlock()
		}()
		raw := c.NetConn()
		var spare []byte
		for range s.wake {
			full := s.take(spare)
			if _, err := raw.Write(full); err != nil {
				return
			}
			spare = full
		}
	}))
	app.Post("/publish", func(c *fiber.Ctx) error {
		frame := textFrame(c.Body())
		b.mu.Lock()
		defer b.mu.Unlock()
		for s := range b.subs {
			s.push(frame)
		}
		return c.SendString("{}")
	})
	untilSignal(app.Shutdown)
	return app.Listen(addr)
}

// servePrepared is the ceiling for a paced fan-out: one prepared frame, written to every socket.
func servePrepared(addr string) error {
	var mu sync.Mutex
	conns := map[*websocket.Conn]chan struct{}{}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/ws", websocket.New(func(c *websocket.Conn) {
		gone := make(chan struct{})
		mu.Lock()
		conns[c] = gone
		mu.Unlock()
		<-gone
	}))
	app.Post("/publish", func(c *fiber.Ctx) error {
		frame, err := fastws.NewPreparedMessage(fastws.TextMessage, bytes.Clone(c.Body()))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for conn, gone := range conns {
			if err := conn.WritePreparedMessage(frame); err != nil {
				delete(conns, conn)
				close(gone)
			}
		}
		return c.SendString("{}")
	})
	untilSignal(app.Shutdown)
	return app.Listen(addr)
}

// textFrame is an unmasked WebSocket text frame.
func textFrame(payload []byte) []byte {
	var head []byte
	switch n := len(payload); {
	case n < 126:
		head = []byte{0x81, byte(n)}
	case n < 1<<16:
		head = []byte{0x81, 126, byte(n >> 8), byte(n)}
	default:
		head = []byte{0x81, 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	return append(head, payload...)
}

// serveNATS is a JetStream server that syncs before each answer.
func serveNATS(addr, dir string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: host, Port: n, JetStream: true, StoreDir: dir, SyncAlways: true, SyncInterval: time.Minute,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	untilSignal(func() error { s.Shutdown(); s.WaitForShutdown(); return nil })
	s.Start()
	s.WaitForShutdown()
	return nil
}
