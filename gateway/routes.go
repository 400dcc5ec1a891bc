package gateway

import (
	"slices"

	"github.com/gofiber/fiber/v2"
)

// routes mounts handlers. Each is wrapped so that errors become problem documents, a panic becomes one
// too, and every request is counted under its pattern.
//
// It is also the fiber.Router that the generated code registers its handlers on.
type routes struct {
	fiber.Router // never called: the methods that are used stand below
	s            *Server
	app          *fiber.App
}

// Add mounts a handler for a method and a pattern, with the middleware handlers before it.
func (r routes) Add(method, pattern string, handlers ...fiber.Handler) fiber.Router {
	op := r.s.operation(method, pattern)
	for i, h := range handlers {
		handlers[i] = r.s.handle(op, h)
	}
	r.app.Add(method, pattern, handlers...)
	return r
}

// Get mounts a handler for GET and HEAD. What answers with a stream is mounted with Add, for GET alone.
func (r routes) Get(pattern string, h ...fiber.Handler) fiber.Router {
	r.Add(fiber.MethodHead, pattern, slices.Clone(h)...)
	return r.Add(fiber.MethodGet, pattern, h...)
}

// Post mounts a handler for POST.
func (r routes) Post(pattern string, h ...fiber.Handler) fiber.Router {
	return r.Add(fiber.MethodPost, pattern, h...)
}

// Put mounts a handler for PUT.
func (r routes) Put(pattern string, h ...fiber.Handler) fiber.Router {
	return r.Add(fiber.MethodPut, pattern, h...)
}

// Patch mounts a handler for PATCH.
func (r routes) Patch(pattern string, h ...fiber.Handler) fiber.Router {
	return r.Add(fiber.MethodPatch, pattern, h...)
}

// Delete mounts a handler for DELETE.
func (r routes) Delete(pattern string, h ...fiber.Handler) fiber.Router {
	return r.Add(fiber.MethodDelete, pattern, h...)
}
