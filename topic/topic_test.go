package topic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestParseName(t *testing.T) {
	for _, s := range []string{"a", "orders", "user.42_x-Y", "...", "__groups", strings.Repeat("a", topic.MaxNameBytes)} {
		if name, err := topic.ParseName(s); string(name) != s || err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", "a b", "a/b", "ü", "a\x00", "a\n", strings.Repeat("a", topic.MaxNameBytes+1), strings.Repeat("/", 1<<20)} {
		_, err := topic.ParseName(s)
		if !fault.Is(err, fault.Validation) {
			t.Errorf("%.20q: %v", s, err)
		} else if len(err.Error()) > 400 {
			t.Errorf("%.20q: the error has %d bytes", s, len(err.Error()))
		}
	}
	if topic.Name("a__").Internal() || !topic.Name("__a").Internal() {
		t.Error("internal is who begins with two underscores")
	}
}

func TestParseNameShowsTheCharacter(t *testing.T) {
	for s, want := range map[string]string{
		"ü": `has "ü" at byte 0`, "naïve": `has "ï" at byte 2`, "a b": `has " " at byte 1`, "a\x00": `has "\x00" at byte 1`, "a\xff": `has "\xff" at byte 1`, "🙂": `has "🙂" at byte 0`,
	} {
		if _, err := topic.ParseName(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", s, err, want)
		}
	}
	_, err := topic.ParseName("a" + strings.Repeat("ü", topic.MaxNameBytes))
	if err == nil || strings.Contains(err.Error(), `\x`) {
		t.Errorf("a long name is cut inside of a character: %v", err)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("orders")
	f.Add("..")
	f.Add("ü")
	f.Fuzz(func(t *testing.T, s string) {
		name, err := topic.ParseName(s)
		if err == nil && (string(name) != s || len(s) == 0 || len(s) > topic.MaxNameBytes || s == "." || s == ".." || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "") {
			t.Fatalf("%q passed", s)
		}
		if err != nil && !fault.Is(err, fault.Validation) {
			t.Fatal(err)
		}
	})
}

func TestID(t *testing.T) {
	if (topic.ID{}).String() != "AAAAAAAAAAAAAAAAAAAAAA" || !(topic.ID{}).IsZero() {
		t.Error(topic.ID{})
	}
	seen := map[topic.ID]bool{}
	for range 100 {
		id := topic.NewID()
		if seen[id] || id.IsZero() {
			t.Fatal(id, "is not new")
		}
		seen[id] = true
		if got, err := topic.ParseID(id.String()); got != id || err != nil {
			t.Fatal(id, got, err)
		}
	}
	for _, s := range []string{"", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAA\n\n", "AAAAAAAAAAAAAAAAAAAAA/", "AAAAAAAAAAAAAAAAAAAA=="} {
		if id, err := topic.ParseID(s); !fault.Is(err, fault.Validation) {
			t.Errorf("%q is %v, %v", s, id, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("AAAAAAAAAAAAAAAAAAAA\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := topic.ParseID(s); err == nil && id.String() != s {
			t.Fatalf("%q is also %q", s, id)
		}
	})
}

func TestAcks(t *testing.T) {
	for s, want := range map[string]topic.Acks{"": topic.AcksAll, "all": topic.AcksAll, "-1": topic.AcksAll, "leader": topic.AcksLeader, "1": topic.AcksLeader, "none": topic.AcksNone, "0": topic.AcksNone} {
		if got, err := topic.ParseAcks(s); got != want || err != nil {
			t.Errorf("%q is %v, %v", s, got, err)
		}
		if again, err := topic.ParseAcks(want.String()); again != want || err != nil {
			t.Errorf("%v is not what its text says", want)
		}
	}
	for _, s := range []string{"ALL", "2", "quorum"} {
		if _, err := topic.ParseAcks(s); !fault.Is(err, fault.Validation) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestDefaultSettings(t *testing.T) {
	s := topic.DefaultSettings()
	if !s.Delete || s.Compact || s.FlushMessages != 1 || s.MaxMessageBytes != topic.DefaultMaxMessageBytes || s.MaxRecordBytes() != 1<<20 ||
		s.RetentionAge != 7*24*time.Hour || s.RetentionBytes != -1 || s.SegmentBytes != 256<<20 || s.AppendTime || s.Compression != topic.CompressionProducer ||
		s.TimestampMaxForward != time.Hour || s.MinCompactionLag != 0 || s.MaxCompactionLag < 290*365*24*time.Hour || s.DeleteRetention != 24*time.Hour {
		t.Errorf("%+v", s)
	}
	for replication, want := range map[int]int{1: 1, 2: 1, 3: 2, 5: 2} {
		if got := s.MinISR(replication); got != want {
			t.Errorf("replication %d: min.insync.replicas %d, want %d", replication, got, want)
		}
	}
	s.MinInSync = 4
	if s.MinISR(3) != 3 || s.MinISR(5) != 4 {
		t.Error("min.insync.replicas is never above the replication")
	}
	last := ""
	for _, doc := range topic.SettingDocs() {
		if doc.Name <= last || doc.Meaning == "" || doc.Takes == "" {
			t.Errorf("%s: out of order, or without a meaning", doc.Name)
		}
		last = doc.Name
		if _, err := topic.ParseSettings(map[string]string{doc.Name: doc.Default}); err != nil {
			t.Errorf("the default of %s is refused: %v", doc.Name, err)
		}
	}
}

func TestParseSettings(t *testing.T) {
	s, err := topic.ParseSettings(map[string]string{
		"cleanup.policy": "compact, delete", "retention.ms": "-1", "flush.messages": "9223372036854775807", "flush.ms": "50", "compression.type": "zstd",
		"message.timestamp.type": "LogAppendTime", "min.cleanable.dirty.ratio": "0.1", "max.message.bytes": "16777216", "retention.bytes": "1024",
	})
	if err != nil || !s.Delete || !s.Compact || s.RetentionAge != -time.Millisecond || s.FlushMessages != 0 || s.FlushInterval != 50*time.Millisecond ||
		s.Compression != topic.CompressionZstd || !s.AppendTime || s.MinDirtyRatio != 0.1 || s.MaxMessageBytes != topic.MostMaxMessageBytes || s.RetentionBytes != 1024 {
		t.Fatalf("%+v %v", s, err)
	}
	wrong := map[string]string{
		"cleanup.policy": "keep", "compression.type": "brotli", "flush.messages": "7", "flush.ms": "0", "max.message.bytes": "16777217", "message.timestamp.type": "now",
		"min.cleanable.dirty.ratio": "NaN", "retention.ms": "-2", "segment.bytes": "1.5", "segment.ms": "", "retention.byte": "1", "min.insync.replicas": "-1",
	}
	_, err = topic.ParseSettings(wrong)
	if !fault.Is(err, fault.Validation) {
		t.Fatal(err)
	}
	for name := range wrong {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s", name)
		}
	}
	if strings.Contains(err.Error(), "retention.bytes") {
		t.Error("the error names a setting that is right")
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add("retention.ms", "1000")
	f.Add("cleanup.policy", "compact,delete")
	f.Add("min.cleanable.dirty.ratio", "1e-3")
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := topic.ParseSettings(map[string]string{name: value})
		if err != nil {
			if !fault.Is(err, fault.Validation) {
				t.Fatal(err)
			}
			return
		}
		if s.MaxMessageBytes < 1024 || s.SegmentBytes < 4096 || s.RetentionBytes < -1 || s.SegmentAge <= 0 || s.FlushInterval <= 0 || s.MinDirtyRatio < 0 || s.MinDirtyRatio > 1 || !s.Delete && !s.Compact {
			t.Fatalf("%s=%s gives %+v", name, value, s)
		}
	})
}

func TestRangeError(t *testing.T) {
	e := topic.RangeError{Path: topic.Path{Topic: "orders", Partition: 3}, Offset: 7, Bounds: topic.Bounds{LogStart: 9000, HighWatermark: 10500}, ResumeAt: 9500}
	for reason, want := range map[topic.GapReason]string{
		topic.Retention:     "offset 7 of orders/3 is below the log's start, which is at 9000: retention or a request deleted what was there",
		topic.BeyondEnd:     "offset 7 is beyond the end of orders/3, which is at 10500",
		topic.Truncated:     "orders/3 was cut below offset 7 after you read it, go on at 9500",
		topic.Recreated:     "offset 7 of orders/3 is not there (recreated)",
		topic.GapReason(""): "offset 7 of orders/3 is not there ()",
	} {
		e.Reason = reason
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}
