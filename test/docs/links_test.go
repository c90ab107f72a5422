// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	named = regexp.MustCompile(`docs/[a-z0-9/_-]+\.md`)
)

// TestLinks checks that the relative links in pages refer to existing files, and that the pages
// that the source code mentions exist.
func TestLinks(t *testing.T) {
	all := pages(t, "*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "staging/src/keelson.dev/*/*.md")
	for _, p := range all {
		_, text := p.blocks(t)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(p.path), target)); err != nil {
				t.Errorf("%s: the target of the link %s does not exist", p.path, m[1])
			}
		}
	}
	for _, s := range sources(t, "pkg", "staging", "cmd", "hack", "test") {
		for _, group := range s.ast.Comments {
			for _, name := range named.FindAllString(group.Text(), -1) {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s: a comment names %s, which does not exist", s.dir, name)
				}
			}
		}
	}
}

// TestDecisions checks that each numbered decision has a date, a status and an owner, and that the
// index lists it.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root, "docs/decisions/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t, "docs/decisions/[0-9]*.md") {
		for _, field := range []string{"Date: ", "Status: ", "Owner: "} {
			if !strings.Contains(p.text, "\n"+field) {
				t.Errorf("%s has no line %q", p.path, field)
			}
		}
		if name := filepath.Base(p.path); !strings.Contains(string(index), "("+name+")") {
			t.Errorf("the index of decisions does not have %s", name)
		}
	}
}
