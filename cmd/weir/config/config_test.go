package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlog/weir/cmd/weir/config"
)

// write puts a config file into a directory of the test's own.
func write(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	loaded, err := config.Load(config.Sources{
		File:    write(t, "data: /file\nnode: {id: 2}\nhttp: {address: '127.0.0.1:1', names: [a.example, b.example]}\n"),
		Environ: []string{"WEIR_NODE_ID=3", "WEIR_HTTP_ADDRESS=127.0.0.1:2", "HOME=/root", "WEIR_DATA="},
		Flags:   map[string]string{"http.address": "127.0.0.1:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	if c.Gateway.Address != "127.0.0.1:3" || c.Broker.NodeID != 3 || c.Broker.Dir != "/file" || c.Log.Level != "info" {
		t.Fatalf("got %+v", c)
	}
	if want := []string{"a.example", "b.example"}; !reflect.DeepEqual(c.Gateway.Names, want) {
		t.Fatalf("names are %v, want %v", c.Gateway.Names, want)
	}
	var out strings.Builder
	if err := loaded.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`  address: "127.0.0.1:3" # flag`, `  id: 3 # WEIR_NODE_ID`, `weir.yaml`, `  level: info # default`} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, &out)
		}
	}
}

func TestEveryMistakeIsReportedByName(t *testing.T) {
	_, err := config.Load(config.Sources{
		File: write(t, `
data: ./d
htpp:
  address: x
http:
  adress: 127.0.0.1:1
  request_bytes: lots
topics:
  partitions: many
  auto_create: perhaps
produce: {queue: {deep: 1}}
idempotency: 5
log:
  level: loud
`),
		Environ: []string{"WEIR_HTTP_ADRESS=1", "WEIR_NODE_ID=one"},
		Flags:   map[string]string{"no.such": "1", "storage.stall": "5"},
	})
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		"htpp.address (", "no such setting; did you mean http.address?",
		"http.adress (",
		`http.request_bytes (`, `"lots": must be a number of bytes`,
		`topics.partitions (`, `"many": must be a whole number`,
		`topics.auto_create (`, `"perhaps": must be true or false`,
		`produce.queue (`, "must be a plain value or a list",
		"idempotency (", "is a section, it holds idempotency.window",
		`log.level (`, "must be one of debug, info, warn, error",
		"WEIR_HTTP_ADRESS (environment): no such setting; did you mean WEIR_HTTP_ADDRESS?",
		"node.id (WEIR_NODE_ID)",
		"no.such (flag): no such setting",
		`storage.stall (flag): "5": must be a time with its unit`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}

func TestValuesThatAreNotAllowedAreReportedByNameToo(t *testing.T) {
	_, err := config.Load(config.Sources{Flags: map[string]string{
		"node.id": "0", "topics.partitions": "5000", "http.address": "nowhere", "sessions.ping": "-1s", "stop.timeout": "0s",
	}})
	if err == nil {
		t.Fatal("it was taken")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, name := range []string{"node.id", "topics.partitions", "http.address", "sessions.ping", "stop.timeout"} {
		found := false
		for _, line := range lines {
			found = found || strings.HasPrefix(line, name+":")
		}
		if !found {
			t.Errorf("no line for %s in\n%v", name, err)
		}
	}
}

func TestAFileThatIsNoConfigIsRefusedWithItsName(t *testing.T) {
	for _, content := range []string{"http: [", "a: 1\na: 2\n", "- list\n", "just words"} {
		if _, err := config.Load(config.Sources{File: write(t, content)}); err == nil || !strings.Contains(err.Error(), "weir.yaml") {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if _, err := config.Load(config.Sources{File: "no/such.yaml"}); err == nil || !strings.Contains(err.Error(), "no/such.yaml does not exist") {
		t.Errorf("got %v", err)
	}
	for _, content := range []string{"", "# nothing\n", "http:\n"} {
		if _, err := config.Load(config.Sources{File: write(t, content)}); err != nil {
			t.Errorf("%q: got %v", content, err)
		}
	}
}

func TestVariablesOfOrchestratorsAndClientsAreNoSettings(t *testing.T) {
	_, err := config.Load(config.Sources{Environ: []string{
		"WEIR_PORT=tcp://10.0.0.1:8080", "WEIR_SERVICE_HOST=10.0.0.1", "WEIR_PORT_8080_TCP_ADDR=10.0.0.1",
		"WEIR_SERVICE_PORT_HTTP=8080", "WEIR_HTTP_PORT=tcp://10.0.0.1:8080", "WEIR_HTTP_SERVICE_HOST=10.0.0.1",
		"WEIR_SERVER=http://127.0.0.1:1", "WEIR_SOAK=1", "WEIR_CONFIG=x",
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsPrintedReadsBackTheSame(t *testing.T) {
	first, err := config.Load(config.Sources{Flags: map[string]string{
		"data": "/somewhere: else # here", "http.names": "a.example, b.example", "storage.stall": "90s", "cache.tail_bytes": "3MB",
	}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := first.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	second, err := config.Load(config.Sources{File: write(t, out.String())})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !reflect.DeepEqual(first.Config, second.Config) {
		t.Fatalf("printed %+v\nread %+v", first.Config, second.Config)
	}
	if second.Config.Broker.TailBytes != 3_000_000 || first.Config.Broker.Dir != "/somewhere: else # here" {
		t.Fatalf("got %+v", second.Config.Broker)
	}
}

func TestSizesTakeUnits(t *testing.T) {
	for text, want := range map[string]int64{"67108864": 64 << 20, "64MiB": 64 << 20, "64 mib": 64 << 20, "64MB": 64e6, "1GiB": 1 << 30, "100000000B": 1e8} {
		loaded, err := config.Load(config.Sources{Flags: map[string]string{"produce.in_flight_bytes": text}})
		if err != nil || loaded.Config.Broker.InFlightBytes != want {
			t.Errorf("%s: got %v, %v", text, loaded, err)
		}
	}
	for _, text := range []string{"MiB", "1.5GiB", "9999999999GiB", "-"} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"produce.in_flight_bytes": text}}); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
