package config_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlog/weir/cmd/weir/config"
	"github.com/weirlog/weir/topic"
)

//go:generate go test . -run ^TestTheReferencePage$ -count=1 -update

var update = flag.Bool("update", false, "write docs/config.md anew")

const page = "../../../docs/config.md"

// TestTheReferencePage compares the tables of docs/config.md with the code.
func TestTheReferencePage(t *testing.T) {
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	for mark, table := range map[string]string{
		"settings": settingsTable(), "topic settings": docTable(topic.SettingDocs()), "group settings": docTable(topic.GroupSettingDocs()),
	} {
		begin, end := "<!-- "+mark+", written by make generate -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("docs/config.md lacks the marks of %q", mark)
		}
		text = before + begin + table + end + after
	}
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatal("docs/config.md does not say what the code does: run `make generate`")
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | default | takes | meaning |\n|---|---|---|---|\n")
	for _, d := range config.Docs() {
		initial := "`" + d.Default + "`"
		if d.Default == "" {
			initial = "–"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, initial, takes(d), d.Meaning)
	}
	return b.String()
}

func docTable(docs []topic.SettingDoc) string {
	var b strings.Builder
	b.WriteString("| setting | default | takes | meaning |\n|---|---|---|---|\n")
	for _, d := range docs {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", d.Name, d.Default, d.Takes, d.Meaning)
	}
	return b.String()
}

// notSet are fields that the process fills in, with the reason.
var notSet = map[string]string{
	"Broker.ClusterID": "the data directory says it",
}

// TestEveryFieldHasASetting changes one setting after the other and looks which field moved.
func TestEveryFieldHasASetting(t *testing.T) {
	reached := map[string]string{}
	for _, d := range config.Docs() {
		before, after := config.Default(), config.Default()
		for _, value := range others(d) {
			if config.Set(&after, d.Name, value) == nil && !reflect.DeepEqual(before, after) {
				break
			}
		}
		changed := differing("", reflect.ValueOf(before), reflect.ValueOf(after))
		if len(changed) != 1 {
			t.Errorf("%s changes %v, want one field", d.Name, changed)
			continue
		}
		if other, twice := reached[changed[0]]; twice {
			t.Errorf("%s and %s both set %s", other, d.Name, changed[0])
		}
		reached[changed[0]] = d.Name
	}
	for _, field := range fields("", reflect.TypeFor[config.Config]()) {
		_, set := reached[field]
		_, excused := notSet[field]
		if set == excused {
			t.Errorf("%s: has a setting %v, is listed as having none %v", field, set, excused)
		}
	}
}

// others are values of which one at least is not the default.
func others(d config.Doc) []string {
	switch d.Kind {
	case "number", "bytes":
		return []string{"7"}
	case "time":
		return []string{"7s"}
	case "text", "list":
		return []string{"other"}
	default:
		return strings.Split(d.Kind, ", ")
	}
}

func fields(prefix string, typ reflect.Type) []string {
	var names []string
	for f := range typ.Fields() {
		if f.Type.Kind() == reflect.Struct {
			names = append(names, fields(prefix+f.Name+".", f.Type)...)
			continue
		}
		names = append(names, prefix+f.Name)
	}
	return names
}

func differing(prefix string, a, b reflect.Value) []string {
	var names []string
	for i := range a.NumField() {
		name := prefix + a.Type().Field(i).Name
		if a.Field(i).Kind() == reflect.Struct {
			names = append(names, differing(name+".", a.Field(i), b.Field(i))...)
		} else if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}
