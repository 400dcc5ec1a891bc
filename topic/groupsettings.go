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

// groupSetting is one row of the table of a group's settings.
type groupSetting struct {
	name    string
	initial string
	meaning string
	takesOfGroup
}

// takesOfGroup is the values that a setting may have, in words and in code.
type takesOfGroup struct {
	values string
	set    func(*GroupSettings, string) error
	get    func(*GroupSettings) string // as set reads it
}

// Limits of a group's times. A session below a second would end between two heartbeats; the longest
// poll interval is Kafka's.
const (
	leastSessionMillis = 1_000
	mostSessionMillis  = 30 * 60 * 1_000
	mostPollMillis     = math.MaxInt32
)

// groupTable is every setting of a group, by name. It is never written to.
var groupTable = []groupSetting{
	{"assignor", "sticky", "who reads what: sticky is even over all topics and moves as little as possible, uniform is even and the same for the same members, range gives partitions of one number in all topics to one member", takesOfGroup{"sticky, uniform, range", setAssignor, func(s *GroupSettings) string { return string(s.Assignor) }}},
	{"max.poll.interval.ms", "300000", "a member over REST that makes no call for this long has left", groupMillis(leastSessionMillis, mostPollMillis, func(s *GroupSettings) *time.Duration { return &s.MaxPollInterval })},
	{"rejoin.grace.ms", "5000", "a member whose connection is closed keeps its partitions for this long", groupMillis(0, mostSessionMillis, func(s *GroupSettings) *time.Duration { return &s.RejoinGrace })},
	{"session.timeout.ms", "45000", "a connected member that gives no sign of life for this long has left", groupMillis(leastSessionMillis, mostSessionMillis, func(s *GroupSettings) *time.Duration { return &s.Session })},
}

// groupNames goes on after a name that is not in the table.
var groupNames = func() string {
	names := make([]string, len(groupTable))
	for i, row := range groupTable {
		names[i] = row.name
	}
	return "; a group has " + strings.Join(names, ", ")
}()

// GroupSettingDocs returns every setting of a group with its default, what it takes and its meaning, by name.
func GroupSettingDocs() []SettingDoc {
	docs := make([]SettingDoc, len(groupTable))
	for i, row := range groupTable {
		docs[i] = SettingDoc{row.name, row.initial, row.values, row.meaning}
	}
	return docs
}

// DefaultGroupSettings are those of a group without overrides on a node that is not set up otherwise.
func DefaultGroupSettings() GroupSettings {
	var s GroupSettings
	for _, row := range groupTable {
		if err := row.set(&s, row.initial); err != nil {
			panic(err) // the table's own defaults do not parse: a defect, and a test finds it
		}
	}
	return s
}

// ParseGroupSettings applies overrides to the defaults, which are the node's. It reports every mistake at
// once, as a fault of kind Validation whose cause joins a [SettingError] for each; the defaults are not
// checked, see [GroupSettings.Validate].
func ParseGroupSettings(overrides map[string]string, defaults GroupSettings) (GroupSettings, error) {
	s := defaults
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		value := overrides[name]
		i := slices.IndexFunc(groupTable, func(row groupSetting) bool { return row.name == name })
		if i < 0 {
			mistakes = append(mistakes, &SettingError{Name: name, Value: value, Why: noSetting + groupNames})
			continue
		}
		if err := groupTable[i].set(&s, value); err != nil {
			mistakes = append(mistakes, &SettingError{Name: name, Value: value, Why: err.Error()})
		}
	}
	if len(mistakes) > 0 {
		return GroupSettings{}, fault.New("topic.ParseGroupSettings", fault.Validation, nil, errors.Join(mistakes...))
	}
	return s, nil
}

// Validate says what [ParseGroupSettings] would say of these values.
func (s GroupSettings) Validate() error {
	_, err := ParseGroupSettings(s.Values(), s)
	return err
}

// Values are all settings as texts that [ParseGroupSettings] reads, by name.
func (s GroupSettings) Values() map[string]string {
	values := make(map[string]string, len(groupTable))
	for _, row := range groupTable {
		values[row.name] = row.get(&s)
	}
	return values
}

func setAssignor(s *GroupSettings, value string) error {
	switch a := Assignor(value); a {
	case StickyAssignor, UniformAssignor, RangeAssignor:
		s.Assignor = a
		return nil
	default:
		return errors.New("must be sticky, uniform or range")
	}
}

func groupMillis(least, most int64, field func(*GroupSettings) *time.Duration) takesOfGroup {
	return takesOfGroup{
		values: fmt.Sprintf("%d to %d", least, most),
		set: func(s *GroupSettings, value string) error {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < least || n > most {
				return fmt.Errorf("must be a whole number of milliseconds from %d to %d", least, most)
			}
			*field(s) = time.Duration(n) * time.Millisecond
			return nil
		},
		get: func(s *GroupSettings) string { return strconv.FormatInt(field(s).Milliseconds(), 10) },
	}
}
