// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestColumns checks that no line of code or prose is wider than 120 characters. Exceptions are
// tables and code blocks in pages, string literals of several lines, and lines without a space,
// such as links.
func TestColumns(t *testing.T) {
	const most = 120
	wide := func(line string) bool {
		return utf8.RuneCountInString(line) > most && strings.ContainsAny(strings.TrimSpace(line), " \t")
	}
	add := func(path string, line int, text string) {
		if wide(text) {
			t.Errorf("%s:%d: %d columns, more than %d", path, line, utf8.RuneCountInString(text), most)
		}
	}
	for _, f := range sources(t) {
		data := literalLines(f)
		for n, line := range strings.Split(f.text, "\n") {
			if !data[n+1] {
				add(f.path, n+1, line)
			}
		}
	}
	for _, p := range pages(t) {
		code := false
		for n, line := range strings.Split(p.text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if p.script() || !code && !strings.HasPrefix(line, "|") {
				add(p.path, n+1, line)
			}
		}
	}
}

// literalLines returns the numbers of the lines of a file that are inside string literals of
// several lines.
func literalLines(f *file) map[int]bool {
	out := map[int]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, "\n") {
			for i := range strings.Count(s.Value, "\n") + 1 {
				out[f.line(s)+i] = true
			}
		}
		return true
	})
	return out
}
