// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// idioms has phrases that are hard to understand, each with the words to use instead. The words of
// a phrase may be on two lines of a comment.
var idioms = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\btell(s|ing)?\s+(whether|if)\b`), "report whether"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were|be|been|being|gets?|got)\s+told\b`), "report, return or log"},
	{regexp.MustCompile(`(?i)\bjudg(e|es|ed|ing)\b`), "check, evaluate, decide"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bwho(m)?ever\b`), "name the actor: the caller, a client, the kubelet"},
	{regexp.MustCompile(`(?i)\bthat\s+which\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\bof\s+which\b`), "two sentences, or whose"},
	{regexp.MustCompile(`(?:^|[.:;!?]\s+)Who\s[^.?]*`), "name the actor: callers that, a client that"},
}

// stems has substrings such that each idiom contains at least one of them.
var stems = []string{"tell", "told", "judg", "anew", "who", "which"}

// quantity matches a word that may come before "of which", as in "each of which".
var quantity = regexp.MustCompile(
	`(?i)(?:\b(?:all|any|both|each|either|few|half|last|first|many|most|much|neither|none|one|part|` +
		`some|two|three|four|five|six|newest|oldest|rest)|\d)\s+$`)

// findIdioms returns the byte offset of each idiom in text and the words to use instead.
func findIdioms(text string) map[int]string {
	out := map[int]string{}
	lower := strings.ToLower(text)
	if !slices.ContainsFunc(stems, func(stem string) bool { return strings.Contains(lower, stem) }) {
		return out // skip the patterns, which are slow; most texts contain none of the stems
	}
	for _, idiom := range idioms {
		for _, at := range idiom.pattern.FindAllStringIndex(text, -1) {
			found, start := text[at[0]:at[1]], at[0]
			switch {
			case strings.EqualFold(strings.Join(strings.Fields(found), " "), "of which"):
				if quantity.MatchString(text[:start]) {
					continue
				}
			case strings.Contains(found, "Who "):
				if strings.HasPrefix(text[at[1]:], "?") {
					continue // the word is allowed at the beginning of a question
				}
				start += strings.Index(found, "Who")
				found = "Who"
			}
			out[start] = strconv.Quote(strings.Join(strings.Fields(found), " ")) + ": say instead: " + idiom.instead
		}
	}
	return out
}

func TestFindIdioms(t *testing.T) {
	for text, want := range map[string]int{
		"doomed tells whether a pod was marked.":              1,
		"It can tell if the pod runs.":                        1,
		"The caller is told that it waits.":                   1,
		"The caller is\ntold that it waits.":                  1,
		"on judges a node.":                                   1,
		"Judging by its name":                                 1,
		"the judge of a race":                                 1,
		"It is made anew.":                                    1,
		"whoever started it joins it":                         1,
		"that which is left":                                  1,
		"a call of which nobody knows the end":                1,
		"lines, each of which ends in a newline":              0,
		"20 of which are deleted":                             0,
		"Who asks for a kind gets that.":                      1,
		"It waits. Who asks gets that.":                       1,
		"Wait: Who asks gets that, and whoever reads it too.": 2,
		"Who may read metrics?":                               0,
		"the user who asks":                                   0,
		"reports whether a pod is deleted":                    0,
		"misjudged":                                           0,
	} {
		if got := findIdioms(text); len(got) != want {
			t.Errorf("%q: %v, want %d", text, got, want)
		}
	}
}

// TestIdioms reports phrases that are hard to understand in comments, strings and pages.
func TestIdioms(t *testing.T) {
	add := func(path string, line int, text string) {
		for at, what := range findIdioms(text) {
			t.Errorf("%s:%d: %s", path, line+strings.Count(text[:at], "\n"), what)
		}
	}
	for _, f := range sources(t) {
		if f.path == "test/arch/words_test.go" {
			continue
		}
		for _, group := range f.ast.Comments {
			var text strings.Builder
			for _, c := range group.List {
				text.WriteString(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), " ") + "\n")
			}
			add(f.path, f.line(group), text.String())
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				add(f.path, f.line(s), strings.Trim(s.Value, "\"`"))
			}
			return true
		})
	}
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/reference/") {
			continue // generated from texts that are checked elsewhere, and from Kubernetes' texts
		}
		// Headings are not sentences, so headings such as "Who can do what" are removed.
		add(p.path, 1, heading.ReplaceAllString(p.text, ""))
	}
}

var heading = regexp.MustCompile(`(?m)^#+ .*$`)
