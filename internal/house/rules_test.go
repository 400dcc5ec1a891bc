package house_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	_, all := files(t)
	docs := map[string][]string{} // by package: the files that have its doc, written by hand
	made := map[string]bool{}     // the packages that a generator has given one
	for _, f := range all {
		if f.test {
			continue
		}
		in := docs[f.pkg]
		if f.tree.Doc != nil && !f.made {
			in = append(in, f.name)
		}
		docs[f.pkg] = in
		made[f.pkg] = made[f.pkg] || f.tree.Doc != nil && f.made
	}
	for pkg, in := range docs {
		if len(in) > 1 || len(in) == 0 && !made[pkg] {
			t.Errorf("%s: the package doc stands in %v, want one file", pkg, in)
		}
	}
}

// TestPureRoomsStartNoGoroutine: state has one owner there, the caller.
func TestPureRoomsStartNoGoroutine(t *testing.T) {
	fset, all := files(t)
	pure := []string{
		"topic", "topic/batch", "storage", "storage/vfs", "broker/replica", "broker/cluster", "broker/group", "broker/group/view",
		"gateway/problem", "gateway/recordjson", "web", "internal/boltfile", "internal/fault",
		"internal/wire",
	}
	for _, f := range all {
		if f.test || !slices.Contains(pure, f.pkg) {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine starts in a package that starts none", fset.Position(g.Go))
			}
			return true
		})
	}
}

// TestLoggersAreHandedIn: a global logger is one that a test and a second node in the process cannot tell apart.
func TestLoggersAreHandedIn(t *testing.T) {
	fset, all := files(t)
	global := []string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "Default", "SetDefault", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}
	for _, f := range all {
		if f.test {
			continue
		}
		calls(f, func(pkg, name string, call *ast.CallExpr, _ []ast.Node) {
			if pkg == "slog" && slices.Contains(global, name) {
				t.Errorf("%s: slog.%s is the global logger", fset.Position(call.Pos()), name)
			}
		})
	}
}

// TestNoTestWaitsAFixedTime: a test that sleeps is slow on a fast machine and wrong on a slow one. Time
// comes from testing/synctest; what is real is polled in a loop that has a deadline.
func TestNoTestWaitsAFixedTime(t *testing.T) {
	fset, all := files(t)
	for _, f := range all {
		if !f.test || slices.Contains(f.imports, "testing/synctest") {
			continue
		}
		calls(f, func(pkg, name string, call *ast.CallExpr, around []ast.Node) {
			if pkg != "time" || name != "Sleep" {
				return
			}
			inLoop := slices.ContainsFunc(around, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.ForStmt, *ast.RangeStmt:
					return true
				}
				return false
			})
			if !inLoop {
				t.Errorf("%s: a test sleeps for a fixed time", fset.Position(call.Pos()))
			}
		})
	}
}

// calls visits the calls of functions of packages, with the nodes around each.
func calls(f file, visit func(pkg, name string, call *ast.CallExpr, around []ast.Node)) {
	var around []ast.Node
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok {
					visit(pkg.Name, sel.Sel.Name, call, around)
				}
			}
		}
		around = append(around, n)
		return true
	})
}

// TestFilesHoldOneNoun: past this length there is a second noun hiding in a file.
func TestFilesHoldOneNoun(t *testing.T) {
	const most = 600
	_, all := files(t)
	for _, f := range all {
		if !f.made && !f.test && f.lines > most {
			t.Errorf("%s has %d lines, at most %d are meant", f.name, f.lines, most)
		}
		if base := filepath.Base(f.pkg); slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, base) {
			t.Errorf("%s: a package that is called %s holds anything", f.name, base)
		}
	}
}

// requirements reads the versions of a go.mod by module, with or without the indirect ones.
func requirements(t *testing.T, name string, indirect bool) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^(?:require )?\t?(\S+\.\S+/\S+) (v\S+)( // indirect)?$`)
	found := map[string]string{}
	for _, m := range line.FindAllStringSubmatch(string(content), -1) {
		if m[3] == "" || indirect {
			found[m[1]] = m[2]
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s: no requirements were found", name)
	}
	return found
}

// TestEveryDependencyHasAReason compares go.mod with docs/dependencies.md, both ways.
func TestEveryDependencyHasAReason(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]*[a-z][^|]* \\|")
	reasons := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		reasons[m[1]] = true
	}
	direct := requirements(t, "go.mod", false)
	for name := range direct {
		if !reasons[name] {
			t.Errorf("docs/dependencies.md has no line for %s", name)
		}
	}
	for name := range reasons {
		if _, ok := direct[name]; !ok {
			t.Errorf("docs/dependencies.md has a line for %s, which go.mod does not require", name)
		}
	}
}

// TestTheBenchMeasuresOurVersions: a reference on another web framework would be another race.
func TestTheBenchMeasuresOurVersions(t *testing.T) {
	ours, bench := requirements(t, "go.mod", true), requirements(t, "bench/go.mod", true)
	for _, name := range []string{"github.com/gofiber/fiber/v2", "github.com/valyala/fasthttp", "github.com/fasthttp/websocket", "github.com/hashicorp/raft"} {
		if ours[name] == "" || ours[name] != bench[name] {
			t.Errorf("%s: the product has %q, the bench %q", name, ours[name], bench[name])
		}
	}
}

func TestTheChangelogHasAPlaceForWhatIsNext(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "\n## [Unreleased]\n") {
		t.Error("CHANGELOG.md has no section [Unreleased]")
	}
}

// TestTheWalksFollowTheCode: each `dir/file.go: name` of docs/walks.md is a function or method in that file.
func TestTheWalksFollowTheCode(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/walks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, all := files(t)
	has := map[string]bool{} // files, and functions in files
	for _, f := range all {
		has[f.name] = true
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				has[f.name+": "+fn.Name.Name] = true
			}
		}
	}
	steps := regexp.MustCompile("`([a-z/0-9]+\\.go(?:: [A-Za-z]+)?)`").FindAllStringSubmatch(string(content), -1)
	if len(steps) < 30 {
		t.Fatalf("only %d steps were found", len(steps))
	}
	for _, m := range steps {
		if step := m[1]; !has[step] {
			t.Errorf("docs/walks.md goes through %s, which is not there", step)
		}
	}
}
