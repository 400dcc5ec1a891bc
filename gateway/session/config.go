package session

import (
	"errors"
	"fmt"
	"time"
)

// Config of a hub. Start from [DefaultConfig]; the zero value is not valid.
type Config struct {
	MaxConnections   int // live sessions of all kinds together
	MaxSubscriptions int // of one WebSocket
	MaxPartitions    int // that one reader follows

	MaxFrameBytes int // of a frame that a client sends
	MaxProducing  int // frames of one WebSocket that wait to be stored
	FrameBytes    int // of all frames together that clients have sent and that are not done with
	MaxRecords    int // records in one produce frame

	WindowRecords int // of a subscription without credit of its own: the most in one flush
	WindowBytes   int // the same in bytes, as encoded
	CacheBytes    int // of encodings that readers at the tail share, in the whole hub

	PingEvery    time.Duration // between two pings of a WebSocket
	PongWithin   time.Duration // for the answer to one
	Heartbeat    time.Duration // between two signs of life on an SSE or NDJSON stream
	WriteTimeout time.Duration // a socket that takes no byte for this long is closed
	ProduceWait  time.Duration // for a produce frame to be stored
	Goodbye      time.Duration // for a peer to take the goodbye and close
	Reconnect    time.Duration // clients are asked to come back after a random part of this
}

// DefaultConfig suits a node of some GB of memory.
func DefaultConfig() Config {
	return Config{
		MaxConnections: 10_000, MaxSubscriptions: 100, MaxPartitions: 10_000,
		MaxFrameBytes: 8 << 20, MaxProducing: 16, FrameBytes: 256 << 20, MaxRecords: 10_000,
		WindowRecords: 1_000, WindowBytes: 64 << 10, CacheBytes: 32 << 20,
		PingEvery: 25 * time.Second, PongWithin: 10 * time.Second, Heartbeat: 15 * time.Second,
		WriteTimeout: 30 * time.Second, ProduceWait: 10 * time.Second, Goodbye: 2 * time.Second, Reconnect: 5 * time.Second,
	}
}

// Validate reports every mistake at once, each with the name of its setting.
func (c Config) Validate() error {
	var mistakes []error
	for _, f := range []struct {
		name        string
		value, most int64
	}{
		{"sessions.max_connections", int64(c.MaxConnections), 1 << 20},
		{"sessions.max_subscriptions", int64(c.MaxSubscriptions), 1 << 16},
		{"sessions.max_partitions", int64(c.MaxPartitions), 1 << 20},
		{"sessions.max_frame_bytes", int64(c.MaxFrameBytes), 64 << 20},
		{"sessions.max_producing", int64(c.MaxProducing), 1 << 10},
		{"sessions.frame_bytes", int64(c.FrameBytes), 1 << 40},
		{"sessions.max_records", int64(c.MaxRecords), 1 << 20},
		{"sessions.window_records", int64(c.WindowRecords), 1 << 20},
		{"sessions.window_bytes", int64(c.WindowBytes), 64 << 20},
		{"sessions.cache_bytes", int64(c.CacheBytes), 1 << 40},
		{"sessions.ping", int64(c.PingEvery), int64(time.Hour)},
		{"sessions.pong", int64(c.PongWithin), int64(time.Hour)},
		{"sessions.heartbeat", int64(c.Heartbeat), int64(time.Hour)},
		{"sessions.write_timeout", int64(c.WriteTimeout), int64(time.Hour)},
		{"sessions.produce_timeout", int64(c.ProduceWait), int64(time.Hour)},
		{"sessions.goodbye", int64(c.Goodbye), int64(time.Hour)},
		{"sessions.reconnect", int64(c.Reconnect), int64(time.Hour)},
	} {
		if f.value < 1 || f.value > f.most {
			mistakes = append(mistakes, fmt.Errorf("%s: %d is not between 1 and %d", f.name, f.value, f.most))
		}
	}
	return errors.Join(mistakes...)
}
