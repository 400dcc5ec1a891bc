package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// Node is what the gateway needs of the node behind it. The parts stand beside their users.
type Node interface {
	Topics
	Producer
	Fetcher
	Health
}

// Deps is what a Server is handed.
type Deps struct {
	Node       Node
	Groups     Groups                // the consumer groups; nil: the node serves none
	NodeID     topic.NodeID          // whom members over REST are heard by
	Hub        *session.Hub          // the live subscriptions; drained by Run
	Logger     *slog.Logger          // nil: no logs
	Registerer prometheus.Registerer // nil: no metrics
	Gatherer   prometheus.Gatherer   // what /metrics shows; nil: nothing
	Web        fs.FS                 // what stands at /; nil: nothing
	OpenAPI    []byte                // what /openapi.yaml answers
	AsyncAPI   []byte                // what /asyncapi.yaml answers
	Listening  func(net.Addr)        // called once, when connections are taken; may be nil
}

// Server is the HTTP door of one node. Make one with [New], run it once with [Server.Run].
type Server struct {
	cfg     Config
	deps    Deps
	node    Node
	logger  *slog.Logger
	metrics *metrics
	guard   *guard
	bodies  budget // of requests
	pages   budget // of records, in answers

	inFlight atomic.Int64 // requests in a handler
	unrouted *operation   // counts what no route took

	app   *fiber.App
	inner fasthttp.RequestHandler // fiber's, behind the checks of serve

	addr     atomic.Pointer[net.Addr]
	draining atomic.Bool

	// waits ends when the drain begins: whoever waits for records returns what there is.
	waits    context.Context
	endWaits context.CancelFunc
	// works ends when the time for the drain is up: whoever waits for anything returns.
	works    context.Context
	endWorks context.CancelFunc
}

// New makes a server. It listens on nothing yet and starts nothing.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Node == nil {
		return nil, fault.Newf("gateway.New", fault.Internal, nil, "no node was handed in")
	}
	if deps.Groups == nil {
		deps.Groups = noGroups{}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	guard, err := newGuard(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, deps: deps, node: deps.Node, logger: deps.Logger, guard: guard}
	if s.metrics, err = newMetrics(deps.Registerer); err != nil {
		return nil, fault.New("gateway.New", fault.Internal, nil, err)
	}
	s.bodies.what, s.bodies.most = "request bodies", cfg.InFlightBytes
	s.pages.what, s.pages.most = "pages of records", cfg.InFlightBytes
	s.unrouted = s.operation("", "unmatched")
	s.waits, s.endWaits = context.WithCancel(context.Background())
	s.works, s.endWorks = context.WithCancel(context.Background())
	if err := s.build(); err != nil {
		return nil, fault.New("gateway.New", fault.Internal, nil, err)
	}
	return s, nil
}

// build makes the framework's app and mounts every route.
func (s *Server) build() error {
	s.app = fiber.New(fiber.Config{
		AppName:                      "weir",
		DisableStartupMessage:        true,
		StrictRouting:                true,
		CaseSensitive:                true,
		BodyLimit:                    s.cfg.RequestBytes,
		StreamRequestBody:            true, // body.go counts and limits what is read
		DisablePreParseMultipartForm: true,
		DisableDefaultContentType:    true,
		ReadBufferSize:               s.cfg.HeaderBytes,
		WriteBufferSize:              writeBuffer,
		ReadTimeout:                  s.cfg.ReadTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		Concurrency:                  s.cfg.Connections,
		ErrorHandler:                 s.fiberError,
	})
	r := routes{s: s, app: s.app}
	s.mountProduce(r)
	s.mountStreams(r)
	s.mountControl(r)
	if err := s.mountOperations(r); err != nil {
		return err
	}
	s.inner = s.app.Handler()

	engine := s.app.Server()
	engine.Handler = s.serve
	engine.ExpectHandler = s.expect
	engine.ErrorHandler = s.engineError
	engine.Logger = engineLogger{s.logger}
	engine.LazyRequestTime = true
	engine.SecureErrorLogMessage = true
	engine.CloseOnShutdown = true
	return nil
}

// Addr is where the server listens; nil before it does.
func (s *Server) Addr() net.Addr {
	if a := s.addr.Load(); a != nil {
		return *a
	}
	return nil
}

// Run listens and serves until ctx ends, then drains: /readyz fails, whoever waits for records returns,
// requests under way finish within Config.DrainTimeout, and every connection is closed.
func (s *Server) Run(ctx context.Context) error {
	s.guard.addHostName(os.Hostname())
	l, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", s.cfg.Address, err)
	}
	addr := l.Addr()
	s.addr.Store(&addr)
	s.logger.Info("listening", "address", addr.String(), "insecure", s.cfg.Insecure)
	if s.deps.Listening != nil {
		s.deps.Listening(addr)
	}

	tasks := run.NewGroup(context.WithoutCancel(ctx))
	tasks.Go("gateway.serve", func(context.Context) error { return s.app.Server().Serve(l) })
	select {
	case <-ctx.Done():
	case <-tasks.Context().Done(): // serving failed
	}
	s.drain(l)
	tasks.Stop()
	return tasks.Wait()
}

// drain ends everything in the order of the walk: no new work, waits, requests, connections.
func (s *Server) drain(l *listener) {
	s.draining.Store(true)
	s.logger.Info("draining", "connections", l.open())
	bounded, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	s.endWaits()
	l.cancelAll()
	s.drainStreams(bounded)
	if err := s.app.Server().ShutdownWithContext(bounded); err != nil && !errors.Is(err, net.ErrClosed) {
		s.logger.Warn("requests were cut off", "connections", l.open(), "err", err)
	}
	s.endWorks()
	l.cancelAll()
	_ = l.Close() // closed by the shutdown already, unless serving had failed
	l.closeAll()
}

// engineLogger takes what the HTTP engine prints; none of it names a request's content.
type engineLogger struct{ logger *slog.Logger }

// Printf writes one line of the engine's at debug level: it tells of clients that went away or talk nonsense.
func (l engineLogger) Printf(format string, args ...any) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.logger.Debug("http engine", "text", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

// now is the one clock of the gateway's measurements.
func now() time.Time { return time.Now() }
