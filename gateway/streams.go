package gateway

import "context"

func (s *Server) mountStreams(r routes) {}

func (s *Server) drainStreams(ctx context.Context) {
	if s.deps.Hub != nil {
		s.deps.Hub.Drain(ctx)
	}
}
