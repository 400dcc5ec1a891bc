// Command vulncheck looks for known vulnerabilities that the product calls, without the network.
//
// The reports come from the module golang.org/x/vulndb, which the module proxy serves like any other;
// indexdb lays them out as govulncheck reads them. What cannot be fixed here is listed with its
// reason in accepted.txt. A finding that is not listed fails; a line that matches nothing is said, and
// no more: another Go has other findings.
//
// It is run from the product's root: go run -C tools ./vulncheck
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed accepted.txt
var accepted string

func main() {
	if err := check(".."); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

// check scans the module in root. The program runs in tools/, whose go.mod names the tools.
func check(root string) error {
	reasons, err := parseAccepted(accepted)
	if err != nil {
		return err
	}
	db, err := database(filepath.Join(root, ".cache", "vulndb"))
	if err != nil {
		return err
	}
	toolsMod, err := filepath.Abs("go.mod")
	if err != nil {
		return err
	}
	scan := exec.Command("go", "tool", "-modfile="+toolsMod, "govulncheck", "-db", "file://"+db, "-format", "json", "./...")
	scan.Dir, scan.Stderr = root, os.Stderr
	out, err := scan.Output()
	if err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	called, err := findings(out)
	if err != nil {
		return err
	}
	return judge(called, reasons)
}

// database lays the reports out below dir, unless they are there already, and returns its absolute name.
func database(dir string) (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "golang.org/x/vulndb").Output()
	if err != nil {
		return "", fmt.Errorf("find the module golang.org/x/vulndb: %w", err)
	}
	version, source, _ := strings.Cut(strings.TrimSpace(string(module)), " ")
	if source == "" {
		if err := exec.Command("go", "mod", "download", "golang.org/x/vulndb").Run(); err != nil {
			return "", fmt.Errorf("download golang.org/x/vulndb: %w", err)
		}
		return database(dir)
	}
	target, err := filepath.Abs(filepath.Join(dir, version))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(target, "index")); err == nil {
		return target, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	making := target + ".new" // so that a run that was cut short is not taken for a whole database
	if err := os.RemoveAll(making); err != nil {
		return "", err
	}
	index := exec.Command("go", "tool", "indexdb", "-vulns", filepath.Join(source, "data", "osv"), "-out", making)
	if out, err := index.CombinedOutput(); err != nil {
		return "", fmt.Errorf("indexdb: %w\n%s", err, out)
	}
	return target, os.Rename(making, target)
}

// parseAccepted reads lines of an id and a reason; # begins a comment.
func parseAccepted(text string) (map[string]string, error) {
	reasons := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("accepted.txt: %s has no reason", id)
		}
		reasons[id] = reason
	}
	return reasons, lines.Err()
}

// finding is a vulnerable function that the product calls.
type finding struct{ module, found, fixed, function string }

// findings reads govulncheck's stream of JSON and keeps, by id, what is called.
func findings(stream []byte) (map[string]finding, error) {
	called := map[string]finding{}
	in := json.NewDecoder(strings.NewReader(string(stream)))
	for {
		var message struct {
			Finding *struct {
				OSV          string
				FixedVersion string `json:"fixed_version"`
				Trace        []struct{ Module, Version, Package, Function string }
			}
		}
		if err := in.Decode(&message); errors.Is(err, io.EOF) {
			return called, nil
		} else if err != nil {
			return nil, fmt.Errorf("govulncheck's output: %w", err)
		}
		if f := message.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			at := f.Trace[0]
			called[f.OSV] = finding{at.Module, at.Version, f.FixedVersion, at.Package + "." + at.Function}
		}
	}
}

func judge(called map[string]finding, reasons map[string]string) error {
	var failed []error
	for _, id := range slices.Sorted(maps.Keys(called)) {
		f := called[id]
		if reason, ok := reasons[id]; ok {
			fmt.Printf("accepted  %s %s: %s\n", id, f.function, reason)
			continue
		}
		failed = append(failed, fmt.Errorf("%s: %s %s, fixed in %q, reached by %s (https://pkg.go.dev/vuln/%s)", id, f.module, f.found, f.fixed, f.function, id))
	}
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		if _, ok := called[id]; !ok {
			fmt.Printf("unneeded  %s is in accepted.txt, but nothing calls it with this Go\n", id)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	fmt.Printf("vulncheck: %d findings, all accepted\n", len(called))
	return nil
}
