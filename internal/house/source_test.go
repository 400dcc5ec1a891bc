package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/weirlog/weir"
)

// file is one Go file of the product.
type file struct {
	name    string // from the root, with slashes
	pkg     string // directory from the root, "." for the root
	test    bool
	made    bool // by a generator
	imports []string
	tree    *ast.File
	lines   int
}

// files parses every Go file of the product's own module, whatever system it is built for.
func files(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	fset := token.NewFileSet()
	var all []file
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if entry.IsDir() {
			switch {
			case path == root:
				return nil
			case name == "bench" || name == "tools": // modules of their own
				return fs.SkipDir
			case entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		tree, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f := file{
			name: name, pkg: filepath.ToSlash(filepath.Dir(name)), test: strings.HasSuffix(name, "_test.go"),
			made: ast.IsGenerated(tree), tree: tree, lines: fset.File(tree.FileStart).LineCount(),
		}
		for _, spec := range tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files were found", len(all))
	}
	return fset, all
}
