package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// listener accepts connections within the caps and knows every one that is open.
type listener struct {
	net.Listener
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	closed  chan struct{}
	once    sync.Once

	mu        sync.Mutex
	conns     map[*conn]struct{}
	addresses map[netip.Addr]int // of connections that are not loopback
}

func (s *Server) listen(ctx context.Context) (*listener, error) {
	var lc net.ListenConfig
	inner, err := lc.Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		return nil, err
	}
	return &listener{
		Listener: inner, cfg: s.cfg, logger: s.logger, metrics: s.metrics, closed: make(chan struct{}),
		conns: map[*conn]struct{}{}, addresses: map[netip.Addr]int{},
	}, nil
}

// Accept waits for a connection that the caps allow. An error of the machine, such as too many open
// files, is waited out: a node that loses its door for it would not come back by itself.
func (l *listener) Accept() (net.Conn, error) {
	pause := 5 * time.Millisecond
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, io.EOF // the engine's word for "closed"
		}
		if err != nil {
			l.logger.Error("accepting a connection failed", "err", err)
			select {
			case <-time.After(pause):
			case <-l.closed:
				return nil, io.EOF
			}
			pause = min(2*pause, time.Second)
			continue
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			_ = c.Close()
			return nil, errors.New("the listener gave a connection that is not TCP")
		}
		if taken, why := l.take(tcp); taken != nil {
			return taken, nil
		} else if why != nil {
			refuse(tcp, why)
		}
	}
}

// take registers a connection, or says why it is one too many.
func (l *listener) take(tcp *net.TCPConn) (*conn, error) {
	remote, err := netip.ParseAddrPort(tcp.RemoteAddr().String())
	if err != nil {
		_ = tcp.Close()
		return nil, nil // it was gone before it was accepted
	}
	// What the kernel buffers for a reader that has stopped counts too: by itself it grows to megabytes.
	_ = tcp.SetWriteBuffer(l.cfg.SendBufferBytes)
	c := &conn{TCPConn: tcp, l: l, address: remote.Addr().Unmap(), patience: l.cfg.WriteTimeout}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.cfg.Connections {
		return nil, fault.Newf("gateway.Accept", fault.Overloaded, nil, "the node has %d connections, its most", l.cfg.Connections)
	}
	if !c.address.IsLoopback() {
		if l.addresses[c.address] >= l.cfg.AddressConnections {
			return nil, fault.Newf("gateway.Accept", fault.Overloaded, nil, "%s has %d connections to this node, the most for one address", c.address, l.cfg.AddressConnections)
		}
		l.addresses[c.address]++
	}
	l.conns[c] = struct{}{}
	l.metrics.connections.Set(float64(len(l.conns)))
	return c, nil
}

func (l *listener) drop(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, here := l.conns[c]; !here {
		return
	}
	delete(l.conns, c)
	if !c.address.IsLoopback() {
		if l.addresses[c.address]--; l.addresses[c.address] == 0 {
			delete(l.addresses, c.address)
		}
	}
	l.metrics.connections.Set(float64(len(l.conns)))
}

// Close stops accepting; connections stay open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) all() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

func (l *listener) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// cancelAll ends the calls that connections wait for whose context has ended.
func (l *listener) cancelAll() {
	for _, c := range l.all() {
		c.call.cancel()
	}
}

// closeAll closes what is still open, so that whoever reads or writes there returns.
func (l *listener) closeAll() {
	for _, c := range l.all() {
		_ = c.TCPConn.Close()
		l.drop(c)
	}
}

// refuse answers a connection before any request of it was read.
func refuse(tcp *net.TCPConn, why error) {
	p := problem.Of(why)
	body := p.Append(nil, problem.Place{})
	head := "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + problem.MediaType + "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	_ = tcp.SetWriteDeadline(now().Add(time.Second)) // a new connection's buffer is empty: this does not wait
	_, _ = tcp.Write(append([]byte(head), body...))
	_ = tcp.Close()
}
