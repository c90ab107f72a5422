// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the path of the repository, relative to this package.
const root = "../.."

// file is a parsed Go file.
type file struct {
	path string // relative to the root of the repository, with slashes
	text string
	fset *token.FileSet
	ast  *ast.File
}

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f *file) dir() string { return filepath.ToSlash(filepath.Dir(f.path)) }

func (f *file) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// imports returns the import paths of the packages that a file imports, by the names that the file
// uses for the packages.
func (f *file) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted the path, so there is no error
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if name == "v2" {
			name = filepath.Base(filepath.Dir(path))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = path
	}
	return out
}

// sources returns all Go files of this repository that are not generated.
func sources(t *testing.T) []*file {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files found: the walk is wrong", len(files))
	}
	return files
}

// parsed returns all Go files of the repository. It parses them only once for all tests.
var parsed = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	err := walk(func(path string, text []byte) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err == nil && !ast.IsGenerated(tree) {
			files = append(files, &file{path, string(text), fset, tree})
		}
		return err
	})
	return files, err
})

// page is a file with text other than Go code: Markdown or a script.
type page struct {
	path string // relative to the root of the repository, with slashes
	text string
}

func (p *page) script() bool { return !strings.HasSuffix(p.path, ".md") }

// pages returns all pages of the repository.
func pages(t *testing.T) []*page {
	t.Helper()
	var out []*page
	err := walk(func(path string, text []byte) error {
		if strings.HasSuffix(path, ".md") || strings.HasSuffix(path, ".sh") || path == "Makefile" || path == ".ci/run" {
			out = append(out, &page{path, string(text)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d pages found: the walk is wrong", len(out))
	}
	return out
}

// walk calls visit for every source file of the repository. It skips build results and test data.
func walk(visit func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			hidden := strings.HasPrefix(name, ".") && name != ".ci"
			if path != root && (hidden || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" && ext != ".sh" && ext != "" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), text)
	})
}
