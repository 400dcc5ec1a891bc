package topic

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlog/weir/internal/fault"
)

// Settings of one topic, all of them, with Kafka's names and meanings. Start from [DefaultSettings]
// or [ParseSettings]; the zero value is not valid.
type Settings struct {
	Delete              bool          // cleanup.policy has "delete": old segments go
	Compact             bool          // cleanup.policy has "compact": of each key the newest value stays
	Compression         Compression   // compression.type, for the batches that weir builds itself
	DeleteRetention     time.Duration // delete.retention.ms: how long a tombstone stays after compaction
	FlushMessages       int64         // flush.messages: 1 syncs before each acknowledgement; 0 leaves it to FlushInterval
	FlushInterval       time.Duration // flush.ms: with FlushMessages 0, the longest time between two syncs
	MaxCompactionLag    time.Duration // max.compaction.lag.ms
	MaxMessageBytes     int           // max.message.bytes: the largest batch
	MinCompactionLag    time.Duration // min.compaction.lag.ms
	MinDirtyRatio       float64       // min.cleanable.dirty.ratio
	MinInSync           int           // min.insync.replicas; 0: 2 from replication 3 on, else 1
	AppendTime          bool          // message.timestamp.type is LogAppendTime
	RetentionBytes      int64         // retention.bytes; -1: no limit
	RetentionAge        time.Duration // retention.ms; -1ms: no limit
	SegmentAge          time.Duration // segment.ms: an older segment is closed
	SegmentBytes        int64         // segment.bytes: a larger segment is closed
	TimestampMaxForward time.Duration // message.timestamp.after.max.ms: a timestamp further ahead is refused
}

// MaxRecordBytes is the largest record, its key, value and headers unpacked together.
func (s Settings) MaxRecordBytes() int { return s.MaxMessageBytes / 2 }

// MinISR is min.insync.replicas for a topic of this replication, never above it.
func (s Settings) MinISR(replication int) int {
	n := s.MinInSync
	if n == 0 {
		n = 1
		if replication >= 3 {
			n = 2
		}
	}
	return min(n, replication)
}

// Compression of the batches that weir builds. A producer's own compression is always kept.
type Compression string

// The codecs. "producer" and "none" build plain batches.
const (
	CompressionProducer Compression = "producer"
	CompressionNone     Compression = "none"
	CompressionGzip     Compression = "gzip"
	CompressionSnappy   Compression = "snappy"
	CompressionLZ4      Compression = "lz4"
	CompressionZstd     Compression = "zstd"
)

// Limits of max.message.bytes.
const (
	DefaultMaxMessageBytes = 2 << 20
	MostMaxMessageBytes    = 16 << 20
)

// setting is one row of the table of settings.
type setting struct {
	name    string
	initial string
	meaning string
	takes
}

// takes is the values that a setting may have, in words and in code.
type takes struct {
	values string
	set    func(*Settings, string) error
}

// table is every setting, by name. It is never written to.
var table = []setting{
	{"cleanup.policy", "delete", "what happens to old records: delete, compact, or both with a comma", takes{"delete, compact", setPolicy}},
	{"compression.type", "producer", "codec of the batches that weir builds: producer, none, gzip, snappy, lz4 or zstd", takes{"producer, none, gzip, snappy, lz4, zstd", setCompression}},
	{"delete.retention.ms", "86400000", "how long a tombstone is kept after compaction", millis(0, func(s *Settings) *time.Duration { return &s.DeleteRetention })},
	{"flush.messages", "1", "1: every acknowledgement waits for the disk; 0: syncs happen each flush.ms, and replication is the safety", takes{"0, 1", setFlushMessages}},
	{"flush.ms", "1000", "longest time between two syncs when flush.messages is 0", millis(1, func(s *Settings) *time.Duration { return &s.FlushInterval })},
	{"max.compaction.lag.ms", "9223372036854775807", "a record is compacted at the latest after this time", millis(1, func(s *Settings) *time.Duration { return &s.MaxCompactionLag })},
	{"max.message.bytes", "2097152", "largest batch; one record may have half of it", whole(1024, MostMaxMessageBytes, func(s *Settings, n int64) { s.MaxMessageBytes = int(n) })},
	{"message.timestamp.after.max.ms", "3600000", "a record's timestamp may be ahead of the node's clock by this much", millis(0, func(s *Settings) *time.Duration { return &s.TimestampMaxForward })},
	{"message.timestamp.type", "CreateTime", "CreateTime keeps the producer's timestamps, LogAppendTime sets the node's", takes{"CreateTime, LogAppendTime", setTimestampType}},
	{"min.cleanable.dirty.ratio", "0.5", "a log is compacted when this share of it is new since the last time", takes{"0 to 1", setDirtyRatio}},
	{"min.compaction.lag.ms", "0", "a record is not compacted before this time", millis(0, func(s *Settings) *time.Duration { return &s.MinCompactionLag })},
	{"min.insync.replicas", "0", "replicas that must have a record before acks=all succeeds; 0: 2 from replication 3 on, else 1; never more than the topic's replication", whole(0, 1000, func(s *Settings, n int64) { s.MinInSync = int(n) })},
	{"retention.bytes", "-1", "a partition larger than this loses its oldest segments; -1: no limit", whole(-1, math.MaxInt64, func(s *Settings, n int64) { s.RetentionBytes = n })},
	{"retention.ms", "604800000", "segments with only older records are deleted; -1: no limit", millis(-1, func(s *Settings) *time.Duration { return &s.RetentionAge })},
	{"segment.bytes", "268435456", "a segment past this size is closed and a new one begun", whole(4096, 2<<30-1, func(s *Settings, n int64) { s.SegmentBytes = n })},
	{"segment.ms", "604800000", "a segment older than this is closed and a new one begun", millis(1, func(s *Settings) *time.Duration { return &s.SegmentAge })},
}

// SettingDoc is a row of the reference of settings.
type SettingDoc struct{ Name, Default, Takes, Meaning string }

// SettingDocs returns every setting with its default, what it takes and its meaning, by name.
func SettingDocs() []SettingDoc {
	docs := make([]SettingDoc, len(table))
	for i, row := range table {
		docs[i] = SettingDoc{row.name, row.initial, row.values, row.meaning}
	}
	return docs
}

// DefaultSettings are those of a topic without overrides.
func DefaultSettings() Settings {
	s, err := ParseSettings(nil)
	if err != nil {
		panic(err) // the table's own defaults do not parse: a defect, and a test finds it
	}
	return s
}

// SettingError says what is wrong with one setting.
type SettingError struct {
	Name  string // of the setting
	Value string // that was given
	Why   string // a sentence that goes on after the value
}

// Error names the setting and its value, shortened; of one that is not known, its name alone.
func (e *SettingError) Error() string {
	if more, is := strings.CutPrefix(e.Why, noSetting); is {
		return quote(e.Name) + ": no such setting" + more
	}
	return e.Name + " " + quote(e.Value) + ": " + e.Why
}

const noSetting = "is not the name of a setting"

// ParseSettings applies overrides to the defaults. It reports every mistake at once, as a fault of kind
// Validation whose cause joins a [SettingError] for each.
func ParseSettings(overrides map[string]string) (Settings, error) {
	var s Settings
	var mistakes []error
	for _, row := range table {
		value, given := overrides[row.name]
		if !given {
			value = row.initial
		}
		if err := row.set(&s, value); err != nil {
			mistakes = append(mistakes, &SettingError{Name: row.name, Value: value, Why: err.Error()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if !slices.ContainsFunc(table, func(row setting) bool { return row.name == name }) {
			mistakes = append(mistakes, &SettingError{Name: name, Value: overrides[name], Why: noSetting})
		}
	}
	if len(mistakes) > 0 {
		return Settings{}, fault.New("topic.ParseSettings", fault.Validation, nil, errors.Join(mistakes...))
	}
	return s, nil
}

func setPolicy(s *Settings, value string) error {
	s.Delete, s.Compact = false, false
	for _, word := range strings.Split(value, ",") {
		switch strings.TrimSpace(word) {
		case "delete":
			s.Delete = true
		case "compact":
			s.Compact = true
		default:
			return errors.New("must be delete, compact or delete,compact")
		}
	}
	return nil
}

func setCompression(s *Settings, value string) error {
	switch c := Compression(value); c {
	case CompressionProducer, CompressionNone, CompressionGzip, CompressionSnappy, CompressionLZ4, CompressionZstd:
		s.Compression = c
		return nil
	default:
		return errors.New("must be producer, none, gzip, snappy, lz4 or zstd")
	}
}

// setFlushMessages takes 0 and 1, and, as Kafka's clients send it for "never", the largest int64.
func setFlushMessages(s *Settings, value string) error {
	switch value {
	case "1":
		s.FlushMessages = 1
	case "0", "9223372036854775807":
		s.FlushMessages = 0
	default:
		return errors.New("must be 1 (sync before each acknowledgement) or 0 (sync each flush.ms)")
	}
	return nil
}

func setTimestampType(s *Settings, value string) error {
	switch value {
	case "CreateTime", "LogAppendTime":
		s.AppendTime = value == "LogAppendTime"
		return nil
	default:
		return errors.New("must be CreateTime or LogAppendTime")
	}
}

func setDirtyRatio(s *Settings, value string) error {
	ratio, err := strconv.ParseFloat(value, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return errors.New("must be a number from 0 to 1")
	}
	s.MinDirtyRatio = ratio
	return nil
}

func whole(least, most int64, set func(*Settings, int64)) takes {
	values := fmt.Sprintf("%d to %d", least, most)
	if most == math.MaxInt64 {
		values = fmt.Sprintf("at least %d", least)
	}
	return takes{values, func(s *Settings, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		set(s, n)
		return nil
	}}
}

// millis reads a duration in milliseconds. What is longer than a time.Duration can be, some 292
// years, becomes the longest one.
func millis(least int64, field func(*Settings) *time.Duration) takes {
	return takes{fmt.Sprintf("at least %d", least), func(s *Settings, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least {
			return fmt.Errorf("must be a whole number of milliseconds, at least %d", least)
		}
		*field(s) = time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		return nil
	}}
}
