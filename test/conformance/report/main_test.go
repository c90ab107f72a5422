// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	for _, want := range []string{"| sig-apps | 1 | 2 | 0 | 3 |", "| sig-node | 0 | 0 | 2 | 2 |", "| **all** | 1 | 2 | 2 | 5 |", "- [sig-apps] Job runs", "- [sig-node] Pods start", "- [sig-node] Pods stop"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if s, err = summarize(reports, "Deployment", conformance); err != nil || s.bySIG["sig-apps"].total != 2 || s.bySIG["sig-node"] != nil {
		t.Errorf("with a focus: %+v, %v", s, err)
	}
	why := &summary{bySIG: map[string]*count{}, failed: []string{"[sig-network] Networking should check kube-proxy urls"}}
	if text := why.markdown("", ""); !strings.Contains(text, "kube-proxy urls: the proxy's metrics are by TLS") {
		t.Errorf("no reason in\n%s", text)
	}
	if s, err = summarize(reports, "", "!Conformance"); err != nil || s.bySIG["sig-node"].passed != 1 || s.bySIG["sig-apps"] != nil {
		t.Errorf("without the suite's own: %+v, %v", s, err)
	}
}

func TestSectionsAreReplaced(t *testing.T) {
	file := replace("", "Full run", "one")
	file = replace(file, "Focused run", "two")
	file = replace(file, "Full run", "three")
	file = replace(file, beyond, "four")
	if strings.Contains(file, "one") || !strings.Contains(file, "## Full run\n\nthree\n") || !strings.Contains(file, "## Focused run\n\ntwo\n") ||
		!strings.Contains(file, "## Beyond Conformance\n\nfour\n") {
		t.Errorf("got\n%s", file)
	}
}
