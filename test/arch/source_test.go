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
	"testing"
)

// root is the checkout, seen from this package.
const root = "../.."

// file is one parsed Go file.
type file struct {
	path string // from the root, with slashes
	text string
	fset *token.FileSet
	ast  *ast.File
}

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f *file) dir() string { return filepath.ToSlash(filepath.Dir(f.path)) }

func (f *file) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// imports are the paths a file imports, by the name it uses for them.
func (f *file) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it
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

// sources parses every Go file that is ours and written by hand.
func sources(t *testing.T) []*file {
	t.Helper()
	var files []*file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(tree) {
			files = append(files, &file{filepath.ToSlash(rel), string(text), fset, tree})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files found: the walk is wrong", len(files))
	}
	return files
}
