// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the counts in testdata to what the tree has now")

// room returns the part of the tree that a file belongs to: a directory such as
// pkg/kubelet, a staging module, or a directory at the root.
func room(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	depth := 1
	switch parts[0] {
	case "pkg", "test":
		depth = 2
	case "staging":
		depth = 4
	}
	return strings.Join(parts[:min(depth, len(parts))], "/")
}

func TestRoom(t *testing.T) {
	for file, want := range map[string]string{
		"pkg/kubelet/volume/manager.go":                 "pkg/kubelet",
		"pkg/kubelet/kubelet.go":                        "pkg/kubelet",
		"staging/src/keelson.dev/api/clock/clock.go":    "staging/src/keelson.dev/api",
		"staging/src/keelson.dev/scheduling/numbers.go": "staging/src/keelson.dev/scheduling",
		"cmd/ctl/main.go":                               "cmd",
		"test/e2e/doc.go":                               "test/e2e",
		"docs/decisions/streams.md":                     "docs",
		"README.md":                                     ".",
	} {
		if got := room(file); got != want {
			t.Errorf("room(%q) = %q, want %q", file, got, want)
		}
	}
}

// ratchet compares findings, counted by room, with the counts in testdata/name. A room may have
// fewer than its count, never more. -update lowers the counts; it raises none.
func ratchet(t *testing.T, name string, findings map[string][]string) {
	t.Helper()
	file := path.Join("testdata", name)
	allowed := readCounts(t, file)
	for _, r := range slices.Sorted(maps.Keys(findings)) {
		found := findings[r]
		if len(found) <= allowed[r] {
			continue
		}
		t.Errorf("%s: %d findings, at most %d are allowed (%s); correct the new ones among:\n\t%s",
			r, len(found), allowed[r], file, strings.Join(found, "\n\t"))
	}
	if !*update {
		return
	}
	var out strings.Builder
	for _, r := range slices.Sorted(maps.Keys(allowed)) {
		if n := min(allowed[r], len(findings[r])); n > 0 {
			fmt.Fprintf(&out, "%s %d\n", r, n)
		}
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readCounts reads lines of a room and a count.
func readCounts(t *testing.T, file string) map[string]int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &r, &n); err != nil {
			t.Fatalf("%s: %q: %v", file, lines.Text(), err)
		}
		counts[r] = n
	}
	return counts
}

// byRoom groups findings, each of which begins with the path of a file.
func byRoom(findings []finding) map[string][]string {
	slices.SortFunc(findings, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
	})
	out := map[string][]string{}
	for _, f := range findings {
		out[room(f.path)] = append(out[room(f.path)], fmt.Sprintf("%s:%d: %s", f.path, f.line, f.what))
	}
	return out
}

// finding is something at a line of a file that a rule rejects.
type finding struct {
	path string
	line int
	what string
}
