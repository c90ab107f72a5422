// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"testing"
)

// budget is the maximum number of statements in each room, without tests. A room is a part of the
// source tree (see the function room). The budget counts statements instead of lines, because
// longer lines would reduce the number of lines. A commit that raises a number must say what users
// or maintainers get for it.
var budget = map[string]int{
	"hack":                              1060,
	"pkg/api":                           10390,
	"pkg/apiserver":                     13605,
	"pkg/backup":                        830,
	"pkg/balancer":                      290,
	"pkg/cluster":                       2200,
	"pkg/controllers":                   12250,
	"pkg/ctl":                           1350,
	"pkg/daemon":                        700,
	"pkg/features":                      180,
	"pkg/follow":                        210,
	"pkg/ingress":                       890,
	"pkg/kubelet":                       16785,
	"pkg/machine":                       5615,
	"pkg/netpolicy":                     1040,
	"pkg/network":                       1300,
	"pkg/pki":                           195,
	"pkg/provision":                     866,
	"pkg/proxy":                         2360,
	"pkg/quota":                         330,
	"pkg/relay":                         220,
	"pkg/scheduler":                     6560,
	"staging/src/keelson.dev/apiserver": 14250,
	"test/bench":                        800,
	"test/conformance":                  790,
	"test/csi":                          620,
	"test/images":                       260,
	"test/machines":                     420,
	"test/soak":                         280,
}

// small is the budget of a room that is not in the map budget.
const small = 150

// TestBudget checks that no room exceeds its budget, so that code grows only after a decision.
func TestBudget(t *testing.T) {
	have := map[string]int{}
	for _, f := range sources(t) {
		if !f.test() {
			have[room(f.path)] += statements(f.ast)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(have)) {
		allowed, listed := budget[r]
		if !listed {
			allowed = small
		}
		if have[r] > allowed {
			t.Errorf("%s has %d statements, more than its budget of %d. First look for code that can go. If the "+
				"growth is worth it, raise the number in test/arch/budget_test.go, in a commit that says what "+
				"users or maintainers get for it", r, have[r], allowed)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(budget)) {
		if have[r] <= small {
			t.Errorf("%s has %d statements: it needs no line in test/arch/budget_test.go", r, have[r])
		}
	}
}

// statements returns the number of statements in a file. It does not count blocks, labels and empty
// statements, because they do nothing themselves.
func statements(f *ast.File) int {
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.BlockStmt, *ast.LabeledStmt, *ast.EmptyStmt:
		case ast.Stmt:
			n++
		}
		return true
	})
	return n
}

func TestStatements(t *testing.T) {
	const text = `package p
func f(a int) int {
	if a > 1 { // 1
		return a // 2
	}
	for i := range a { // 3
		a += i // 4
	}
	switch a { // 5
	case 1: // 6
		return 0 // 7
	}
	x := func() { a++ } // 8, 9
	x() // 10
	return a // 11
}
var table = map[string]int{"one": 1}
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := statements(f); got != 11 {
		t.Errorf("%d statements, want 11", got)
	}
}
