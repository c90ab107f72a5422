// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestColumns: no line of code or prose is wider than 120 characters. Tables and code in pages may
// be, and so may lines without a space, such as links.
func TestColumns(t *testing.T) {
	const most = 120
	var all []finding
	wide := func(line string) bool {
		return utf8.RuneCountInString(line) > most && strings.ContainsAny(strings.TrimSpace(line), " \t")
	}
	add := func(path string, line int, text string) {
		if wide(text) {
			all = append(all, finding{path, line, fmt.Sprintf("%d columns", utf8.RuneCountInString(text))})
		}
	}
	for _, f := range sources(t) {
		for n, line := range strings.Split(f.text, "\n") {
			add(f.path, n+1, line)
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
	ratchet(t, "columns.txt", byRoom(all))
}
