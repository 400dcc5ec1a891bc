package storage

import (
	"errors"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Config of one partition's log. Start from [Default]; the zero value is not valid.
type Config struct {
	Path        topic.Path        // for errors and for partition.json
	ID          topic.ID          // of the topic, for partition.json
	Incarnation topic.Incarnation // of this process start; the clean mark names it
	Settings    topic.Settings
	Producers   ProducerConfig

	// LatestEpoch is the newest epoch that the partition had a leader in, as far as the cluster's
	// metadata tells; 0 when that is not known. A recovery takes a batch of a later one, that the log's own
	// table does not know either, for damage: the epoch is outside of a batch's checksum, and one that is
	// too high would keep every leader out.
	LatestEpoch topic.Epoch

	// SameBoot says that the machine has not been started anew since the data directory was last
	// used, so that the page cache kept what a killed process had written.
	SameBoot bool

	CompactKeys int // keys that a pass of compaction holds in memory; 0: DefaultCompactKeys

	Files *Files // shared by the logs of a node; nil takes a small cache of the log's own
	Room  *Room  // shared by the logs of a node; nil never refuses for want of room
}

// Default is a Config with the default settings of a topic.
func Default(path topic.Path, id topic.ID) Config {
	return Config{Path: path, ID: id, Incarnation: 1, Settings: topic.DefaultSettings(), Producers: DefaultProducers()}
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var mistakes []error
	if c.Incarnation < 1 {
		mistakes = append(mistakes, errors.New("incarnation: must be at least 1"))
	}
	if c.Settings.SegmentBytes < 1 || c.Settings.SegmentBytes > 2<<30-1 {
		mistakes = append(mistakes, errors.New("segment.bytes: must be from 1 to 2147483647"))
	}
	if c.Settings.SegmentAge <= 0 {
		mistakes = append(mistakes, errors.New("segment.ms: must be positive"))
	}
	if len(mistakes) > 0 {
		return fault.New("storage.Config", fault.Validation, c.Path, errors.Join(mistakes...))
	}
	return nil
}
