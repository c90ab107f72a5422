// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command report turns the suite's JSON report into a section of
// docs/conformance.md: a table by SIG, and every spec that did not pass by name.
// The other sections of the file stay.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

const (
	// conformance is the label of the suite's specs.
	conformance = "Conformance"
	// beyond is the title of a section of specs with other labels.
	beyond = "Beyond Conformance"
	// both is the title of a section of specs on a cluster with addresses of both families.
	both = "Beyond Conformance, IPv4 and IPv6"
)

// reasons are why specs fail that cannot pass here, or are not meant to, by a part of their
// names.
var reasons = map[string]string{
	"should check kube-proxy urls": "the proxy's metrics are by TLS, for those who may read them, in clusters of `ctl cluster`",
	"sctp":                         "the kernel here has no SCTP",
	"should forward PTR records lookup to upstream nameserver": "asks a name server of the Internet, and nothing leads out of the cluster",
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run() error {
	in := flag.String("in", "", "JSON report of ginkgo")
	out := flag.String("out", "", "file to write the section into")
	focus := flag.String("focus", "", "regular expression of the specs that were asked for; empty: all")
	labels := flag.String("labels", conformance, "label filter of the specs that were asked for, as ginkgo has it")
	family := flag.String("family", "", "the cluster's addresses, as ctl cluster up has it")
	cluster := flag.String("cluster", "", "what was tested")
	flag.Parse()
	data, err := os.ReadFile(*in)
	if err != nil {
		return err
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil {
		return fmt.Errorf("%s: %w", *in, err)
	}
	s, err := summarize(reports, *focus, *labels)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(*out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	title := "Full run"
	switch {
	case *labels != conformance:
		title = beyond
		if *family == "dual" {
			title = both
		}
		*cluster += fmt.Sprintf("\n\nLabels: `%s`", *labels)
	case *focus != "":
		title = "Focused run"
	}
	return os.WriteFile(*out, []byte(replace(string(before), title, s.markdown(*focus, *cluster))), 0o644)
}

// count is how many specs there were, and how they ended.
type count struct{ passed, failed, total int }

// summary is the outcome by SIG.
type summary struct {
	bySIG  map[string]*count
	failed []string
	missed []string // asked for, and not run to their end
}

var sig = regexp.MustCompile(`\[(sig-[a-z-]+)\]`)

func summarize(reports []types.Report, focus, labels string) (*summary, error) {
	wanted, err := regexp.Compile(focus)
	if err != nil {
		return nil, fmt.Errorf("focus: %w", err)
	}
	labelled, err := types.ParseLabelFilter(labels)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	s := &summary{bySIG: map[string]*count{}}
	for _, r := range reports {
		for i := range r.SpecReports {
			spec := &r.SpecReports[i]
			name := spec.FullText()
			if spec.LeafNodeType != types.NodeTypeIt || !labelled(spec.Labels()) || !wanted.MatchString(name) {
				continue
			}
			s.add(name, ending(spec))
		}
	}
	slices.Sort(s.failed)
	slices.Sort(s.missed)
	return s, nil
}

// ending is how a spec ended; one that was cut by the end of the whole run says
// nothing, and counts as not run.
func ending(spec *types.SpecReport) types.SpecState {
	if spec.State.Is(types.SpecStateInterrupted) || spec.State.Is(types.SpecStateTimedout) && strings.Contains(spec.Failure.Message, "suite timeout") {
		return types.SpecStateSkipped
	}
	return spec.State
}

func (s *summary) add(name string, state types.SpecState) {
	group := "other"
	if m := sig.FindStringSubmatch(name); m != nil {
		group = m[1]
	}
	if s.bySIG[group] == nil {
		s.bySIG[group] = &count{}
	}
	c := s.bySIG[group]
	c.total++
	switch {
	case state.Is(types.SpecStatePassed):
		c.passed++
	case state.Is(types.SpecStateFailureStates):
		c.failed++
		s.failed = append(s.failed, name)
	default:
		s.missed = append(s.missed, name)
	}
}

func (s *summary) markdown(focus, cluster string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", cluster)
	if focus != "" {
		fmt.Fprintf(&b, "Focus: `%s`\n\n", focus)
	}
	b.WriteString("| SIG | passed | failed | not run | total |\n|---|---|---|---|---|\n")
	groups := make([]string, 0, len(s.bySIG))
	for g := range s.bySIG {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	var all count
	for _, g := range groups {
		c := s.bySIG[g]
		row(&b, g, *c)
		all.passed, all.failed, all.total = all.passed+c.passed, all.failed+c.failed, all.total+c.total
	}
	row(&b, "**all**", all)
	list(&b, "Failed", s.failed)
	list(&b, "Not run", s.missed)
	return b.String()
}

func row(b *strings.Builder, name string, c count) {
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d |\n", name, c.passed, c.failed, c.total-c.passed-c.failed, c.total)
}

func list(b *strings.Builder, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n", title)
	for _, n := range names {
		fmt.Fprintf(b, "- %s%s\n", n, reason(n))
	}
}

func reason(name string) string {
	for part, why := range reasons {
		if strings.Contains(name, part) {
			return ": " + why
		}
	}
	return ""
}

const head = `# Conformance

Kubernetes' own Conformance suite, version 1.36.3, unmodified, against a cluster of two nodes that ` + "`make conformance`" + ` makes.
`

// replace puts a section into the file in the place of the one of that title.
func replace(file, title, body string) string {
	sections := map[string]string{}
	for _, part := range strings.Split(file, "\n## ")[min(1, strings.Count(file, "\n## ")):] {
		name, text, ok := strings.Cut(part, "\n")
		if ok {
			sections[name] = strings.TrimSpace(text)
		}
	}
	sections[title] = strings.TrimSpace(body)
	var b strings.Builder
	b.WriteString(head)
	for _, name := range []string{"Full run", beyond, both, "Focused run"} {
		if text, ok := sections[name]; ok {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, text)
		}
	}
	return b.String()
}
