package gateway

// Health is what the operations handlers need of the node.
type Health interface {
	Ready() error // nil when the node can serve
}

func (s *Server) mountOperations(r routes) {}
