// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command report reads the JSON reports that ginkgo writes for Kubernetes' test suite.
//
//	report write -in REPORT[,REPORT] -out FILE [-plan PLAN]
//	report plan -in REPORT [-done REPORT] [-share I/N] [-focus REGEXP]
//
// The command write converts reports to a section of docs/explanation/conformance.md. The section
// has a table by SIG, and the name of each spec that did not pass. The other sections of the file
// are not changed. If a spec has results in several reports, the last result is used.
//
// The command plan prints a regular expression that matches the specs which still must run. It
// takes the specs from the report of a dry run (-in), keeps share I of N, and omits specs that have
// passed in another report (-done).
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

const (
	// conformance is the label of the conformance specs.
	conformance = "Conformance"
	// beyond is the title of the section about specs that do not have this label.
	beyond  = "Beyond Conformance"
	fullRun = "Full run"
)

// nodesInZones is the reason why specs about topology-aware endpoints do not run in a cluster of
// two nodes.
const nodesInZones = "needs three zones with two nodes each, and passes in such a cluster"

// reasons explains why certain specs fail that cannot pass, or need not pass, on the test cluster.
// The key is a part of the spec's name.
var reasons = map[string]string{
	"should check kube-proxy urls": "in clusters of `ctl cluster`, the proxy serves metrics by TLS and only to " +
		"authorized clients",
	"sctp":                        "the kernel of the test machine has no SCTP",
	"Traffic Distribution should": nodesInZones,
	"Topology Hints should":       nodesInZones,
	"HealthCheckNodePort correctly when ExternalTrafficPolicy changes": "needs three nodes, and passes in " +
		"such a cluster",
	"ExternalIP when the external IP is not assigned": "external IPs are denied " +
		"in clusters of `ctl cluster`",
	"[Provider:GCE]": "only for Google's cloud",
	"should modify volumes with a different": "needs volumes that are created before a pod " +
		"uses them, and passes with STORAGE=now",
	"restoring snapshot to larger size pvc": "a volume is a directory, so its size is that " +
		"of its disk; with the driver's present description, the suite skips this spec",
	"storage with any volume data source": "the images of its populator are not " +
		"available on the test machine",
	"should forward PTR records lookup to upstream nameserver": "needs a name server on the Internet, " +
		"and the test cluster has no route to the Internet",
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

var (
	errUsage  = errors.New("the first argument must be write or plan")
	errFailed = errors.New("not all specs passed")
)

func run(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "write":
		return write(args[1:])
	case "plan":
		return plan(args[1:], stdout)
	}
	return errUsage
}

// read reads reports from files. The file names are separated by commas.
func read(files string) ([]types.Report, error) {
	var out []types.Report
	for _, file := range strings.Split(files, ",") {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var reports []types.Report
		if err := json.Unmarshal(data, &reports); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, reports...)
	}
	return out, nil
}

func write(args []string) error {
	flags := flag.NewFlagSet("write", flag.ExitOnError)
	in := flags.String("in", "", "JSON reports of ginkgo, separated by commas")
	out := flags.String("out", "", "file to write the section into")
	focus := flags.String("focus", "", "regular expression of the specs that the run had to include; if empty, all specs")
	planned := flags.String("plan", "", "file with the plan of specs, used instead of -focus")
	labels := flags.String("labels", conformance, "ginkgo's label filter of the specs that the run had to include")
	cluster := flags.String("cluster", "", "description of the tested cluster")
	title := flags.String("title", "", "title of the section; if empty, it is made from the other flags")
	if err := flags.Parse(args); err != nil {
		return err
	}
	reports, err := read(*in)
	if err != nil {
		return err
	}
	counted := *focus
	if *planned != "" {
		text, err := os.ReadFile(*planned)
		if err != nil {
			return err
		}
		counted = strings.TrimSpace(string(text))
	}
	s, err := summarize(reports, counted, *labels)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(*out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	section := fullRun
	switch {
	case *labels != conformance:
		section = beyond
		*cluster += fmt.Sprintf("\n\nGinkgo's label filter: `%s`", *labels)
	case *focus != "":
		section = "Focused run"
	}
	if *title != "" {
		section = *title
	}
	if err := os.WriteFile(*out, []byte(replace(string(before), section, s.markdown(*focus, *cluster))),
		0o644); err != nil {
		return err
	}
	if len(s.failed)+len(s.missed) > 0 {
		return fmt.Errorf("%w: %d failed, %d did not run", errFailed, len(s.failed), len(s.missed))
	}
	return nil
}

// count has the total number of specs, and the numbers of specs that passed and that failed.
type count struct{ passed, failed, total int }

// summary has the results of the specs, by SIG.
type summary struct {
	bySIG  map[string]*count
	failed []string
	missed []string // specs that should have run but did not complete
	// left has the numbers of specs that the test suite itself skipped, by the suite's reason.
	left   map[string]int
	flaked []string // specs that passed only after a failed attempt
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
	s := &summary{bySIG: map[string]*count{}, left: map[string]int{}}
	for name, o := range outcomes(reports, func(spec *types.SpecReport) bool {
		return labelled(spec.Labels()) && wanted.MatchString(spec.FullText())
	}) {
		s.add(name, o)
	}
	slices.Sort(s.flaked)
	slices.Sort(s.failed)
	slices.Sort(s.missed)
	return s, nil
}

// outcome is the result of a spec.
type outcome struct {
	types.SpecState
	again bool   // the spec was run more than once
	why   string // reason with which the test suite skipped the spec
}

// outcomes returns the results of the specs for which wanted returns true, by name. If a spec has
// results in several reports, the last result is used; a report in which the spec did not run is
// ignored.
func outcomes(reports []types.Report, wanted func(*types.SpecReport) bool) map[string]outcome {
	out := map[string]outcome{}
	for _, r := range reports {
		for i := range r.SpecReports {
			spec := &r.SpecReports[i]
			if spec.LeafNodeType != types.NodeTypeIt || !wanted(spec) {
				continue
			}
			name, o := spec.FullText(), outcome{SpecState: ending(spec), again: spec.NumAttempts > 1}
			if spec.State.Is(types.SpecStateSkipped) {
				o.why = strings.TrimSpace(spec.Failure.Message)
			}
			if before, ok := out[name]; !ok || before.Is(notRun) || !o.Is(notRun) {
				out[name] = o
			}
		}
	}
	return out
}

// notRun is the set of states in which a spec has no result.
const notRun = types.SpecStateSkipped | types.SpecStatePending

// ending returns the state in which a spec ended. A spec that was interrupted because the whole run
// ended counts as not run.
func ending(spec *types.SpecReport) types.SpecState {
	if spec.State.Is(types.SpecStateInterrupted) || spec.State.Is(types.SpecStateTimedout) &&
		strings.Contains(spec.Failure.Message, "suite timeout") {
		return types.SpecStateSkipped
	}
	return spec.State
}

func (s *summary) add(name string, o outcome) {
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
	case o.Is(types.SpecStatePassed):
		c.passed++
		if o.again {
			s.flaked = append(s.flaked, name)
		}
	case o.Is(types.SpecStateFailureStates):
		c.failed++
		s.failed = append(s.failed, name)
	case o.why != "" && reason(name) == "":
		s.left[strings.TrimRight(strings.TrimSuffix(o.why, "skipping"), " -")]++
	default:
		s.missed = append(s.missed, name)
	}
}

func (s *summary) markdown(focus, cluster string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", cluster)
	if focus != "" {
		fmt.Fprintf(&b, "Ginkgo's focus: `%s`\n\n", focus)
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
	list(&b, "Passed at another attempt", s.flaked)
	list(&b, "Not run", s.missed)
	if len(s.left) > 0 {
		b.WriteString("\n### Skipped by the suite itself\n\n")
	}
	for _, why := range slices.Sorted(maps.Keys(s.left)) {
		fmt.Fprintf(&b, "- %d: %s\n", s.left[why], why)
	}
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

// head begins a new file. A file that exists keeps its own beginning.
const head = `# Conformance

For readers who want to know which of Kubernetes' own tests pass in Keelson clusters.
`

// replace returns the file with the section of this title replaced, or added if it does not exist.
// What precedes the first section is kept.
func replace(file, title, body string) string {
	sections := map[string]string{}
	parts := strings.Split(file, "\n## ")
	for _, part := range parts[1:] {
		name, text, ok := strings.Cut(part, "\n")
		if ok {
			sections[name] = strings.TrimSpace(text)
		}
	}
	sections[title] = strings.TrimSpace(body)
	var b strings.Builder
	b.WriteString(cmp.Or(parts[0], head))
	names := slices.Sorted(maps.Keys(sections))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	for _, name := range names {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, sections[name])
	}
	return b.String()
}

// place returns the position of a section, by which sections are sorted. The section of the full
// run comes first.
func place(title string) int {
	if title == fullRun {
		return 0
	}
	return 1
}
