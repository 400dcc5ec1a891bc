package topic

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/weirlog/weir/internal/fault"
)

// Bounds of a pattern. It is held against the name of every topic while its group decides nothing else,
// and each step of it may have to be tried at each byte of a name. A few bytes of pattern can have
// hundreds of thousands of steps: ".{0,1000}" alone has two thousand.
const (
	MaxPatternBytes = 1_000
	MaxPatternSteps = 1_000
)

// ParsePattern reads a pattern of topics' names, in RE2 syntax. What it returns matches a name as a whole.
func ParsePattern(text string) (*regexp.Regexp, error) {
	bad := func(why string) (*regexp.Regexp, error) {
		return nil, fault.New("topic.ParsePattern", fault.Validation, nil, errors.New(why))
	}
	if text == "" || len(text) > MaxPatternBytes {
		return bad(fmt.Sprintf("must have 1 to %d bytes", MaxPatternBytes))
	}
	// It is read alone first: "a)(b" is no pattern, but would be one within a group.
	read, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		if steps := patternSteps(read); steps > MaxPatternSteps {
			return bad(fmt.Sprintf("is too large: without its {counts} it has %d steps, at most %d are allowed; .* stands for any text", steps, MaxPatternSteps))
		}
		var whole *regexp.Regexp
		if whole, err = regexp.Compile(`\A(?:` + text + `)\z`); err == nil {
			return whole, nil
		}
	}
	return bad("is not a regular expression in RE2 syntax: " + strings.TrimPrefix(err.Error(), "error parsing regexp: "))
}

// patternSteps is about how many instructions an expression is compiled to, found before they are made.
func patternSteps(re *syntax.Regexp) int {
	steps := 1
	if re.Op == syntax.OpLiteral {
		steps = max(1, len(re.Rune))
	}
	for _, sub := range re.Sub {
		steps += patternSteps(sub)
	}
	if re.Op == syntax.OpRepeat {
		// x{2,5} is xx(x(x(x)?)?)?, x{2,} is xx+.
		each := steps - 1
		steps = max(1, re.Min)*each + 1
		if more := re.Max - re.Min; re.Max >= 0 {
			steps = re.Min*each + more*(each+1)
		}
	}
	return max(1, steps)
}
