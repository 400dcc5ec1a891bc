package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// setting is one row of the table: a name, and how it is read into a Config and printed from one.
type setting struct {
	name    string
	meaning string
	kind    string // what a value looks like, for the reference
	set     func(*Config, string) error
	get     func(*Config) string
}

func word(name, meaning string, field func(*Config) *string) setting {
	return setting{
		name, meaning, "text",
		func(c *Config, s string) error { *field(c) = s; return nil },
		func(c *Config) string { return *field(c) },
	}
}

// choice is a word of a fixed set.
func choice[S ~string](name, meaning string, field func(*Config) *S, words ...string) setting {
	return setting{
		name, meaning, strings.Join(words, ", "),
		func(c *Config, s string) error {
			for _, w := range words {
				if strings.EqualFold(s, w) {
					*field(c) = S(w)
					return nil
				}
			}
			return fmt.Errorf("%q: must be one of %s", s, strings.Join(words, ", "))
		},
		func(c *Config) string { return string(*field(c)) },
	}
}

func boolean(name, meaning string, field func(*Config) *bool) setting {
	return setting{
		name, meaning, "true, false",
		func(c *Config, s string) error {
			switch strings.ToLower(s) {
			case "true", "yes", "on", "1":
				*field(c) = true
			case "false", "no", "off", "0":
				*field(c) = false
			default:
				return fmt.Errorf("%q: must be true or false", s)
			}
			return nil
		},
		func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

// whole is a count of things.
func whole[N ~int | ~int32 | ~int64](name, meaning string, field func(*Config) *N) setting {
	return setting{
		name, meaning, "number",
		func(c *Config, s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || int64(N(n)) != n {
				return fmt.Errorf("%q: must be a whole number", s)
			}
			*field(c) = N(n)
			return nil
		},
		func(c *Config) string { return strconv.FormatInt(int64(*field(c)), 10) },
	}
}

// size is a number of bytes.
func size[N ~int | ~int64](name, meaning string, field func(*Config) *N) setting {
	return setting{
		name, meaning, "bytes",
		func(c *Config, s string) error {
			n, err := parseBytes(s)
			if err != nil || int64(N(n)) != n {
				return fmt.Errorf("%q: must be a number of bytes, such as 1048576, 1MiB or 1MB", s)
			}
			*field(c) = N(n)
			return nil
		},
		func(c *Config) string { return printBytes(int64(*field(c))) },
	}
}

func duration(name, meaning string, field func(*Config) *time.Duration) setting {
	return setting{
		name, meaning, "time",
		func(c *Config, s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return fmt.Errorf("%q: must be a time with its unit, such as 500ms, 10s or 5m", s)
			}
			*field(c) = d
			return nil
		},
		func(c *Config) string { return printDuration(*field(c)) },
	}
}

// list is words, in YAML as a list or with commas between them.
func list(name, meaning string, field func(*Config) *[]string) setting {
	return setting{
		name, meaning, "list",
		func(c *Config, s string) error {
			var words []string
			for word := range strings.SplitSeq(s, ",") {
				if word = strings.TrimSpace(word); word != "" {
					words = append(words, word)
				}
			}
			*field(c) = words
			return nil
		},
		func(c *Config) string { return strings.Join(*field(c), ",") },
	}
}

// units of bytes, the largest first, the binary ones before the decimal ones of about their size.
var units = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"KB", 1e3},
	{"B", 1},
}

func parseBytes(s string) (int64, error) {
	number, factor := s, int64(1)
	for _, u := range units {
		if len(s) > len(u.name) && strings.EqualFold(s[len(s)-len(u.name):], u.name) {
			number, factor = strings.TrimSpace(s[:len(s)-len(u.name)]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, errors.New("is too large")
	}
	return n * factor, nil
}

// printBytes takes the largest binary unit that loses nothing.
func printBytes(n int64) string {
	for _, u := range units[:3] {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// printDuration is d without the zero parts that time.Duration prints: 10m, not 10m0s.
func printDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
