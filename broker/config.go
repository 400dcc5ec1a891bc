package broker

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/topic"
)

// Config of a node. Start from [DefaultConfig]; the zero value is not valid.
type Config struct {
	NodeID    topic.NodeID // from 1 on
	ClusterID string       // of the data directory
	Dir       string       // the data directory; partitions live in its "topics"

	DefaultPartitions  int  // topics.partitions: of a topic made without a number
	DefaultReplication int  // topics.replication: 0 takes min(3, nodes at that time)
	AutoCreate         bool // topics.auto_create: produce to an unknown topic makes it

	MaxTopicPartitions int // topics.max_partitions: the most partitions of one topic
	MaxPartitions      int // node.max_partitions: the most partitions of this node
	MaxTopics          int // topics.max_per_principal: the most topics that one principal may have

	Groups                topic.GroupSettings // groups.session_timeout, groups.max_poll_interval, groups.rejoin_grace, groups.assignor: of groups that set nothing else
	GroupOffsetsRetention time.Duration       // groups.offsets_retention: how long the offsets of a group without members are kept
	MaxGroups             int                 // groups.max: the most consumer groups that this node coordinates
	MaxGroupMembers       int                 // groups.max_members: the most members of one group

	IdempotencyWindow time.Duration // idempotency.window: how long a retry is recognised
	IdempotencyKeys   int           // idempotency.max_keys: the most keys that the node keeps, oldest leave first

	TailBytes     int64 // cache.tail_bytes: of recent batches that readers at the tail share, in the whole node
	InFlightBytes int64 // produce.in_flight_bytes: of appends that wait for the log or the disk, in the whole node
	QueuedAppends int   // produce.queue: appends that may wait in front of one partition

	OpenFiles    int   // storage.open_files: of logs, beside those in use
	IndexBytes   int64 // storage.index_bytes: of the indexes of closed segments, in memory
	ReserveBytes int64 // storage.reserve_bytes: room on the disk that appends leave free; those of weir's own topics may use half of it

	CleanInterval time.Duration // clean.interval: between two rounds of retention and compaction
	OpenAtOnce    int           // start.parallel: partitions that are opened at the same time
	DiskLimit     time.Duration // storage.stall: an operation of the disk that takes longer ends the node
	StopLimit     time.Duration // stop.timeout: the longest wait for appends in flight while stopping
}

// DefaultConfig is what `weir serve` runs with when nothing is configured.
func DefaultConfig() Config {
	return Config{
		NodeID:             1,
		Dir:                "weir-data",
		DefaultPartitions:  1,
		AutoCreate:         true,
		MaxTopicPartitions: cluster.MaxPartitionsPerTopic,
		MaxPartitions:      cluster.MaxPartitionsPerNode,
		MaxTopics:          cluster.MaxTopicsPerPrincipal,

		Groups:                topic.DefaultGroupSettings(),
		GroupOffsetsRetention: 7 * 24 * time.Hour,
		MaxGroups:             10_000,
		MaxGroupMembers:       1000,

		IdempotencyWindow: 10 * time.Minute,
		IdempotencyKeys:   1_000_000,
		TailBytes:         64 << 20,
		InFlightBytes:     256 << 20,
		QueuedAppends:     1024,
		OpenFiles:         storage.DefaultOpenFiles,
		IndexBytes:        storage.DefaultIndexBytes,
		ReserveBytes:      64 << 20,
		CleanInterval:     30 * time.Second,
		OpenAtOnce:        8,
		DiskLimit:         5 * time.Second,
		StopLimit:         10 * time.Second,
	}
}

// Validate reports every mistake at once, each with the name of its setting.
func (c Config) Validate() error {
	var mistakes []error
	check := func(ok bool, setting, format string, args ...any) {
		if !ok {
			mistakes = append(mistakes, fmt.Errorf("%s: %s", setting, fmt.Sprintf(format, args...)))
		}
	}
	check(c.NodeID >= 1, "node.id", "%d: must be at least 1", c.NodeID)
	check(c.ClusterID != "", "cluster.id", "must not be empty")
	check(c.Dir != "" && filepath.Clean(c.Dir) != "/", "data", "%q: must name a directory of weir's own", c.Dir)
	check(c.MaxTopicPartitions >= 1 && c.MaxTopicPartitions <= cluster.MaxPartitionsPerTopic, "topics.max_partitions",
		"%d: must be from 1 to %d", c.MaxTopicPartitions, cluster.MaxPartitionsPerTopic)
	check(c.DefaultPartitions >= 1 && c.DefaultPartitions <= max(c.MaxTopicPartitions, 1), "topics.partitions",
		"%d: must be from 1 to topics.max_partitions (%d)", c.DefaultPartitions, c.MaxTopicPartitions)
	check(c.DefaultReplication >= 0, "topics.replication", "%d: must be at least 1, or 0 for as many as there are nodes, up to 3", c.DefaultReplication)
	check(c.MaxPartitions >= 1 && c.MaxPartitions <= cluster.MaxPartitionsPerNode, "node.max_partitions",
		"%d: must be from 1 to %d", c.MaxPartitions, cluster.MaxPartitionsPerNode)
	check(c.MaxTopics >= 1 && c.MaxTopics <= cluster.MaxTopicsPerPrincipal, "topics.max_per_principal",
		"%d: must be from 1 to %d", c.MaxTopics, cluster.MaxTopicsPerPrincipal)
	c.checkGroups(check)
	check(c.IdempotencyWindow >= time.Second && c.IdempotencyWindow <= 7*24*time.Hour, "idempotency.window",
		"%v: must be from 1s to 168h", c.IdempotencyWindow)
	check(c.IdempotencyKeys >= 1000, "idempotency.max_keys", "%d: must be at least 1000", c.IdempotencyKeys)
	check(c.TailBytes >= 0, "cache.tail_bytes", "%d: must not be negative", c.TailBytes)
	check(c.InFlightBytes >= 2*topic.MostMaxMessageBytes, "produce.in_flight_bytes", "%d: must be at least %d, two of the largest batches",
		c.InFlightBytes, 2*topic.MostMaxMessageBytes)
	check(c.QueuedAppends >= 1, "produce.queue", "%d: must be at least 1", c.QueuedAppends)
	check(c.OpenFiles >= 16, "storage.open_files", "%d: must be at least 16", c.OpenFiles)
	check(c.IndexBytes >= 0, "storage.index_bytes", "%d: must not be negative", c.IndexBytes)
	check(c.ReserveBytes >= 0, "storage.reserve_bytes", "%d: must not be negative", c.ReserveBytes)
	check(c.CleanInterval >= 10*time.Millisecond, "clean.interval", "%v: must be at least 10ms", c.CleanInterval)
	check(c.OpenAtOnce >= 1, "start.parallel", "%d: must be at least 1", c.OpenAtOnce)
	check(c.DiskLimit >= 100*time.Millisecond, "storage.stall", "%v: must be at least 100ms", c.DiskLimit)
	check(c.StopLimit > 0, "stop.timeout", "%v: must be more than 0", c.StopLimit)
	if len(mistakes) > 0 {
		return fault.New("broker.Config", fault.Validation, nil, errors.Join(mistakes...))
	}
	return nil
}

// checkGroups has the limits of topic.GroupSettings, to the nanosecond, under the names of the node's settings.
func (c Config) checkGroups(check func(ok bool, setting, format string, args ...any)) {
	g := c.Groups
	const longestPoll = math.MaxInt32 * time.Millisecond
	check(g.Session >= time.Second && g.Session <= 30*time.Minute, "groups.session_timeout", "%v: must be from 1s to 30m", g.Session)
	check(g.MaxPollInterval >= time.Second && g.MaxPollInterval <= longestPoll, "groups.max_poll_interval", "%v: must be from 1s to %v", g.MaxPollInterval, longestPoll)
	check(g.RejoinGrace >= 0 && g.RejoinGrace <= 30*time.Minute, "groups.rejoin_grace", "%v: must be from 0s to 30m", g.RejoinGrace)
	one := topic.DefaultGroupSettings()
	one.Assignor = g.Assignor
	check(one.Validate() == nil, "groups.assignor", "%q: must be sticky, uniform or range", g.Assignor)
	check(c.GroupOffsetsRetention >= time.Minute, "groups.offsets_retention", "%v: must be at least 1m", c.GroupOffsetsRetention)
	check(c.MaxGroups >= 1 && c.MaxGroups <= 1_000_000, "groups.max", "%d: must be from 1 to 1000000", c.MaxGroups)
	check(c.MaxGroupMembers >= 1 && c.MaxGroupMembers <= 100_000, "groups.max_members", "%d: must be from 1 to 100000", c.MaxGroupMembers)
}
