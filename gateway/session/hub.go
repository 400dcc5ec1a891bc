package session

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// Deps is what a Hub is handed.
type Deps struct {
	Log        Log
	Producer   Producer
	Groups     Groups                // nil: there are no consumer groups here
	NodeID     topic.NodeID          // in the hello of a WebSocket
	Logger     *slog.Logger          // nil: no logs
	Registerer prometheus.Registerer // nil: no metrics
}

// Hub knows every live session of a node. Make one with [NewHub] and end it with [Hub.Drain]. It is safe
// for concurrent use.
type Hub struct {
	cfg      Config
	log      Log
	producer Producer
	groups   Groups
	nodeID   topic.NodeID
	logger   *slog.Logger
	metrics  *metrics
	cache    *cache
	tails    tails

	// closing is set when the drain begins: sessions say goodbye. ctx ends when its time is up.
	closing    atomic.Bool
	ctx        context.Context
	cancel     context.CancelFunc
	places     atomic.Int64 // live sessions
	frameBytes atomic.Int64 // of large frames that clients have sent and that are not done with
	goroutines sync.WaitGroup

	mu       sync.Mutex
	draining bool                  // guarded by mu
	live     map[*session]struct{} // guarded by mu
}

// NewHub makes a hub. It starts nothing.
func NewHub(cfg Config, deps Deps) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.New("session.NewHub", fault.Validation, nil, err)
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fault.New("session.NewHub", fault.Internal, nil, err)
	}
	logger := deps.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		cfg: cfg, log: deps.Log, producer: deps.Producer, groups: deps.Groups, nodeID: deps.NodeID, logger: logger, metrics: m,
		cache: newCache(cfg.CacheBytes, m), live: map[*session]struct{}{},
	}
	h.tails = tails{hub: h, by: map[topic.Ref]*tail{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Room is nil when one more session may begin. Ask before the answer's status has left; the place itself
// is taken when the session begins.
func (h *Hub) Room() error {
	h.mu.Lock()
	draining := h.draining
	h.mu.Unlock()
	if draining {
		return fault.Newf("session.Room", fault.Stopping, nil, "the node is shutting down")
	}
	if h.places.Load() >= int64(h.cfg.MaxConnections) {
		h.metrics.refused.Inc()
		return fault.Newf("session.Room", fault.Overloaded, nil, "%d streams are open, more are not taken", h.cfg.MaxConnections)
	}
	return nil
}

// Live is the number of sessions.
func (h *Hub) Live() int { return int(h.places.Load()) }

// Drain asks every session to say goodbye and returns when all have ended, and their goroutines with
// them. When ctx ends first their sockets are closed as they stand. New sessions are refused from now on.
func (h *Hub) Drain(ctx context.Context) {
	h.mu.Lock()
	h.draining = true
	h.closing.Store(true)
	for s := range h.live {
		// A goodbye has to pass what is stuck in front of it within its own time.
		s.socket.hurry(h.cfg.Goodbye)
		s.ring()
	}
	h.mu.Unlock()

	over := context.AfterFunc(ctx, func() {
		h.cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		for s := range h.live {
			s.socket.abort()
		}
	})
	h.goroutines.Wait()
	over()
	h.cancel()
}

// start runs a session in a goroutine of its own on a connection that the HTTP server has given up. The
// session owns the connection from now on. end is called when it is over, or when it cannot begin.
func (h *Hub) start(mouth string, conn net.Conn, serve func(*session) error, end func()) {
	s := newSession(mouth, newSocket(conn, h.cfg.WriteTimeout), h.metrics)
	if !h.enter() {
		s.socket.abort()
		end()
		return
	}
	h.mu.Lock()
	h.live[s] = struct{}{}
	if h.draining { // since it has entered
		s.socket.hurry(h.cfg.Goodbye)
	}
	h.mu.Unlock()
	h.places.Add(1)
	h.metrics.live(mouth).Inc()

	go func() {
		defer h.goroutines.Done()
		err := run.Safely("session."+mouth, func() error { return serve(s) })
		s.silence()
		s.socket.abort()
		end()
		h.mu.Lock()
		delete(h.live, s)
		h.mu.Unlock()
		h.places.Add(-1)
		h.metrics.live(mouth).Dec()
		h.ended(s, err)
	}()
}

// enter counts one more goroutine that Drain waits for, unless the drain has begun.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return false
	}
	h.goroutines.Add(1)
	return true
}

// beside runs a goroutine that serves a session beside its own. It ends when the session's socket closes.
func (h *Hub) beside(s *session, task func() error) {
	h.goroutines.Go(func() {
		if err := run.Safely("session."+s.mouth, task); err != nil {
			s.socket.abort()
			h.ended(s, err)
		}
	})
}

// ended writes why a session is over. Most ends are a client's own business.
func (h *Hub) ended(s *session, err error) {
	var panicked *run.PanicError
	var gone *net.OpError // the client's end of the connection, or the network
	switch {
	case errors.As(err, &panicked):
		h.logger.Error("session ended by a defect", "session", s.id, "mouth", s.mouth, "err", err, "stack", string(panicked.Stack))
	case errors.As(err, &gone):
		h.logger.Debug("session ended", "session", s.id, "mouth", s.mouth, "err", err)
	case fault.Is(err, fault.Internal) || fault.Is(err, fault.Corrupt):
		h.logger.Error("session failed", "session", s.id, "mouth", s.mouth, "err", err)
	case err != nil:
		h.logger.Debug("session ended", "session", s.id, "mouth", s.mouth, "err", err)
	}
}

// reconnectAfter is when one client is asked to come back. Each gets a time of its own, so that a
// restart does not bring all of them at once.
func (h *Hub) reconnectAfter() time.Duration {
	return h.cfg.Reconnect/10 + rand.N(h.cfg.Reconnect)
}
