package house_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// rooms says what each package may import of the house. Imports go downwards only. internal/fault is
// open to all, internal/run to all that start goroutines; they stand in every list where they are used.
//
// No door imports broker: each names the few methods that it needs, and cmd hands in the node. That is
// also where another engine would go in.
var rooms = map[string][]string{
	".":                 {},
	"internal/boltfile": {},
	"internal/fault":    {},
	"internal/house":    {},
	"internal/run":      {},
	"internal/wire":     {},
	"web":               {},

	"topic":       {"internal/fault"},
	"topic/batch": {"internal/fault", "topic"},

	"storage/vfs": {"internal/fault"},
	"storage":     {"internal/fault", "storage/vfs", "topic", "topic/batch"},

	// The rules, apart from all I/O.
	"broker/replica": {"internal/fault", "topic"},
	"broker/cluster": {"internal/fault", "internal/wire", "topic"},
	"broker/group":   {"internal/fault", "internal/wire", "topic"},

	"broker/group/view":     {"internal/boltfile", "internal/fault", "topic"},
	"broker/cluster/quorum": {"internal/boltfile", "internal/fault", "internal/run", "topic", "broker/cluster"},
	"broker": {
		"internal/fault", "internal/run", "topic", "topic/batch", "storage", "storage/vfs",
		"broker/replica", "broker/cluster", "broker/cluster/quorum", "broker/group", "broker/group/view",
	},

	"gateway/problem":    {"internal/fault", "topic", "gateway/recordjson"},
	"gateway/recordjson": {"internal/fault", "topic", "topic/batch"},
	"gateway/api":        {},
	"gateway/session":    {"internal/fault", "internal/run", "topic", "topic/batch", "gateway/problem", "gateway/recordjson"},
	"gateway": {
		".", "internal/fault", "internal/run", "topic", "topic/batch", "web",
		"gateway/api", "gateway/problem", "gateway/recordjson", "gateway/session",
	},

	// The client side knows a node only by openapi.yaml.
	"cmd/weir/client": {},
	// The configuration composes those of the rooms.
	"cmd/weir/config": {"internal/fault", "topic", "broker", "gateway", "gateway/session"},
	// The only place that knows every room.
	"cmd/weir": {
		".", "internal/fault", "internal/run", "topic", "storage", "storage/vfs", "broker", "broker/cluster", "broker/cluster/quorum",
		"broker/group/view", "gateway", "gateway/session", "web", "cmd/weir/client", "cmd/weir/config",
	},
}

// libraries says which rooms may use which module of others. A module that is not listed is not used.
var libraries = map[string][]string{
	// The web framework stays in the door, and the WebSocket below it in the session: nothing behind
	// them knows which framework it was.
	"github.com/gofiber/fiber/v2":          {"gateway", "gateway/api"},
	"github.com/gofiber/contrib/websocket": {"gateway"},
	"github.com/fasthttp/websocket":        {"gateway", "gateway/session"},
	"github.com/valyala/fasthttp":          {"gateway"},
	"github.com/oapi-codegen/runtime":      {"gateway/api", "gateway"},
	"github.com/nats-io/nuid":              {"gateway", "gateway/session", "broker/cluster/quorum"},
	// Strict where the standard library's JSON is not: duplicate names, broken UTF-8.
	"github.com/go-json-experiment/json": {"gateway", "gateway/session"},

	// Raft and its store are seen in one package, so that another could take their place.
	"github.com/hashicorp/raft":           {"broker/cluster/quorum"},
	"github.com/hashicorp/raft-boltdb/v2": {"broker/cluster/quorum"},
	"github.com/hashicorp/go-hclog":       {"broker/cluster/quorum"},
	"go.etcd.io/bbolt":                    {"broker/cluster/quorum", "broker/group/view", "internal/boltfile"},

	"github.com/klauspost/compress": {"topic/batch", "gateway"},
	"github.com/pierrec/lz4/v4":     {"topic/batch"},
	"golang.org/x/sys":              {"storage", "storage/vfs"},
	"github.com/spf13/cobra":        {"cmd/weir", "cmd/weir/client"},
	"github.com/mattn/go-isatty":    {"cmd/weir/client"},
	"github.com/knadh/koanf":        {"cmd/weir/config"},
	"go.yaml.in/yaml/v3":            {"cmd/weir/config"},
	"github.com/prometheus/":        {"broker", "broker/cluster/quorum", "gateway", "gateway/session", "cmd/weir"},
}

func TestImportsFollowTheTable(t *testing.T) {
	_, all := files(t)
	met := map[string]bool{}
	for _, f := range all {
		if f.test {
			continue
		}
		met[f.pkg] = true
		for _, imported := range f.imports {
			if why := refused(f.pkg, imported); why != "" {
				t.Errorf("%s imports %s: %s", f.name, imported, why)
			}
		}
	}
	for pkg := range rooms {
		if !met[pkg] {
			t.Errorf("the table of rooms has %q, which is not there", pkg)
		}
	}
}

// refused says why a package may not import another; "" when it may.
func refused(pkg, imported string) string {
	allowed, listed := rooms[pkg]
	if !listed {
		return "the package " + pkg + " is not in the table of rooms"
	}
	if below, ours := strings.CutPrefix(imported, module); ours {
		below = strings.TrimPrefix(below, "/")
		if below == "" {
			below = "."
		}
		if slices.Contains(allowed, below) {
			return ""
		}
		return "the table of rooms does not allow it"
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for library, users := range libraries {
		if imported == library || strings.HasPrefix(imported, strings.TrimSuffix(library, "/")+"/") {
			if slices.Contains(users, pkg) {
				return ""
			}
			return "this library is for " + strings.Join(users, ", ")
		}
	}
	return "this library is not in the table of libraries"
}

func TestTheTablesBite(t *testing.T) {
	for _, c := range []struct{ pkg, imported string }{
		{"gateway", module + "/broker"},
		{"gateway/session", module + "/broker"},
		{"broker/replica", module + "/storage"},
		{"topic", module + "/broker"},
		{"storage", module + "/broker"},
		{"cmd/weir/client", module + "/topic"},
		{"topic", "github.com/gofiber/fiber/v2"},
		{"broker", "github.com/hashicorp/raft"},
		{"topic", "github.com/stretchr/testify"},
		{"nowhere", "fmt"},
	} {
		if refused(c.pkg, c.imported) == "" {
			t.Errorf("%s may import %s", c.pkg, c.imported)
		}
	}
	for _, c := range []struct{ pkg, imported string }{
		{"gateway", "github.com/gofiber/fiber/v2/utils"},
		{"broker", module + "/storage"},
		{"topic", "encoding/json"},
	} {
		if why := refused(c.pkg, c.imported); why != "" {
			t.Errorf("%s may not import %s: %s", c.pkg, c.imported, why)
		}
	}
}

// TestTheTableHasNoCircle follows the arrows down.
func TestTheTableHasNoCircle(t *testing.T) {
	var walk func(pkg string, path []string)
	walk = func(pkg string, path []string) {
		if slices.Contains(path, pkg) {
			t.Fatalf("a circle: %s", strings.Join(append(path, pkg), " → "))
		}
		for _, below := range rooms[pkg] {
			walk(below, append(path, pkg))
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(rooms)) {
		walk(pkg, nil)
	}
}
