package gateway

import (
	"bytes"
	"net/http"
	"net/netip"
	"sync"

	"github.com/nats-io/nuid"
	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// The header names that every request meets, in the form that the engine keeps them.
var (
	headerRequestID  = []byte("X-Request-Id")
	headerOrigin     = []byte("Origin")
	headerNosniff    = []byte("X-Content-Type-Options")
	headerResource   = []byte("Cross-Origin-Resource-Policy")
	headerCache      = []byte("Cache-Control")
	headerVary       = []byte("Vary")
	headerAllowed    = []byte("Access-Control-Allow-Origin")
	headerExposed    = []byte("Access-Control-Expose-Headers")
	headerAskMethod  = []byte("Access-Control-Request-Method")
	headerAskHeaders = []byte("Access-Control-Request-Headers")
	headerAskPrivate = []byte("Access-Control-Request-Private-Network")
	headerExpect     = []byte("Expect")

	valueNosniff = []byte("nosniff")
	valueSame    = []byte("same-origin")
	valueNoStore = []byte("no-store")
	valueOrigin  = []byte("Origin")
	valueExposed = []byte("X-Request-Id, Retry-After, Location, Weir-Cursor, Allow")
)

// serve is where every request comes in: the checks that need no route, then the framework's router.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	defer s.unexpected(ctx)
	s.stamp(ctx)
	if err := s.admit(ctx); err != nil {
		s.turnAway(ctx, err)
		return
	}
	if !knownMethod(ctx.Method()) {
		s.foreignMethod(ctx)
		return
	}
	origin := ctx.Request.Header.PeekCanonical(headerOrigin)
	if len(origin) > 0 {
		s.allowOrigin(ctx, origin)
		if ctx.IsOptions() && len(ctx.Request.Header.PeekCanonical(headerAskMethod)) > 0 {
			s.preflight(ctx)
			return
		}
	}
	s.inner(ctx)
}

// unexpected answers a panic of the checks or of the framework itself.
func (s *Server) unexpected(ctx *fasthttp.RequestCtx) {
	if v := recover(); v != nil {
		s.answerPanic(ctx, v)
	}
}

// knownMethod: what the framework does not know it would answer in words of its own.
func knownMethod(method []byte) bool {
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return true
	default:
		return false
	}
}

const usedMethods = "GET, HEAD, POST, PATCH, DELETE"

func (s *Server) foreignMethod(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderAllow, usedMethods)
	p := problem.MethodNotAllowed(string(ctx.Method()), usedMethods)
	s.answerProblem(ctx, &p, nil)
	s.unrouted.count(p.Status, 0)
}

// turnAway answers a request that was refused before any route, and closes the connection: what follows
// on it cannot be trusted to begin where this one ends.
func (s *Server) turnAway(ctx *fasthttp.RequestCtx, err error) {
	s.answerError(ctx, err)
	ctx.SetConnectionClose()
	lingerOn(ctx)
	s.unrouted.count(ctx.Response.StatusCode(), 0)
}

// expect decides about a body that the client has not sent yet.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if err := s.admit(ctx); err != nil {
		s.stamp(ctx)
		s.turnAway(ctx, err)
		return ctx.Response.StatusCode()
	}
	return http.StatusContinue
}

// stamp sets the headers that every answer has. No answer may be guessed to be a script or a page, be
// embedded by another origin, or be kept by a cache.
func (s *Server) stamp(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	if id := ctx.Request.Header.PeekCanonical(headerRequestID); saneRequestID(id) {
		h.SetCanonical(headerRequestID, id)
	} else {
		maker := requestIDs.Get().(*nuid.NUID)
		h.Set("X-Request-Id", maker.Next())
		requestIDs.Put(maker)
	}
	h.SetCanonical(headerNosniff, valueNosniff)
	h.SetCanonical(headerResource, valueSame)
	h.SetCanonical(headerCache, valueNoStore)
}

// requestIDs holds makers of ids, so that requests on several cores do not wait for the one of the library.
var requestIDs = sync.Pool{New: func() any { return nuid.New() }}

const mostRequestID = 128

func saneRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > mostRequestID {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' {
			return false
		}
	}
	return true
}

// requestID is the id that stamp chose.
func requestID(ctx *fasthttp.RequestCtx) string {
	return string(ctx.Response.Header.PeekBytes(headerRequestID))
}

// admit refuses what the engine lets pass and must not, and who must not speak with this node.
func (s *Server) admit(ctx *fasthttp.RequestCtx) error {
	h := &ctx.Request.Header
	if err := checkFraming(h); err != nil {
		return err
	}
	if err := s.guard.checkHost(h.Host(), h.IsHTTP11()); err != nil {
		return err
	}
	if origin := h.PeekCanonical(headerOrigin); len(origin) > 0 {
		if err := s.guard.checkOrigin(origin, h.Host()); err != nil {
			return err
		}
	}
	if hidesSlash(h.RequestURI()) {
		return fault.Newf("gateway.Serve", fault.BadRequest, nil, "the path has an encoded slash or backslash, which no name has")
	}
	if n := h.ContentLength(); n > s.cfg.largestBody() && !isNDJSON(h.ContentType()) {
		return s.bodyTooLarge()
	}
	if e := h.PeekCanonical(headerExpect); len(e) > 0 && !bytes.EqualFold(e, []byte("100-continue")) {
		return fault.Newf("gateway.Serve", fault.BadRequest, nil, "the expectation %s cannot be met", quote(string(e)))
	}
	return nil
}

// hidesSlash finds %2F and %5C in a path. No name has one, and what stands before this node may work on the
// decoded path: a/partitions/0 as a name would be partition 0 of topic a to it.
func hidesSlash(uri []byte) bool {
	for {
		at := bytes.IndexAny(uri, "%?")
		if at < 0 || uri[at] == '?' || len(uri) < at+3 {
			return false
		}
		switch uri = uri[at+1:]; {
		case uri[0] == '2' && uri[1]|0x20 == 'f', uri[0] == '5' && uri[1]|0x20 == 'c':
			return true
		}
	}
}

// checkFraming refuses requests of which two servers could see different ends: what one takes for the
// body, the next may take for another request.
func checkFraming(h *fasthttp.RequestHeader) error {
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return framing("the version " + quote(string(p)) + " is not spoken here, only HTTP/1.1 and HTTP/1.0")
	}
	raw := h.RawHeaders()
	length, coding := false, false
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 0 {
			return framing("the headers do not end")
		}
		line := raw[:end]
		raw = raw[end+1:]
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return framing("a header line ends without CR")
		}
		switch line[0] {
		case ' ', '\t':
			return framing("a header is folded over two lines")
		case 'c', 'C':
			length = length || named(line, "content-length")
		case 't', 'T':
			coding = coding || named(line, "transfer-encoding")
		}
	}
	if coding && length {
		return framing("Content-Length and Transfer-Encoding exclude each other")
	}
	if coding && h.ContentLength() != -1 {
		return framing("the only transfer coding that is taken is chunked")
	}
	return nil
}

// named says whether a header line has a name, given in lower case.
func named(line []byte, name string) bool {
	if len(line) <= len(name) || line[len(name)] != ':' {
		return false
	}
	for i := range len(name) {
		if line[i]|0x20 != name[i] {
			return false
		}
	}
	return true
}

func framing(why string) error {
	return fault.Newf("gateway.Framing", fault.BadRequest, nil, "%s", why)
}

// allowOrigin lets the page read the answer. Its origin was checked by admit.
func (s *Server) allowOrigin(ctx *fasthttp.RequestCtx, origin []byte) {
	h := &ctx.Response.Header
	h.SetCanonical(headerAllowed, origin)
	h.SetCanonical(headerExposed, valueExposed)
	h.AddBytesKV(headerVary, valueOrigin)
}

// preflight answers a browser that asks before it sends. It needs no credential and reaches no route.
func (s *Server) preflight(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderAccessControlAllowMethods, usedMethods)
	if asked := ctx.Request.Header.PeekCanonical(headerAskHeaders); saneHeaderList(asked) {
		h.SetBytesV(fasthttp.HeaderAccessControlAllowHeaders, asked)
	}
	if len(ctx.Request.Header.PeekCanonical(headerAskPrivate)) > 0 {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set(fasthttp.HeaderAccessControlMaxAge, "600")
	ctx.SetStatusCode(http.StatusNoContent)
	s.unrouted.count(http.StatusNoContent, 0)
}

// saneHeaderList: any header may be sent, since none gives a right by itself here; record headers have
// names of the caller's choice.
func saneHeaderList(list []byte) bool {
	if len(list) == 0 || len(list) > 4096 {
		return false
	}
	for _, c := range list {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == ',' || c == ' ' || c == '.' {
			continue
		}
		return false
	}
	return true
}

func peerOf(ctx *fasthttp.RequestCtx) netip.Addr {
	if c, ok := ctx.Conn().(*conn); ok {
		return c.address
	}
	ip, _ := netip.AddrFromSlice(ctx.RemoteIP())
	return ip.Unmap()
}

// forbidden is a refusal that names what was asked for.
func forbidden(action, resource, why string) error {
	return fault.New("gateway.Allow", fault.Forbidden, nil, &problem.Denied{Action: action, Resource: resource, Why: why})
}
