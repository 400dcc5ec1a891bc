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

var updatePages = flag.Bool("update", false, "write what the commands of README.md and docs/groups.md print into them")

// pasted is a block of commands that has what it prints in a block behind it.
var pasted = regexp.MustCompile("(?s)```sh\n([^`]*)```\n```(json|text)\n(.*?)```\n")

// TestPagesSayWhatHappens pastes the blocks of commands of README.md and docs/groups.md in order into a shell
// beside a node for each page, and compares what they print, but for times.
func TestPagesSayWhatHappens(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands need %s", tool)
		}
	}
	for _, page := range []string{"README.md", "docs/groups.md"} {
		t.Run(page, func(t *testing.T) { saysWhatHappens(t, filepath.Join("..", "..", page)) })
	}
}

func saysWhatHappens(t *testing.T, page string) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	n := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	blocks := 0
	got := pasted.ReplaceAllStringFunc(string(content), func(text string) string {
		blocks++
		block := pasted.FindStringSubmatch(text)
		return "```sh\n" + block[1] + "```\n```" + block[2] + "\n" + shell(t, n.base, block[1]) + "```\n"
	})
	if outputs := strings.Count(string(content), "```json\n") + strings.Count(string(content), "```text\n"); blocks == 0 || blocks != outputs {
		t.Fatalf("%d blocks of commands for %d blocks of output", blocks, outputs)
	}
	if got == string(content) || timeless(got) == timeless(string(content)) {
		return
	}
	if !*updatePages {
		t.Fatalf("%s says something else than happens (go test ./cmd/weir -run Pages -update):\n%s", page, got)
	}
	if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shell pastes commands, as they stand, and returns what they print.
func shell(t *testing.T, base, command string) string {
	t.Helper()
	here := strings.ReplaceAll(command, "localhost:8080", strings.TrimPrefix(base, "http://"))
	patience := "20"
	if strings.Contains(command, "application/x-ndjson") {
		patience = "1" // a stream without an end
	}
	here = strings.ReplaceAll(here, "curl ", "curl --no-progress-meter --max-time "+patience+" ")
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", here)
	cmd.Dir = t.TempDir()
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
		`"timestamp":\d+`:         `"timestamp":0`,
		`"request_id":"[^"]+"`:    `"request_id":"-"`,
		`([cg]1)\.[A-Za-z0-9_-]+`: `$1.-`,
		`(?m)^id( +)\S+$`:         `id$1-`,
		`(?m)^created( +)\S+$`:    `created$1-`,
		`topics/[0-9a-f]{32}`:     `topics/-`,
		`\d{4}-\d\d-\d\dT\S+`:     `-`,
		`http://127.0.0.1:\d+`:    `http://127.0.0.1`,
		`partition \d+ offsets`:   `partition 0 offsets`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}
