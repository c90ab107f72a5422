// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command report reads what "go test -json" printed for Kubernetes' integration tests.
//
//	report -log FILE -known FILE [-out FILE]
//
// It prints the number of tests of each package by result, and the failures. It ends with an error if
// a test failed that the file of known failures does not list, if a package did not compile, or if no
// test ran. Only tests without subtests are counted, because the others fail whenever a subtest does.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"keelson.dev/keelson/test/conformance/integration/server"
)

// prefix begins the import paths of the tests' packages.
const prefix = "k8s.io/kubernetes/test/integration/"

// The results of a test.
const (
	passed        = "passed"
	failed        = "failed"
	skipped       = "skipped"
	notApplicable = "not applicable"
)

func main() {
	log := flag.String("log", "", "file with the output of go test -json")
	known := flag.String("known", "", "file with the failures that are expected, and their reasons")
	out := flag.String("out", "", "file to which the table of results is written")
	flag.Parse()
	if err := run(*log, *known, *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run reads the files and prints the report.
func run(log, known, out string, w io.Writer) error {
	rules, err := readRules(known)
	if err != nil {
		return err
	}
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := read(f)
	if err != nil {
		return err
	}
	table := results.table(rules)
	if out != "" {
		if err := os.WriteFile(out, []byte(table), 0o600); err != nil {
			return err
		}
	}
	fmt.Fprint(w, table)
	return results.verdict(rules)
}

// rule is a line of the file of known failures: a regular expression of "package/Test/subtest", a tab,
// and the reason.
type rule struct {
	name   *regexp.Regexp
	reason string
}

// readRules reads the file of known failures. Lines that begin with # are comments.
func readRules(file string) ([]rule, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rules []rule
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("%s: line without a tab and a reason: %s", file, line)
		}
		re, err := regexp.Compile("^(?:" + name + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rules = append(rules, rule{re, strings.TrimSpace(reason)})
	}
	return rules, nil
}

// reasonOf returns the reason why a test is expected to fail, or "".
func reasonOf(rules []rule, name string) string {
	for _, r := range rules {
		if r.name.MatchString(name) {
			return r.reason
		}
	}
	return ""
}

// results are the results of all tests.
type results struct {
	tests  map[string]map[string]string // result by package and test
	broken []string                     // packages that failed without a failed test
}

// event is a line of "go test -json".
type event struct{ Action, Package, ImportPath, Test, Output string }

// read reads the events of a run.
func read(r io.Reader) (*results, error) {
	all, inapplicable := &results{tests: map[string]map[string]string{}}, map[string]bool{}
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // the text of a fatal error
		}
		pkg := strings.TrimPrefix(e.Package, prefix)
		key := pkg + "/" + e.Test
		switch e.Action {
		case "output":
			if strings.Contains(e.Output, server.NotApplicable) {
				inapplicable[key] = true
			}
		case "pass", "fail", "skip":
			all.add(pkg, e.Test, e.Action, inapplicable[key])
		}
	}
}

// add records the end of a test or, if test is empty, of a package.
func (r *results) add(pkg, test, action string, inapplicable bool) {
	if r.tests[pkg] == nil {
		r.tests[pkg] = map[string]string{}
	}
	tests := r.tests[pkg]
	if test == "" {
		if action == "fail" && !slices.Contains(slices.Collect(maps.Values(tests)), failed) &&
			!slices.Contains(slices.Collect(maps.Values(tests)), notApplicable) {
			r.broken = append(r.broken, pkg)
		}
		return
	}
	for name := range tests {
		if strings.HasPrefix(name, test+"/") && tests[name] != "" {
			return // it has subtests, which have ended before it
		}
	}
	switch {
	case action == "pass":
		tests[test] = passed
	case action == "skip":
		tests[test] = skipped
	case inapplicable:
		tests[test] = notApplicable
	default:
		tests[test] = failed
	}
}

// table returns the results as Markdown: a row for each package, then the failures with their reasons.
func (r *results) table(rules []rule) string {
	var b, failures strings.Builder
	b.WriteString("| package | passed | failed | not applicable | skipped by Kubernetes |\n|---|---|---|---|---|\n")
	total := map[string]int{}
	for _, pkg := range slices.Sorted(maps.Keys(r.tests)) {
		count := map[string]int{}
		for _, name := range slices.Sorted(maps.Keys(r.tests[pkg])) {
			result := r.tests[pkg][name]
			count[result]++
			total[result]++
			if result == failed {
				fmt.Fprintf(&failures, "- `%s/%s`: %s\n", pkg, name, cmp.Or(reasonOf(rules, pkg+"/"+name), "**not known**"))
			}
		}
		fmt.Fprintf(&b, "| `%s` | %d | %d | %d | %d |\n", pkg, count[passed], count[failed], count[notApplicable],
			count[skipped])
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d | %d |\n", total[passed], total[failed], total[notApplicable], total[skipped])
	for _, pkg := range r.broken {
		fmt.Fprintf(&failures, "- `%s`: ended with an error outside of its tests, or did not compile\n", pkg)
	}
	if failures.Len() > 0 {
		b.WriteString("\nFailed tests:\n\n" + failures.String())
	}
	return b.String()
}

// verdict returns an error if there was a failure that the rules do not list, or no test at all.
func (r *results) verdict(rules []rule) error {
	count, unknown := 0, slices.Clone(r.broken)
	for pkg, tests := range r.tests {
		for name, result := range tests {
			count++
			if result == failed && reasonOf(rules, pkg+"/"+name) == "" {
				unknown = append(unknown, pkg+"/"+name)
			}
		}
	}
	slices.Sort(unknown)
	switch {
	case len(unknown) > 0:
		return fmt.Errorf("%d unknown failures: %s", len(unknown), strings.Join(unknown, ", "))
	case count == 0:
		return errors.New("no test ran")
	}
	return nil
}
