package gateway

import (
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/weirlog/weir/internal/fault"
)

// Health is what the operations handlers need of the node.
type Health interface {
	Ready() error // nil when the node can serve
}

func (s *Server) mountOperations(r routes) error {
	r.watch("/healthz", s.healthz)
	r.watch("/readyz", s.readyz)
	r.watch("/metrics", s.metricsHandler())
	r.Get("/openapi.yaml", document(s.deps.OpenAPI))
	r.Get("/asyncapi.yaml", document(s.deps.AsyncAPI))
	if s.deps.Web == nil {
		return nil
	}
	return s.mountWeb(r)
}

// watch mounts what is served however busy the node is.
func (r routes) watch(pattern string, h fiber.Handler) {
	for _, method := range []string{fiber.MethodHead, fiber.MethodGet} {
		op := r.s.operation(method, pattern)
		op.always = true
		r.app.Add(method, pattern, r.s.handle(op, h))
	}
}

// healthz says that the process answers, also while it starts or drains.
func (s *Server) healthz(c *fiber.Ctx) error {
	return answerText(c, typeJSON, []byte(`{"status":"ok"}`+"\n"))
}

// readyz says whether requests should come here.
func (s *Server) readyz(c *fiber.Ctx) error {
	if s.draining.Load() {
		return fault.Newf("gateway.Ready", fault.Stopping, nil, "the node is stopping")
	}
	if err := s.node.Ready(); err != nil {
		if fault.KindOf(err).Retryable() {
			return err
		}
		return fault.Newf("gateway.Ready", fault.NotLeader, nil, "the node is not ready: %w", err)
	}
	return answerText(c, typeJSON, []byte(`{"status":"ready"}`+"\n"))
}

func (s *Server) metricsHandler() fiber.Handler {
	if s.deps.Gatherer == nil {
		return func(c *fiber.Ctx) error { return answerText(c, "text/plain; charset=utf-8", nil) }
	}
	// The answer is packed by pack, like every other.
	h := fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{DisableCompression: true}))
	return func(c *fiber.Ctx) error {
		h(c.Context())
		return nil
	}
}

func document(text []byte) fiber.Handler {
	return func(c *fiber.Ctx) error { return answerText(c, "application/yaml", text) }
}

func answerText(c *fiber.Ctx, contentType string, text []byte) error {
	c.Response().Header.SetContentType(contentType)
	c.Response().SetBodyRaw(text)
	return nil
}

// mountWeb mounts every file of the web root under its own path, and index.html at /.
func (s *Server) mountWeb(r routes) error {
	return fs.WalkDir(s.deps.Web, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) == ".go" {
			return err
		}
		text, err := fs.ReadFile(s.deps.Web, name)
		if err != nil {
			return err
		}
		pattern := "/" + name
		if name == "index.html" {
			pattern = "/"
		}
		r.Get(pattern, webFile(name, text))
		return nil
	})
}

// pagePolicy lets a page load only what this node serves, and speak with this node alone.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func webFile(name string, text []byte) fiber.Handler {
	contentType := mime.TypeByExtension(path.Ext(name))
	if contentType == "" {
		contentType = http.DetectContentType(text)
	}
	isPage := strings.HasPrefix(contentType, "text/html")
	return func(c *fiber.Ctx) error {
		h := &c.Response().Header
		h.Set(fiber.HeaderCacheControl, "no-cache")
		h.Set(fiber.HeaderReferrerPolicy, "no-referrer")
		if isPage {
			h.Set(fiber.HeaderContentSecurityPolicy, pagePolicy)
			h.Set(fiber.HeaderXFrameOptions, "DENY")
		}
		return answerText(c, contentType, text)
	}
}
