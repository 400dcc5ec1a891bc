package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// handle wraps the handler of one operation: limits before it, one shape of errors, numbers and a log
// line after it.
func (s *Server) handle(op *operation, h fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		ctx := c.Context()
		begun := now()
		defer s.finish(ctx, op, begun)
		if s.inFlight.Add(1) > int64(s.cfg.InFlightRequests) && !op.always {
			s.answerError(ctx, fault.Newf("gateway.Serve", fault.Overloaded, nil, "the node serves %d requests, its most", s.cfg.InFlightRequests))
			return nil
		}
		if err := op.checkQuery(ctx); err != nil {
			s.answerError(ctx, err)
			return nil
		}
		if err := h(c); err != nil {
			s.answerError(ctx, err)
			return nil
		}
		s.pack(ctx)
		joinWrites(ctx)
		return nil
	}
}

// finish ends every request of an operation, also one that panicked.
func (s *Server) finish(ctx *fasthttp.RequestCtx, op *operation, begun time.Time) {
	if v := recover(); v != nil {
		s.answerPanic(ctx, v)
	}
	s.inFlight.Add(-1)
	took := now().Sub(begun)
	op.count(ctx.Response.StatusCode(), took.Seconds())
	if s.logger.Enabled(context.Background(), slog.LevelDebug) {
		s.access(ctx, op.pattern, took)
	}
}

// access writes the line of one request. The path stands there without its query, which may hold what
// is nobody's business.
func (s *Server) access(ctx *fasthttp.RequestCtx, route string, took time.Duration) {
	peer := s.guard.clientAddr(peerOf(ctx), ctx.Request.Header.Peek(fasthttp.HeaderXForwardedFor))
	s.logger.Debug("request", "method", string(ctx.Method()), "route", route, "path", string(ctx.Path()),
		"status", ctx.Response.StatusCode(), "took", took, "peer", peer, "request_id", requestID(ctx))
}

func (s *Server) answerPanic(ctx *fasthttp.RequestCtx, v any) {
	s.metrics.panics.Inc()
	s.logger.Error("a request panicked", "method", string(ctx.Method()), "path", string(ctx.Path()),
		"request_id", requestID(ctx), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	ctx.Response.ResetBody()
	p := problem.Of(fault.Newf("gateway.Serve", fault.Internal, nil, "panic"))
	s.answerProblem(ctx, &p, nil)
	ctx.SetConnectionClose()
}

// answerError answers with the problem document of err. It is where an error is logged: once, at the edge.
func (s *Server) answerError(ctx *fasthttp.RequestCtx, err error) {
	p := s.problemOf(ctx, err)
	s.logProblem(ctx, &p, err)
	s.answerProblem(ctx, &p, nil)
}

func (s *Server) logProblem(ctx *fasthttp.RequestCtx, p *problem.Problem, err error) {
	if p.Status == http.StatusInternalServerError {
		s.logger.Error("a request failed", "method", string(ctx.Method()), "path", string(ctx.Path()), "request_id", requestID(ctx), "err", err)
	}
}

// answerProblem writes p, with results where the outcome was decided record by record.
func (s *Server) answerProblem(ctx *fasthttp.RequestCtx, p *problem.Problem, results []byte) {
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(p.Status)
	h.SetContentType(problem.MediaType)
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	case http.StatusRequestEntityTooLarge:
		lingerOn(ctx)
	}
	if p.RetryAfter > 0 {
		h.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
	}
	body := p.Append(nil, problem.Place{Instance: string(ctx.Path()), RequestID: requestID(ctx), Results: results})
	ctx.Response.SetBodyRaw(append(body, lineEnd))
}

// problemOf knows, besides the kinds, what the web framework and the generated code return.
func (s *Server) problemOf(ctx *fasthttp.RequestCtx, err error) problem.Problem {
	var slow *slowBody
	if errors.As(err, &slow) {
		return problem.RequestTimeout(slow.limit)
	}
	var f *fiber.Error
	if !errors.As(err, &f) {
		return problem.Of(err)
	}
	switch f.Code {
	case http.StatusNotFound:
		return problem.Of(fault.Newf("gateway.Route", fault.NotFound, nil, "there is nothing at %s", quote(string(ctx.Path()))))
	case http.StatusMethodNotAllowed:
		return problem.MethodNotAllowed(string(ctx.Method()), string(ctx.Response.Header.Peek(fasthttp.HeaderAllow)))
	case http.StatusBadRequest:
		return problem.Of(fault.New("gateway.Route", fault.BadRequest, nil, f))
	default:
		return problem.Of(fault.New("gateway.Route", fault.Internal, nil, err))
	}
}

// fiberError answers what no route took.
func (s *Server) fiberError(c *fiber.Ctx, err error) error {
	ctx := c.Context()
	begun := now()
	s.answerError(ctx, err)
	s.inFlight.Add(1) // finish takes it off
	s.finish(ctx, s.unrouted, begun)
	return nil
}

// engineError answers a request that the engine could not read. Its text quotes the request and stays inside.
func (s *Server) engineError(ctx *fasthttp.RequestCtx, err error) {
	s.stamp(ctx)
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	var p problem.Problem
	switch {
	case errors.As(err, &small):
		p = problem.HeadersTooLarge(s.cfg.HeaderBytes)
		lingerOn(ctx)
	case errors.As(err, &netErr) && netErr.Timeout():
		p = problem.RequestTimeout(s.cfg.ReadTimeout.String())
	default:
		p = problem.Of(fault.Newf("gateway.Serve", fault.BadRequest, nil, "the request is not HTTP/1.1 as it should be"))
	}
	s.answerProblem(ctx, &p, nil)
	ctx.SetConnectionClose()
	s.unrouted.count(p.Status, 0)
}

// lingerOn lets the connection of a refused request read on for a while before it is closed.
func lingerOn(ctx *fasthttp.RequestCtx) {
	if c, ok := ctx.Conn().(*conn); ok {
		c.linger = true
	}
}
