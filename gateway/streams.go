package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// mountStreams mounts everything that reads: pages, and the streams that outlive their request.
func (s *Server) mountStreams(r routes) {
	// A stream takes its connection with it, and gives the server's buffers and the request back: an open
	// one would hold them for as long as it lives.
	s.app.Server().KeepHijackedConns = true
	r.Get("/v1/topics/:topic/records", s.readTopic)
	r.Get("/v1/topics/:topic/partitions/:partition/records", s.readPartition)
	r.Get("/v1/topics/:topic/events", s.topicEvents)
	r.Get("/v1/events", s.events)
	r.Add(fiber.MethodGet, "/v1/groups/:group/members/:member/records", s.groupRecords) // HEAD would join too
	r.Get("/v1/ws", s.webSocket)
	r.Get("/v1/topics/:topic/ws", s.topicWebSocket)
}

// drainStreams says goodbye to every stream, and returns when all have ended.
func (s *Server) drainStreams(ctx context.Context) {
	if s.deps.Hub != nil {
		s.deps.Hub.Drain(ctx)
	}
}

// topicEvents answers with the events of one topic.
func (s *Server) topicEvents(c *fiber.Ctx) error {
	spec, err := readSpec(c, lastEventID(c))
	if err != nil {
		return err
	}
	return s.serveEvents(c, spec)
}

// mostTopics is how many topics one stream may read.
const mostTopics = 100

// events answers with the events of several topics.
func (s *Server) events(c *fiber.Ctx) error {
	var spec session.Spec
	for _, text := range c.Context().QueryArgs().PeekMulti("topic") {
		name, err := topic.ParseName(string(text))
		if err != nil {
			return err
		}
		spec.Topics = append(spec.Topics, name)
	}
	if len(spec.Topics) == 0 || len(spec.Topics) > mostTopics {
		return problem.FieldError("gateway.Events", "topic", "must name 1 to %d topics, each as a parameter of its own", mostTopics)
	}
	if err := readPosition(c, lastEventID(c), &spec); err != nil {
		return err
	}
	return s.serveEvents(c, spec)
}

// lastEventID is where a browser stopped, or a cursor that came another way.
func lastEventID(c *fiber.Ctx) string {
	h := &c.Request().Header
	for _, text := range []string{string(h.Peek("Last-Event-ID")), strings.Clone(c.Query("last_event_id")), string(h.Peek("Weir-Cursor"))} {
		if text != "" {
			return text
		}
	}
	return ""
}

func (s *Server) serveEvents(c *fiber.Ctx, spec session.Spec) error {
	values, err := readFormat(c)
	if err != nil {
		return err
	}
	spec.Format = session.Format{Shape: session.Events, Values: values, Event: strings.Clone(c.Query("event"))}
	switch c.Query("data") {
	case "", "record":
	case "value":
		spec.Format.Bare = true
	default:
		return problem.FieldError("gateway.Events", "data", "must be record or value")
	}
	return s.stream(c, spec, session.SSE{}, "text/event-stream")
}

// stream begins an answer that goes on as the log does. Errors up to here are answers of their own.
func (s *Server) stream(c *fiber.Ctx, spec session.Spec, mouth session.Mouth, contentType string) error {
	if err := s.deps.Hub.Room(); err != nil {
		return err
	}
	reader, err := s.deps.Hub.Open(s.works, spec)
	if err != nil {
		return err
	}
	if c.Context().IsHead() {
		streamHead(c, contentType)
		reader.Close()
		c.Context().Response.SkipBody = true
		return nil
	}
	s.begin(c, session.Stream{Reader: reader, Mouth: mouth}, contentType)
	return nil
}

func streamHead(c *fiber.Ctx, contentType string) {
	h := &c.Context().Response.Header
	h.SetContentType(contentType)
	h.Set("X-Accel-Buffering", "no")
}

// begin gives the connection to a stream, once the request is done with.
func (s *Server) begin(c *fiber.Ctx, st session.Stream, contentType string) {
	streamHead(c, contentType)
	ctx := c.Context()
	h := &ctx.Response.Header
	chunked := ctx.Request.Header.IsHTTP11()
	s.takeOver(ctx, func(conn net.Conn) {
		if chunked {
			h.SetContentLength(-1)
		} else {
			h.SetContentLength(-2)
		}
		h.SetConnectionClose()
		st.Head = bytes.Clone(h.Header()) // the session goes on with it when the request has long been given back
		st.Chunked = chunked
		s.deps.Hub.Stream(conn, st)
	})
}

// takeOver hands the connection to take once the request is done with. The request and its answer are
// valid until take returns, and not longer; the engine writes nothing.
func (s *Server) takeOver(ctx *fasthttp.RequestCtx, take func(net.Conn)) {
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		if inner, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
			c = inner.UnsafeConn()
		}
		if ours, ok := c.(*conn); ok {
			c = released{TCPConn: ours.TCPConn, conn: ours}
		}
		take(c)
	})
}

// released is a connection whose deadlines are its new owner's.
type released struct {
	*net.TCPConn
	conn *conn
}

// Close closes the connection, and has the listener forget it.
func (r released) Close() error { return r.conn.Close() }

// webSocket opens a WebSocket without subscriptions.
func (s *Server) webSocket(c *fiber.Ctx) error {
	return s.upgrade(c, session.WebSocket{}, nil)
}

// topicWebSocket opens a WebSocket that is subscribed to a topic, under the topic's name.
func (s *Server) topicWebSocket(c *fiber.Ctx) error {
	spec, err := readSpec(c, string(c.Request().Header.Peek("Weir-Cursor")))
	if err != nil {
		return err
	}
	if spec.Format.Values, err = readFormat(c); err != nil {
		return err
	}
	return s.upgrade(c, session.WebSocket{Sub: string(spec.Topics[0])}, &spec)
}

// upgrade turns the connection into a WebSocket. Whether it may, by its origin and host, was checked as
// for every request.
func (s *Server) upgrade(c *fiber.Ctx, ws session.WebSocket, spec *session.Spec) error {
	ctx := c.Context()
	if !s.isHandshake(c) {
		return nil
	}
	key := ctx.Request.Header.Peek("Sec-Websocket-Key")
	if raw, err := base64.StdEncoding.DecodeString(string(key)); err != nil || len(raw) != 16 {
		return fault.Newf("gateway.WebSocket", fault.BadRequest, nil, "Sec-WebSocket-Key must be 16 bytes in base64")
	}
	if err := s.deps.Hub.Room(); err != nil {
		return err
	}
	if spec != nil {
		var err error
		if ws.Reader, err = s.deps.Hub.Open(s.works, *spec); err != nil {
			return err
		}
	}
	ws.Request = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {string(key)},
	}
	if protocols := ctx.Request.Header.Peek("Sec-Websocket-Protocol"); len(protocols) > 0 {
		ws.Request.Set("Sec-Websocket-Protocol", string(protocols))
	}
	ws.Answer = http.Header{}
	for _, name := range []string{"X-Request-Id", fiber.HeaderAccessControlAllowOrigin} {
		if value := ctx.Response.Header.Peek(name); len(value) > 0 {
			ws.Answer.Set(name, string(value))
		}
	}
	ctx.SetStatusCode(http.StatusSwitchingProtocols)
	s.takeOver(ctx, func(conn net.Conn) { s.deps.Hub.WebSocket(conn, ws) })
	return nil
}

// isHandshake says whether a request asks for a WebSocket of the one version there is, and answers it if not.
func (s *Server) isHandshake(c *fiber.Ctx) bool {
	ctx := c.Context()
	versionOK := string(ctx.Request.Header.Peek("Sec-Websocket-Version")) == "13"
	if ctx.IsGet() && websocket.IsWebSocketUpgrade(c) && versionOK {
		return true
	}
	ctx.Response.Header.Set(fiber.HeaderUpgrade, "websocket")
	ctx.Response.Header.Set("Sec-WebSocket-Version", "13")
	p := problem.Problem{
		Status: http.StatusUpgradeRequired, Code: "upgrade_required", Title: "Upgrade required",
		Detail: "this address speaks WebSocket, version 13",
	}
	s.answerProblem(ctx, &p, nil)
	return false
}
