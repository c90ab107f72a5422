// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

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

// source is a parsed Go file, with the values of the string constants that the file's package and
// functions declare.
type source struct {
	dir   string // directory, relative to the root of the repository
	ast   *ast.File
	text  map[string]string
	local map[string]string
}

// sources parses the Go files below the given directories, except tests.
func sources(t *testing.T, dirs ...string) []source {
	t.Helper()
	var all []source
	constants := map[string]map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tree, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			if constants[rel] == nil {
				constants[rel] = map[string]string{}
			}
			s := source{rel, tree, constants[rel], map[string]string{}}
			s.constants()
			all = append(all, s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// constants stores the values of the string constants that the file declares.
func (s *source) constants() {
	for _, d := range s.ast.Decls {
		s.declared(d, s.text)
		if f, ok := d.(*ast.FuncDecl); ok {
			ast.Inspect(f, func(n ast.Node) bool {
				if d, ok := n.(*ast.DeclStmt); ok {
					s.declared(d.Decl, s.local)
				}
				return true
			})
		}
	}
}

// declared stores the values of the string constants in a declaration in the map text.
func (s *source) declared(d ast.Decl, text map[string]string) {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.CONST {
		return
	}
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i >= len(v.Values) {
				continue
			}
			if value, ok := s.value(v.Values[i]); ok {
				text[name.Name] = value
			}
		}
	}
}

// unknown stands for a part of a text that is known only when the program runs.
const unknown = "…"

// value returns the text of an expression that consists of string literals and constants. It
// returns false for other expressions.
func (s *source) value(e ast.Expr) (string, bool) {
	text := s.partial(e)
	return text, !strings.Contains(text, unknown)
}

// partial does the same as value for any expression. It uses unknown for parts that are neither
// literals nor constants.
func (s *source) partial(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.Ident:
		if text, ok := s.local[e.Name]; ok {
			return text
		}
		if text, ok := s.text[e.Name]; ok {
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return s.partial(e.X) + s.partial(e.Y)
		}
	}
	return unknown
}
