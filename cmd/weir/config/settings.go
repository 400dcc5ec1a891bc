package config

import (
	"errors"
	"time"

	"github.com/weirlog/weir/broker"
	"github.com/weirlog/weir/gateway"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Config of a node: those of its rooms, and what belongs to the process. Start from [Default].
type Config struct {
	Log      Log
	Broker   broker.Config // ClusterID comes from the data directory
	Gateway  gateway.Config
	Sessions session.Config
}

// Log says how the process logs.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Default is what `weir serve` runs with when nothing is configured.
func Default() Config {
	return Config{
		Log:      Log{Level: "info", Format: "text"},
		Broker:   broker.DefaultConfig(),
		Gateway:  gateway.DefaultConfig(),
		Sessions: session.DefaultConfig(),
	}
}

// table is every setting, in the order of the reference. It is never written to.
var table = []setting{
	word("data", "directory of everything that is kept; one process at a time has it", func(c *Config) *string { return &c.Broker.Dir }),

	choice("log.level", "the least severe lines that are logged", func(c *Config) *string { return &c.Log.Level }, "debug", "info", "warn", "error"),
	choice("log.format", "how log lines look", func(c *Config) *string { return &c.Log.Format }, "text", "json"),

	word("http.address", "host and port to listen on; port 0 takes a free one", func(c *Config) *string { return &c.Gateway.Address }),
	boolean("http.insecure", "listen on an address that others reach, although nobody is asked who they are", func(c *Config) *bool { return &c.Gateway.Insecure }),
	list("http.names", "host names of this node, besides localhost, its own name and all addresses", func(c *Config) *[]string { return &c.Gateway.Names }),
	list("http.origins", "origins of web pages that may use this node, besides loopback's and its own", func(c *Config) *[]string { return &c.Gateway.Origins }),
	list("http.trusted_proxies", "addresses or networks whose X-Forwarded-For is believed", func(c *Config) *[]string { return &c.Gateway.TrustedProxies }),
	size("http.request_bytes", "largest request body, unpacked, that is not a stream", func(c *Config) *int { return &c.Gateway.RequestBytes }),
	whole("http.request_records", "most records in such a body", func(c *Config) *int { return &c.Gateway.RequestRecords }),
	size("http.header_bytes", "longest request line with its headers; every connection keeps a buffer of this size", func(c *Config) *int { return &c.Gateway.HeaderBytes }),
	duration("http.read_timeout", "longest time for a request's head, and for any piece of its body", func(c *Config) *time.Duration { return &c.Gateway.ReadTimeout }),
	duration("http.idle_timeout", "how long a connection is kept open between requests", func(c *Config) *time.Duration { return &c.Gateway.IdleTimeout }),
	duration("http.stream_idle", "longest silence in a streamed request body", func(c *Config) *time.Duration { return &c.Gateway.StreamIdle }),
	duration("http.write_timeout", "longest time that a client may take no byte of an answer", func(c *Config) *time.Duration { return &c.Gateway.WriteTimeout }),
	duration("http.drain_timeout", "longest time to finish requests while stopping", func(c *Config) *time.Duration { return &c.Gateway.DrainTimeout }),
	whole("http.connections", "most open connections", func(c *Config) *int { return &c.Gateway.Connections }),
	whole("http.address_connections", "most open connections from one address that is not loopback", func(c *Config) *int { return &c.Gateway.AddressConnections }),
	size("http.in_flight_bytes", "request bodies held at one time, in the whole node; pages of records on their way to readers may hold as much again", func(c *Config) *int64 { return &c.Gateway.InFlightBytes }),
	whole("http.in_flight_requests", "most requests served at one time", func(c *Config) *int { return &c.Gateway.InFlightRequests }),
	size("http.send_buffer_bytes", "the kernel's buffer for what waits to be sent, of each connection", func(c *Config) *int { return &c.Gateway.SendBufferBytes }),

	whole("sessions.max_connections", "most live subscriptions' connections: WebSocket, SSE and NDJSON together", func(c *Config) *int { return &c.Sessions.MaxConnections }),
	whole("sessions.max_subscriptions", "most subscriptions of one WebSocket", func(c *Config) *int { return &c.Sessions.MaxSubscriptions }),
	whole("sessions.max_partitions", "most partitions that one reader follows", func(c *Config) *int { return &c.Sessions.MaxPartitions }),
	size("sessions.max_frame_bytes", "largest WebSocket frame that a client may send", func(c *Config) *int { return &c.Sessions.MaxFrameBytes }),
	whole("sessions.max_producing", "produce frames of one WebSocket that may wait to be stored", func(c *Config) *int { return &c.Sessions.MaxProducing }),
	size("sessions.frame_bytes", "frames from all clients together that are not done with yet", func(c *Config) *int { return &c.Sessions.FrameBytes }),
	whole("sessions.max_records", "most records in one produce frame", func(c *Config) *int { return &c.Sessions.MaxRecords }),
	whole("sessions.window_records", "most records on their way to a reader that gives no credit", func(c *Config) *int { return &c.Sessions.WindowRecords }),
	size("sessions.window_bytes", "the same in bytes, as encoded", func(c *Config) *int { return &c.Sessions.WindowBytes }),
	size("sessions.cache_bytes", "encoded records that readers at the tail share, in the whole node", func(c *Config) *int { return &c.Sessions.CacheBytes }),
	duration("sessions.ping", "time between two pings of a WebSocket", func(c *Config) *time.Duration { return &c.Sessions.PingEvery }),
	duration("sessions.pong", "how long a client may take to answer one", func(c *Config) *time.Duration { return &c.Sessions.PongWithin }),
	duration("sessions.heartbeat", "time between two signs of life on an SSE or NDJSON stream", func(c *Config) *time.Duration { return &c.Sessions.Heartbeat }),
	duration("sessions.write_timeout", "a socket that takes no byte for this long is closed", func(c *Config) *time.Duration { return &c.Sessions.WriteTimeout }),
	duration("sessions.produce_timeout", "longest wait for a produce frame to be stored", func(c *Config) *time.Duration { return &c.Sessions.ProduceWait }),
	duration("sessions.goodbye", "how long a client may take to close after the goodbye", func(c *Config) *time.Duration { return &c.Sessions.Goodbye }),
	duration("sessions.reconnect", "clients are asked to come back after a random part of this", func(c *Config) *time.Duration { return &c.Sessions.Reconnect }),

	whole("node.id", "number of this node; a data directory keeps the one that it was made with", func(c *Config) *topic.NodeID { return &c.Broker.NodeID }),
	whole("node.max_partitions", "most partitions of this node", func(c *Config) *int { return &c.Broker.MaxPartitions }),

	boolean("topics.auto_create", "produce to an unknown topic makes it, when a record of it can be stored", func(c *Config) *bool { return &c.Broker.AutoCreate }),
	whole("topics.partitions", "partitions of a topic that is made without a number", func(c *Config) *int { return &c.Broker.DefaultPartitions }),
	whole("topics.replication", "replicas of a topic that is made without a number; 0: as many as there are nodes, up to 3", func(c *Config) *int { return &c.Broker.DefaultReplication }),
	whole("topics.max_partitions", "most partitions of one topic", func(c *Config) *int { return &c.Broker.MaxTopicPartitions }),
	whole("topics.max_per_principal", "most topics that one principal may have", func(c *Config) *int { return &c.Broker.MaxTopics }),

	duration("groups.max_poll_interval", "a group's member over REST that makes no call for this long has left; a group may have its own", func(c *Config) *time.Duration { return &c.Broker.Groups.MaxPollInterval }),
	duration("groups.session_timeout", "a member over a connection that gives no sign of life for this long has left; a group may have its own", func(c *Config) *time.Duration { return &c.Broker.Groups.Session }),
	duration("groups.rejoin_grace", "a member whose connection is closed keeps its partitions for this long; a group may have its own", func(c *Config) *time.Duration { return &c.Broker.Groups.RejoinGrace }),
	choice("groups.assignor", "who reads what in a group that says nothing else", func(c *Config) *topic.Assignor { return &c.Broker.Groups.Assignor }, "sticky", "uniform", "range"),
	duration("groups.offsets_retention", "how long the position of a group without members is kept", func(c *Config) *time.Duration { return &c.Broker.GroupOffsetsRetention }),
	whole("groups.max", "most consumer groups that this node coordinates", func(c *Config) *int { return &c.Broker.MaxGroups }),
	whole("groups.max_members", "most members of one group", func(c *Config) *int { return &c.Broker.MaxGroupMembers }),

	duration("idempotency.window", "how long the retry of a request with an Idempotency-Key is recognised", func(c *Config) *time.Duration { return &c.Broker.IdempotencyWindow }),
	whole("idempotency.max_keys", "most keys that this node keeps, the oldest leave first", func(c *Config) *int { return &c.Broker.IdempotencyKeys }),

	duration("produce.timeout", "wait for an acknowledgement when a request names none", func(c *Config) *time.Duration { return &c.Gateway.ProduceTimeout }),
	size("produce.in_flight_bytes", "appends of this node that may wait for the log or the disk", func(c *Config) *int64 { return &c.Broker.InFlightBytes }),
	whole("produce.queue", "appends that may wait in front of one partition", func(c *Config) *int { return &c.Broker.QueuedAppends }),

	size("cache.tail_bytes", "recent batches that readers at the tail share, in the whole node", func(c *Config) *int64 { return &c.Broker.TailBytes }),

	whole("storage.open_files", "open files of logs that are kept beside those in use", func(c *Config) *int { return &c.Broker.OpenFiles }),
	size("storage.index_bytes", "indexes of closed segments that are kept in memory", func(c *Config) *int64 { return &c.Broker.IndexBytes }),
	size("storage.reserve_bytes", "room on the disk that appends leave free", func(c *Config) *int64 { return &c.Broker.ReserveBytes }),
	duration("storage.stall", "an operation of the disk that takes longer ends the node", func(c *Config) *time.Duration { return &c.Broker.DiskLimit }),
	duration("clean.interval", "time between two rounds of retention and compaction", func(c *Config) *time.Duration { return &c.Broker.CleanInterval }),
	whole("start.parallel", "partitions that are opened at the same time", func(c *Config) *int { return &c.Broker.OpenAtOnce }),
	duration("stop.timeout", "longest wait for appends in flight while stopping", func(c *Config) *time.Duration { return &c.Broker.StopLimit }),
}

// Validate reports every mistake at once, each with the name of its setting.
func (c Config) Validate() error {
	// A node learns its cluster from its data directory, which is not open yet.
	c.Broker.ClusterID = "of-the-data-directory"
	var mistakes []error
	for _, err := range []error{c.Broker.Validate(), c.Gateway.Validate(), c.Sessions.Validate()} {
		mistakes = append(mistakes, sentences(err)...)
	}
	return errors.Join(mistakes...)
}

// sentences takes apart what a package's Validate joined, so that each mistake is a line of its own.
func sentences(err error) []error {
	var inner *fault.Error
	if errors.As(err, &inner) {
		return sentences(inner.Err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, sentences(part)...)
	}
	return all
}
