package topic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestGroupAndMemberNames(t *testing.T) {
	for _, good := range []string{"a", "billing", "worker-1", "-", "...", "Zähler 7", "日本", "a%2Fb", "user@host:9", strings.Repeat("x", topic.MaxNameBytes)} {
		if name, err := topic.ParseGroupName(good); err != nil || string(name) != good {
			t.Errorf("group %q: %q %v", good, name, err)
		}
		if name, err := topic.ParseMemberName(good); err != nil || string(name) != good {
			t.Errorf("member %q: %q %v", good, name, err)
		}
	}
	for bad, why := range map[string]string{
		"":          "must not be empty",
		".":         "is not allowed",
		"..":        "is not allowed",
		"a/b":       `must not contain "/"`,
		`a\b`:       `must not contain "/"`,
		"a\nb":      "control characters",
		"a\x00":     "control characters",
		"a\u0085":   "control characters",
		"a\xff":     "is not UTF-8",
		"\xed\xa0a": "is not UTF-8",
		strings.Repeat("x", topic.MaxNameBytes+1): "is longer than 249 bytes",
		strings.Repeat("é", 125):                  "is longer than 249 bytes",
	} {
		if _, err := topic.ParseGroupName(bad); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "group name") {
			t.Errorf("group %q: %v, want %q", bad, err, why)
		}
		if _, err := topic.ParseMemberName(bad); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "member name") {
			t.Errorf("member %q: %v, want %q", bad, err, why)
		}
	}
}

func TestGroupSettings(t *testing.T) {
	s := topic.DefaultGroupSettings()
	if s.Session != 45*time.Second || s.MaxPollInterval != 5*time.Minute || s.RejoinGrace != 5*time.Second || s.Assignor != topic.StickyAssignor {
		t.Errorf("%+v", s)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	last := ""
	for _, doc := range topic.GroupSettingDocs() {
		if doc.Name <= last || doc.Meaning == "" || doc.Takes == "" {
			t.Errorf("%s: out of order, or without a meaning", doc.Name)
		}
		last = doc.Name
		if got := s.Values()[doc.Name]; got != doc.Default {
			t.Errorf("%s is %q, its default %q", doc.Name, got, doc.Default)
		}
	}

	// Overrides stand over the node's defaults, and what they leave is the node's.
	s.Session = 20 * time.Second
	got, err := topic.ParseGroupSettings(map[string]string{"assignor": "range", "rejoin.grace.ms": "0"}, s)
	if err != nil || got != (topic.GroupSettings{Session: 20 * time.Second, MaxPollInterval: 5 * time.Minute, Assignor: topic.RangeAssignor}) {
		t.Errorf("%+v %v", got, err)
	}
	if back, err := topic.ParseGroupSettings(got.Values(), topic.GroupSettings{}); err != nil || back != got {
		t.Errorf("%+v came back as %+v (%v)", got, back, err)
	}

	wrong := map[string]string{
		"assignor": "roundrobin", "session.timeout.ms": "999", "max.poll.interval.ms": "5m", "rejoin.grace.ms": "-1", "session.timeout": "10000",
	}
	_, err = topic.ParseGroupSettings(wrong, s)
	if !fault.Is(err, fault.Validation) {
		t.Fatal(err)
	}
	for name := range wrong {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	for _, bad := range []topic.GroupSettings{{}, {Session: time.Hour, MaxPollInterval: time.Minute, Assignor: topic.UniformAssignor}} {
		if err := bad.Validate(); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), "session.timeout.ms") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
