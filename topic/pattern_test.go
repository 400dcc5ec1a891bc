package topic

import (
	"strings"
	"testing"

	"github.com/weirlog/weir/internal/fault"
)

func TestParsePattern(t *testing.T) {
	for _, one := range []struct{ pattern, yes, no string }{
		{"orders", "orders", "orders2"},
		{"a|b", "b", "ab"},
		{"(orders|returns)-[a-z0-9._-]{1,64}", "returns-eu.1", "orders-"},
		{"(?i)ORDERS-.*", "orders-eu", "order"},
		{strings.Repeat("a|", 400) + "b", "b", "c"},
		{"[a-z]{1,249}", strings.Repeat("z", 249), strings.Repeat("z", 250)},
		{strings.Repeat("a", MaxPatternBytes), strings.Repeat("a", MaxPatternBytes), "a"},
	} {
		re, err := ParsePattern(one.pattern)
		if err != nil {
			t.Errorf("%.20s: %v", one.pattern, err)
			continue
		}
		if !re.MatchString(one.yes) || re.MatchString(one.no) {
			t.Errorf("%.20s matches %q: %v, %q: %v", one.pattern, one.yes, re.MatchString(one.yes), one.no, re.MatchString(one.no))
		}
	}
}

// What would keep a group busy for long with a few topics is no pattern.
func TestParsePatternRefuses(t *testing.T) {
	for pattern, why := range map[string]string{
		"":                                      "must have 1 to 1000 bytes",
		strings.Repeat("a", MaxPatternBytes+1):  "must have 1 to 1000 bytes",
		"(":                                     "missing closing )",
		"a)(b":                                  "unexpected )",
		`\Qa`:                                   "missing closing )",
		"a{1001}":                               "invalid repeat count",
		".{0,1000}":                             "is too large",
		"((a{10}){10}){10}b":                    "is too large",
		strings.Repeat(".{0,1000}", 110):        "is too large",
		strings.Repeat(`\pL{1000}`, 110):        "is too large",
		strings.Repeat("((a{0,9}){0,9}){9}", 9): "is too large",
		"([ab]{500}|[cd]{500})":                 "is too large",
	} {
		if _, err := ParsePattern(pattern); !fault.Is(err, fault.Validation) || !strings.Contains(fault.Sentence(err), why) {
			t.Errorf("%.20s: %v, want %s", pattern, err, why)
		}
	}
}
