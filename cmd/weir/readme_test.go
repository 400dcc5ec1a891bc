package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateReadme = flag.Bool("update", false, "write what the commands of README.md print into it")

const readme = "../../README.md"

// TestTheReadmeSaysWhatHappens runs the commands of README.md's console blocks in order against one node
// and compares what they print, but for times.
func TestTheReadmeSaysWhatHappens(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands need %s", tool)
		}
	}
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	block := regexp.MustCompile("(?s)```console\n(.*?)```\n")
	got := block.ReplaceAllStringFunc(string(content), func(text string) string {
		return "```console\n" + play(t, n.base, block.FindStringSubmatch(text)[1]) + "```\n"
	})
	if got == string(content) || timeless(got) == timeless(string(content)) {
		return
	}
	if !*updateReadme {
		t.Fatalf("README.md says something else than happens (go test ./cmd/weir -run Readme -update):\n%s", got)
	}
	if err := os.WriteFile(readme, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// play runs the commands of a block, which begin with "$ " and go on with "> ", and returns them with what they print.
func play(t *testing.T, base, text string) string {
	t.Helper()
	var out strings.Builder
	var command string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "$ "):
			command = line[2:]
		case strings.HasPrefix(line, "> "):
			command += "\n" + line[2:]
		default:
			continue // what an earlier run printed
		}
		out.WriteString(line + "\n")
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "> ") {
			continue
		}
		out.WriteString(shell(t, base, command))
	}
	return out.String()
}

func shell(t *testing.T, base, command string) string {
	t.Helper()
	here := strings.ReplaceAll(command, "localhost:8080", strings.TrimPrefix(base, "http://"))
	patience := "20"
	if strings.Contains(command, "follow=true") {
		patience = "1" // a stream without an end
	}
	here = strings.ReplaceAll(here, "curl ", "curl --no-progress-meter --max-time "+patience+" ")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", here)
	cmd.Env = append(os.Environ(), "WEIR_SERVER="+base)
	printed, err := cmd.CombinedOutput()
	if err != nil && patience != "1" {
		t.Fatalf("%s: %v\n%s", command, err, printed)
	}
	text := regexp.MustCompile(`(?m)^curl: \(28\) .*\n`).ReplaceAllString(string(printed), "") // the time was up
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// timeless replaces what differs from run to run.
func timeless(text string) string {
	for pattern, by := range map[string]string{
		`"timestamp":\d+`:       `"timestamp":0`,
		`"request_id":"[^"]+"`:  `"request_id":"-"`,
		`c1\.[A-Za-z0-9_-]+`:    `c1.-`,
		`(?m)^id( +)\S+$`:       `id$1-`,
		`(?m)^created( +)\S+$`:  `created$1-`,
		`\d{4}-\d\d-\d\dT\S+`:   `-`,
		`http://127.0.0.1:\d+`:  `http://127.0.0.1`,
		`partition \d+ offsets`: `partition 0 offsets`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}
