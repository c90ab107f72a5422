// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityClaims checks the section "Who can do what" in docs/explanation/security.md: each
// line must name tests, and the named packages must contain these tests.
func TestSecurityClaims(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/explanation/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Who can do what\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("no section of claims")
	}
	declared := map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test() {
				declared[f.dir()+"."+fn.Name.Name] = true
			}
		}
	}
	name := regexp.MustCompile("`(Test\\w+)`")
	group := regexp.MustCompile(`([^()]*)\(([\w./-]+)\)`)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 || strings.TrimSpace(cells[1]) == "" || strings.HasPrefix(cells[1], "---") {
			continue
		}
		if strings.TrimSpace(cells[2]) == "tests" {
			continue
		}
		groups := group.FindAllStringSubmatch(cells[2], -1)
		if len(groups) == 0 {
			t.Errorf("no test: %s", cells[1])
		}
		for _, g := range groups {
			for _, n := range name.FindAllStringSubmatch(g[1], -1) {
				if !declared[g[2]+"."+n[1]] {
					t.Errorf("%s has no %s: %s", g[2], n[1], cells[1])
				}
			}
		}
	}
}
