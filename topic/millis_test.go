package topic_test

import (
	"testing"

	"github.com/weirlog/weir/topic"
)

func TestTimesAreReadAsMillisecondsAndAsRFC3339(t *testing.T) {
	for text, want := range map[string]topic.Millis{
		"0":                            0,
		"1762077600123":                1762077600123,
		"2025-11-02T10:00:00Z":         1762077600000,
		"2025-11-02T10:00:00.123Z":     1762077600123,
		"2025-11-02T10:00:00.1239999Z": 1762077600123,
		"2025-11-02T11:00:00+01:00":    1762077600000,
		"2025-11-02T11:00:00 01:00":    1762077600000, // a + of a query that was not escaped
		"2025-11-02T05:00:00-05:00":    1762077600000,
		"1970-01-01T00:00:00Z":         0,
		"9999-12-31T23:59:59.999Z":     topic.LatestMillis,
		"253402300799999":              topic.LatestMillis,
	} {
		if got, err := topic.ParseMillis(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-1", "+", "now", "12.5", "1e3", "253402300800000", "99999999999999999999",
		"2025-11-02", "2025-11-02T10:00:00", "2025-11-02 10:00:00Z", "2025-11-02T10:00:00,5Z", "1969-12-31T23:59:59Z", "2025-13-02T10:00:00Z", " 01:00",
	} {
		if got, err := topic.ParseMillis(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
