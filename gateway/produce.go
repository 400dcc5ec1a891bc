package gateway

import (
	"bytes"
	"context"
	"strings"

	"github.com/weirlog/weir/topic"
)

// Producer is what the produce handlers need of the node.
type Producer interface {
	// Produce appends a.Records and fills in a.Results; the records may be views of buffers for as long
	// as the call lasts. An error refuses the call as a whole.
	Produce(ctx context.Context, a *topic.Append) error
}

func (s *Server) mountProduce(r routes) {}

// isNDJSON says whether a body is a stream of lines.
func isNDJSON(contentType []byte) bool { return mediaType(contentType) == "application/x-ndjson" }

// mediaType is the type of a Content-Type without its parameters, in lower case.
func mediaType(contentType []byte) string {
	if i := bytes.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	return strings.ToLower(string(bytes.TrimSpace(contentType)))
}
