package quorum

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// bridge gives raft a logger that writes to ours. Raft tells each step of an election at level info;
// those become debug, since the quorum itself says what changed.
func bridge(logger *slog.Logger) hclog.Logger {
	front := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	front.RegisterSink(sink{logger.With("from", "raft")})
	return front
}

type sink struct{ logger *slog.Logger }

// Accept takes one line of raft's.
func (s sink) Accept(_ string, level hclog.Level, message string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn:
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !s.logger.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, len(args)/2)
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, attr(args[i], args[i+1]))
	}
	s.logger.LogAttrs(ctx, to, message, attrs...)
}

func attr(key, value any) slog.Attr {
	name := fmt.Sprint(key)
	if name == "error" {
		name = "err"
	}
	if f, ok := value.(hclog.Format); ok && len(f) > 0 {
		if format, ok := f[0].(string); ok {
			return slog.String(name, fmt.Sprintf(format, f[1:]...))
		}
	}
	return slog.Any(name, value)
}
