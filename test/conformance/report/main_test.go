// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func spec(text string, state types.SpecState, labels ...string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: text, LeafNodeLabels: labels, State: state}
}

func TestSummary(t *testing.T) {
	cut := spec("[sig-node] Pods stop", types.SpecStateTimedout, "Conformance")
	cut.Failure.Message = "A suite timeout occurred"
	reports := []types.Report{{SpecReports: types.SpecReports{
		spec("[sig-apps] Deployment rolls", types.SpecStatePassed, "Conformance"),
		spec("[sig-apps] Deployment deletes", types.SpecStateFailed, "Conformance"),
		spec("[sig-apps] Job runs", types.SpecStateTimedout, "Conformance"),
		spec("[sig-node] Pods start", types.SpecStateSkipped, "Conformance"),
		spec("[sig-node] Pods dance", types.SpecStatePassed),
		cut,
	}}}
	s, err := summarize(reports, "", conformance)
	if err != nil {
		t.Fatal(err)
	}
	text := s.markdown("", "a cluster")
	for _, want := range []string{"| sig-apps | 1 | 2 | 0 | 3 |", "| sig-node | 0 | 0 | 2 | 2 |",
		"| **all** | 1 | 2 | 2 | 5 |", "- [sig-apps] Job runs", "- [sig-node] Pods start", "- [sig-node] Pods stop"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if s, err = summarize(reports, "Deployment", conformance); err != nil || s.bySIG["sig-apps"].total != 2 ||
		s.bySIG["sig-node"] != nil {
		t.Errorf("with a focus: %+v, %v", s, err)
	}
	why := &summary{bySIG: map[string]*count{}, failed: []string{"[sig-network] Networking should check kube-proxy urls"}}
	if text := why.markdown("", ""); !strings.Contains(text, "kube-proxy urls: in clusters of `ctl cluster`, the proxy") {
		t.Errorf("no reason in\n%s", text)
	}
	left, known := spec("[sig-storage] Volumes on ext4", types.SpecStateSkipped, "Conformance"),
		spec("[sig-network] DNS [Provider:GCE]", types.SpecStateSkipped, "Conformance")
	left.Failure.Message, known.Failure.Message = "Driver d doesn't support ext4 -- skipping", "Only for GCE -- skipping"
	if s, err = summarize([]types.Report{{SpecReports: types.SpecReports{left, known}}}, "", conformance); err != nil {
		t.Fatal(err)
	}
	if text := s.markdown("", ""); !strings.Contains(text, "| sig-storage | 0 | 0 | 1 | 1 |") ||
		!strings.Contains(text, "### Skipped by the suite itself\n\n- 1: Driver d doesn't support ext4\n") ||
		!strings.Contains(text, "### Not run\n\n- [sig-network] DNS [Provider:GCE]: only for Google's cloud\n") {
		t.Errorf("of specs that the suite leaves out:\n%s", text)
	}
	if s, err = summarize(reports, "", "!Conformance"); err != nil || s.bySIG["sig-node"].passed != 1 ||
		s.bySIG["sig-apps"] != nil {
		t.Errorf("without the suite's own: %+v, %v", s, err)
	}
}

func TestSectionsAreReplaced(t *testing.T) {
	file := replace("", "Full run", "one")
	file = replace(file, "Focused run", "two")
	file = replace(file, "Full run", "three")
	file = replace(file, beyond, "four")
	file = strings.Replace(file, head, "# A title\n\nA paragraph.\n", 1)
	file = replace(file, "Full run", "three")
	if !strings.HasPrefix(file, "# A title\n\nA paragraph.\n\n## Full run\n") || strings.Contains(file, "one") ||
		!strings.Contains(file, "## Full run\n\nthree\n") ||
		!strings.Contains(file, "## Focused run\n\ntwo\n") ||
		!strings.Contains(file, "## Beyond Conformance\n\nfour\n") {
		t.Errorf("got\n%s", file)
	}
}

func save(t *testing.T, specs ...types.SpecReport) string {
	t.Helper()
	data, err := json.Marshal([]types.Report{{SpecReports: specs}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPlan checks that all shares together contain each spec exactly once, that specs which have
// passed are omitted, and that the expression matches no other names.
func TestPlan(t *testing.T) {
	var all []types.SpecReport
	for i := range 50 {
		all = append(all, spec(fmt.Sprintf("[sig-node] Pods (%d)", i), types.SpecStatePassed, conformance))
	}
	dry := save(t, append(all, spec("[sig-node] Pods beyond", types.SpecStateSkipped))...)
	planned := func(args ...string) map[string]bool {
		t.Helper()
		var out bytes.Buffer
		if err := run(append([]string{"plan", "-in", dry}, args...), &out); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		re := regexp.MustCompile(strings.TrimSpace(out.String()))
		found := map[string]bool{}
		for _, s := range append(all, spec("[sig-node] Pods beyond", 0), spec("[sig-node] Pods (1) again", 0)) {
			if re.MatchString("Kubernetes e2e suite " + s.FullText()) {
				found[s.FullText()] = true
			}
		}
		return found
	}
	if got := planned(); len(got) != len(all) || got["[sig-node] Pods beyond"] {
		t.Errorf("all: %d", len(got))
	}
	seen := map[string]bool{}
	for i := 1; i <= 3; i++ {
		got := planned("-share", fmt.Sprintf("%d/3", i))
		if len(got) < 5 || len(got) > 30 {
			t.Errorf("share %d of 3 has %d of %d", i, len(got), len(all))
		}
		for name := range got {
			if seen[name] {
				t.Errorf("%s is in two shares", name)
			}
			seen[name] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("all shares together: %d of %d", len(seen), len(all))
	}
	failed := all[1]
	failed.State = types.SpecStateFailed
	if got := planned("-done", save(t, append([]types.SpecReport{all[0], failed}, all[4:]...)...)); len(
		got) != 3 || got[all[0].FullText()] || !got[failed.FullText()] {
		t.Errorf("after a run: %v", got)
	}
	for _, bad := range [][]string{{"-share", "4/3"}, {"-share", "0/3"}, {"-share", "x"}, {"-focus", "("},
		{"-focus", "nothing like it"}} {
		if err := run(append([]string{"plan", "-in", dry}, bad...), &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestWriteMerges checks that a spec which did not run in one report gets its result from another
// report, and that a spec without a result is an error.
func TestWriteMerges(t *testing.T) {
	out := filepath.Join(t.TempDir(), "conformance.md")
	first := save(t, spec("[sig-node] a", types.SpecStatePassed, conformance),
		spec("[sig-node] b", types.SpecStateFailed, conformance),
		spec("[sig-node] c", types.SpecStateInterrupted, conformance))
	second := save(t, spec("[sig-node] a", types.SpecStateSkipped, conformance),
		spec("[sig-node] b", types.SpecStatePassed, conformance), spec("[sig-node] c", types.SpecStatePassed, conformance))
	if err := run([]string{"write", "-in", first, "-out", out}, nil); err == nil {
		t.Error("a run that was cut is called complete")
	}
	if err := run([]string{"write", "-in", first + "," + second, "-out", out}, nil); err != nil {
		t.Error(err)
	}
	planned := filepath.Join(t.TempDir(), "plan")
	if err := os.WriteFile(planned, []byte("(\\[sig-node\\] a)$\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"write", "-in", first, "-out", filepath.Join(t.TempDir(), "share.md"), "-plan",
		planned}, nil); err != nil {
		t.Errorf("of a share all of whose specs passed: %v", err)
	}
	flake := spec("[sig-node] d", types.SpecStatePassed, conformance)
	if flake.NumAttempts = 2; run([]string{"write", "-in", save(t, flake), "-out", out, "-title", "Flaky"}, nil) != nil {
		t.Error("a spec that passed at a second attempt is an error")
	}
	if text, err := os.ReadFile(out); err != nil ||
		!strings.Contains(string(text), "### Passed at another attempt\n\n- [sig-node] d") {
		t.Errorf("the second attempt is not told: %v\n%s", err, text)
	}
	if text, err := os.ReadFile(out); err != nil ||
		!strings.Contains(string(text), "| **all** | 3 | 0 | 0 | 3 |") || strings.Contains(string(text), "Failed") {
		t.Errorf("%v\n%s", err, text)
	}
}
