// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module  = "keelson.dev/keelson/"
	staging = "staging/src/"
)

// TestImports checks that packages import only packages of lower layers. Modules that are meant for
// use outside this repository can then be used without the other packages.
func TestImports(t *testing.T) {
	const onlyAPI = "processes communicate only through the API"
	rules := []struct {
		from   string // prefix of the importing file
		to     string // prefix of the packages that the file must not import
		except []string
		why    string
	}{
		{"", "k8s.io/kubernetes", []string{"test/conformance/"}, "only the conformance suite may use it"},
		{"", "k8s.io/apiserver/pkg/registry", nil, "the generic server is our own"},
		{"", "k8s.io/apiserver/pkg/storage/cacher", nil, "the watch cache is our own"},
		{"", "k8s.io/apiserver/pkg/storage/etcd3", nil, "the storage is our own"},
		{staging, module, nil, "staging modules must be usable without the rest of the repository"},
		{"pkg/api/", module + "pkg/apiserver", nil, "the meaning of a kind must not depend on the server"},
		{
			"pkg/apiserver/", "keelson.dev/apiserver/store/kv/etcd/embedded", nil,
			"a program that never starts an etcd must not contain one",
		},
		{"pkg/scheduler/", module + "pkg/apiserver", nil, onlyAPI},
		{
			"pkg/controllers/", module + "pkg/apiserver",
			[]string{"pkg/controllers/controllertest/", "pkg/controllers/perturb/"}, onlyAPI,
		},
		{"pkg/kubelet/", module + "pkg/apiserver", nil, onlyAPI},
		{"pkg/proxy/", module + "pkg/apiserver", nil, onlyAPI},
		{"pkg/scheduler/", module + "pkg/controllers", nil, onlyAPI},
		{"pkg/kubelet/", module + "pkg/controllers", nil, onlyAPI},
		{"pkg/scheduler/plugins/", "k8s.io/client-go", nil, "plugins do no I/O"},
		{
			"", "github.com/prometheus/client_golang/prometheus/promhttp", []string{"pkg/daemon/scrape/"},
			"pkg/daemon/scrape serves metrics, with less memory for compression",
		},
		{staging + "keelson.dev/apiserver/", "k8s.io/api/core", nil, "the generic library must not depend on kinds"},
	}
	for _, f := range sources(t) {
		for _, path := range f.imports() {
			for _, r := range rules {
				if !strings.HasPrefix(f.path, r.from) || !under(path, r.to) || f.test() && r.to != "k8s.io/kubernetes" {
					continue
				}
				if slices.ContainsFunc(r.except, func(p string) bool { return strings.HasPrefix(f.path, p) }) {
					continue
				}
				t.Errorf("%s imports %s: %s", f.path, path, r.why)
			}
		}
	}
}

func under(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// clockPackage is the only package, except tests and tools, that may read the time and create random
// numbers.
const clockPackage = staging + "keelson.dev/api/clock"

// TestTimeAndRandomnessArePassedIn checks that packages get the time and random numbers from their
// callers, so that tests can run each package with virtual time and a fixed seed.
func TestTimeAndRandomnessArePassedIn(t *testing.T) {
	forbidden := map[string][]string{
		"time":      {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		"math/rand": nil, // forbids the whole package
		"math/rand/v2": {
			"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint64", "N", "Float64", "Float32",
			"Perm", "Shuffle", "NormFloat64", "ExpFloat64",
		},
	}
	for _, f := range sources(t) {
		if f.dir() == clockPackage || f.test() || strings.HasPrefix(f.path, "test/") || strings.HasPrefix(f.path, "hack/") {
			continue
		}
		eachCall(f, func(n ast.Node, path, name string) {
			names, listed := forbidden[path]
			if listed && (names == nil || slices.Contains(names, name)) {
				t.Errorf("%s:%d: %s.%s: take a clock.Clock or a *rand.Rand instead", f.path, f.line(n), path, name)
			}
		})
	}
}

// TestNoSleepAsSynchronisation checks that tests do not sleep for a fixed time before they check a
// result, because such tests are slow and sometimes fail without a fault. Sleeping between repeated
// checks of a condition is allowed.
func TestNoSleepAsSynchronisation(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test() {
			continue
		}
		var loops []*ast.ForStmt
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if loop, ok := n.(*ast.ForStmt); ok {
				loops = append(loops, loop)
			}
			return true
		})
		eachCall(f, func(n ast.Node, path, name string) {
			polls := slices.ContainsFunc(loops, func(l *ast.ForStmt) bool { return l.Pos() <= n.Pos() && n.End() <= l.End() })
			if path == "time" && name == "Sleep" && !polls {
				t.Errorf("%s:%d: time.Sleep: wait for what is to happen", f.path, f.line(n))
			}
		})
	}
}

// eachCall calls visit for each use of a name of an imported package.
func eachCall(f *file, visit func(n ast.Node, path, name string)) {
	imports := f.imports()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil {
			if path, ok := imports[id.Name]; ok {
				visit(sel, path, sel.Sel.Name)
			}
		}
		return true
	})
}

// TestNothingRunsAtImport checks that no package has an init function.
func TestNothingRunsAtImport(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s:%d: func init", f.path, f.line(fn))
			}
		}
	}
}

const header = "// Copyright The Keelson Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n"

// TestFiles checks rules that apply to each file, such as the maximum number of lines.
func TestFiles(t *testing.T) {
	const maxLines, maxMain = 500, 50
	unfinished := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, f := range sources(t) {
		if !strings.HasPrefix(f.text, header) && !strings.HasPrefix(f.text, "//go:build") {
			t.Errorf("%s: does not begin with the licence header", f.path)
		}
		lines := strings.Count(f.text, "\n")
		if lines > maxLines && !f.test() {
			t.Errorf("%s: %d lines, more than %d", f.path, lines, maxLines)
		}
		if strings.HasPrefix(f.path, "cmd/") && strings.HasSuffix(f.path, "/main.go") && lines > maxMain {
			t.Errorf("%s: %d lines; main should only define flags and call Run", f.path, lines)
		}
		if f.dir() != "test/arch" && unfinished.MatchString(f.text) {
			t.Errorf("%s: contains %s", f.path, unfinished.FindString(f.text))
		}
	}
}

// TestPackages checks that every package has a package comment, and a name that says what the
// package is for.
func TestPackages(t *testing.T) {
	empty := []string{"util", "utils", "common", "helpers", "types", "misc", "base"}
	documented := map[string]bool{}
	for _, f := range sources(t) {
		if slices.Contains(empty, f.ast.Name.Name) {
			t.Errorf("%s: the name %s does not say what the package is for", f.path, f.ast.Name.Name)
		}
		if f.test() {
			continue
		}
		documented[f.dir()] = documented[f.dir()] || f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != ""
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
}
