package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// Sources of settings, the weakest first. The zero value is a node with its defaults.
type Sources struct {
	File    string            // name of a YAML file; "" for none
	Environ []string          // as os.Environ returns it; names that begin with WEIR_ are settings
	Flags   map[string]string // by name of the setting, as flags and --set gave them
}

// Origin says where a value comes from.
type Origin string

// The origins of which the text is fixed. Those of the environment and of a file name the variable or the file.
const (
	FromDefault Origin = "default"
	FromFlags   Origin = "flag"
)

// Loaded is a valid configuration and where each of its values comes from.
type Loaded struct {
	Config  Config
	origins map[string]Origin
}

// Load reads the sources and checks the result. The error joins one error per mistake.
func Load(src Sources) (*Loaded, error) {
	layers, err := read(src)
	if err != nil {
		return nil, err
	}
	cfg := Default()
	origins := make(map[string]Origin, len(table))
	var mistakes []error
	for _, row := range table {
		origins[row.name] = FromDefault
		for _, layer := range layers {
			if !layer.k.Exists(row.name) {
				continue
			}
			origins[row.name] = layer.origin(row.name)
			value, err := text(layer.k.Get(row.name))
			if err == nil {
				err = row.set(&cfg, value)
			}
			if err != nil {
				mistakes = append(mistakes, fmt.Errorf("%s (%s): %w", row.name, origins[row.name], err))
			}
		}
	}
	for _, layer := range layers {
		mistakes = append(mistakes, unknown(layer)...)
	}
	if len(mistakes) == 0 {
		if err := cfg.Validate(); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return &Loaded{Config: cfg, origins: origins}, nil
}

// layer is one source.
type layer struct {
	k      *koanf.Koanf
	origin func(name string) Origin
}

func read(src Sources) ([]layer, error) {
	var layers []layer
	if src.File != "" {
		k := koanf.New(".")
		if err := k.Load(file.Provider(src.File), yaml.Parser()); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("the config file %s does not exist", src.File)
			}
			return nil, fmt.Errorf("the config file %s cannot be read: %w", src.File, err)
		}
		layers = append(layers, layer{k, func(string) Origin { return Origin(src.File) }})
	}
	environment := koanf.New(".")
	if err := environment.Load(env.Provider(".", env.Opt{
		Prefix:        EnvPrefix,
		EnvironFunc:   func() []string { return src.Environ },
		TransformFunc: fromEnvironment,
	}), nil); err != nil {
		return nil, fmt.Errorf("the environment cannot be read: %w", err)
	}
	layers = append(layers, layer{environment, func(name string) Origin { return Origin(EnvName(name)) }})

	flags := koanf.New(".")
	given := make(map[string]any, len(src.Flags))
	for name, value := range src.Flags {
		given[name] = value
	}
	if err := flags.Load(confmap.Provider(given, "."), nil); err != nil {
		return nil, fmt.Errorf("the flags cannot be read: %w", err)
	}
	return append(layers, layer{flags, func(string) Origin { return FromFlags }}), nil
}

// EnvPrefix begins the names of all variables that weir reads.
const EnvPrefix = "WEIR_"

// EnvName is the variable of a setting: http.address is WEIR_HTTP_ADDRESS.
func EnvName(setting string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(setting, ".", "_"))
}

// notSettings are variables that clients and tests of weir read.
var notSettings = []string{"WEIR_SERVER", "WEIR_CONFIG", "WEIR_SOAK"}

// orchestrated matches what Kubernetes and Docker's links set for a service that is called weir, or
// weir-something; a node must start there all the same.
var orchestrated = regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?|NAME)$`)

// fromEnvironment finds the setting of a variable. A variable without a value counts as not set, as
// compose files write it. One that is not known keeps its name, so that it is reported.
func fromEnvironment(variable, value string) (string, any) {
	if value == "" || slices.Contains(notSettings, variable) || orchestrated.MatchString(variable) {
		return "", nil
	}
	for _, row := range table {
		if EnvName(row.name) == variable {
			return row.name, value
		}
	}
	return variable, value
}

// unknown reports the names of a layer that are no settings.
func unknown(l layer) []error {
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(l.k.All())) {
		if lookup(name) != nil {
			continue
		}
		if sections := below(name); len(sections) > 0 {
			if l.k.Get(name) == nil {
				continue // a section without content, "http:" alone
			}
			mistakes = append(mistakes, fmt.Errorf("%s (%s): is a section, it holds %s", name, l.origin(name), strings.Join(sections, ", ")))
			continue
		}
		origin := l.origin(name)
		if strings.HasPrefix(name, EnvPrefix) {
			origin = "environment"
		}
		mistakes = append(mistakes, fmt.Errorf("%s (%s): no such setting%s", name, origin, nearest(name)))
	}
	return mistakes
}

// below lists the settings of a section.
func below(section string) []string {
	var names []string
	for _, row := range table {
		if strings.HasPrefix(row.name, section+".") {
			names = append(names, row.name)
		}
	}
	return names
}

// nearest suggests a setting for a misspelt name.
func nearest(name string) string {
	spelt := func(setting string) string { return setting }
	if strings.HasPrefix(name, EnvPrefix) {
		spelt = EnvName
	}
	best, least := "", 4 // more changes than 3 are another word
	for _, row := range table {
		if d := distance(name, spelt(row.name)); d < least {
			best, least = spelt(row.name), d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance counts the insertions, deletions and replacements of bytes between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// text is a value of YAML as a flag would give it; a list is joined with commas.
func text(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case nil:
		return "", errors.New("has no value")
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case int, int64, uint64:
		return fmt.Sprint(v), nil
	case []any:
		words := make([]string, len(v))
		for i, item := range v {
			word, err := text(item)
			if err != nil {
				return "", err
			}
			words[i] = word
		}
		return strings.Join(words, ","), nil
	default:
		return "", fmt.Errorf("must be a plain value or a list, not %T", value)
	}
}
