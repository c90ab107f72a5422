// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestLeaksAreChecked checks, for every package in pkg and staging that starts goroutines, that its
// tests fail if goroutines still run after the tests.
func TestLeaksAreChecked(t *testing.T) {
	starts, tested, checked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		if !strings.HasPrefix(f.path, "pkg/") && !strings.HasPrefix(f.path, staging) {
			continue
		}
		dir := f.dir()
		if !f.test() {
			starts[dir] = starts[dir] || startsGoroutines(f)
			continue
		}
		tested[dir] = true
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "TestMain" {
				checked[dir] = checksLeaks(f, fn)
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(starts)) {
		if starts[dir] && tested[dir] && !checked[dir] {
			t.Errorf("%s starts goroutines and its tests do not check that they end: add\n"+
				"\tfunc TestMain(m *testing.M) { leaktest.Main(m) }", dir)
		}
	}
}

// startsGoroutines reports whether a file has a go statement, or calls a method with the name Go,
// such as that of sync.WaitGroup or errgroup.Group.
func startsGoroutines(f *file) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			found = found || ok && sel.Sel.Name == "Go" && len(n.Args) == 1
		}
		return !found
	})
	return found
}

// checksLeaks reports whether the function fn calls package leaktest.
func checksLeaks(f *file, fn *ast.FuncDecl) bool {
	imports, found := f.imports(), false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				path := imports[id.Name]
				found = found || path == "keelson.dev/apiserver/leaktest"
			}
		}
		return !found
	})
	return found
}

// TestRootIsAskedForInOneWay checks that tests do not check themselves whether they run as root:
// tests that need root use package test/unshare. The same tests are then skipped with -short and
// without root, and each logs the reason.
func TestRootIsAskedForInOneWay(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test() {
			continue
		}
		eachCall(f, func(n ast.Node, path, name string) {
			if path == "os" && (name == "Getuid" || name == "Geteuid") {
				t.Errorf("%s:%d: os.%s: call unshare.Need or unshare.NeedRoot", f.path, f.line(n), name)
			}
		})
	}
}
