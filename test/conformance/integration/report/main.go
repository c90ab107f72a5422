// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command report reads what "go test -json" printed for Kubernetes' integration tests.
//
//	report -logs DIR -known FILE [-out FILE]
//
// DIR has a file for each package. Its name is the path of the package below test/integration, with +
// in place of /, and the extension .json.
//
// The command prints the number of tests of each package by result, and the failures. It ends with an
// error if a test failed that the file of known failures does not list, if a package did not compile
// or did not end, or if no test ran. A test with subtests is counted only if it failed and no subtest
// did, because it fails whenever a subtest does.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"keelson.dev/keelson/test/conformance/integration/server"
)

// The results of a test.
const (
	passed        = "passed"
	failed        = "failed"
	known         = "known"
	skipped       = "skipped"
	notApplicable = "not applicable"
)

func main() {
	logs := flag.String("logs", "", "directory with the output of go test -json for each package")
	known := flag.String("known", "", "file with the failures that are expected, and their reasons")
	out := flag.String("out", "", "file to which the table of results is written")
	flag.Parse()
	if err := run(*logs, *known, *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run reads the files and prints the report.
func run(logs, known, out string, w io.Writer) error {
	rules, err := readRules(known)
	if err != nil {
		return err
	}
	packages, err := readLogs(logs)
	if err != nil {
		return err
	}
	for _, p := range packages {
		p.apply(rules)
	}
	text := table(packages)
	if out != "" {
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			return err
		}
	}
	fmt.Fprint(w, text)
	return verdict(packages)
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

// pkg is a package of tests.
type pkg struct {
	name    string
	results map[string]string // by test; only tests without subtests
	reasons map[string]string // of known failures
	// fault says why the package as a whole failed, or is empty.
	fault   string
	seconds float64
}

// readLogs reads the logs of all packages, in the order of the packages' names.
func readLogs(dir string) ([]*pkg, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var packages []*pkg
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".json"), "+", "/")
		p, err := read(name, f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b *pkg) int { return strings.Compare(a.name, b.name) })
	return packages, nil
}

// event is a line of "go test -json".
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// read reads the events of a package. A test that began and has no end failed: the package ended
// before it, by a panic or at the time limit.
func read(name string, r io.Reader) (*pkg, error) {
	p := &pkg{name: name, results: map[string]string{}, reasons: map[string]string{}}
	inapplicable, end := map[string]bool{}, ""
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // the text of a fatal error
		}
		switch {
		case e.Action == "output" && strings.Contains(e.Output, server.NotApplicable):
			inapplicable[e.Test] = true
		case e.Test == "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
			end, p.seconds = e.Action, e.Elapsed
		case e.Action == "run" || e.Action == "fail":
			p.results[e.Test] = failed
		case e.Action == "pass":
			p.results[e.Test] = passed
		case e.Action == "skip":
			p.results[e.Test] = skipped
		}
	}
	p.dropParents()
	for test, result := range p.results {
		if result == failed && inapplicable[test] {
			p.results[test] = notApplicable
		}
	}
	switch {
	case end == "":
		p.fault = "did not end"
	case end == "fail" && p.count(failed)+p.count(notApplicable) == 0:
		p.fault = "failed outside of its tests, or did not compile"
	}
	return p, nil
}

// dropParents removes the results of tests with subtests. It keeps a failure if no subtest failed.
func (p *pkg) dropParents() {
	parents := map[string]bool{} // whether a subtest failed
	for test, result := range p.results {
		for i, c := range test {
			if c == '/' {
				parents[test[:i]] = parents[test[:i]] || result == failed
			}
		}
	}
	for parent, explained := range parents {
		if explained || p.results[parent] != failed {
			delete(p.results, parent)
		}
	}
}

// apply marks the failures that a rule lists as known.
func (p *pkg) apply(rules []rule) {
	for test, result := range p.results {
		if result != failed {
			continue
		}
		for _, r := range rules {
			if r.name.MatchString(p.name + "/" + test) {
				p.results[test], p.reasons[test] = known, r.reason
				break
			}
		}
	}
}

// count returns the number of tests with a result.
func (p *pkg) count(result string) int {
	n := 0
	for _, r := range p.results {
		if r == result {
			n++
		}
	}
	return n
}

// table returns the results as Markdown: a row for each package, then the failures with their reasons.
func table(packages []*pkg) string {
	var b, failures strings.Builder
	b.WriteString("| package | passed | failed | known | not applicable | skipped by Kubernetes | seconds |\n" +
		"|---|---|---|---|---|---|---|\n")
	columns := []string{passed, failed, known, notApplicable, skipped}
	row := func(name string, seconds float64, packages ...*pkg) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range columns {
			n := 0
			for _, p := range packages {
				n += p.count(c)
			}
			fmt.Fprintf(&b, " %d |", n)
		}
		fmt.Fprintf(&b, " %.0f |\n", seconds)
	}
	seconds := 0.0
	for _, p := range packages {
		row("`"+p.name+"`", p.seconds, p)
		seconds += p.seconds
		failures.WriteString(p.failures())
		if p.fault != "" {
			fmt.Fprintf(&failures, "- `%s`: **%s**\n", p.name, p.fault)
		}
	}
	row("**all**", seconds, packages...)
	if failures.Len() > 0 {
		b.WriteString("\nFailed tests:\n\n" + failures.String())
	}
	return b.String()
}

// failures returns the failed tests as entries of a list. Those with the same reason are one entry.
func (p *pkg) failures() string {
	var b strings.Builder
	listed := map[string]bool{}
	for _, test := range slices.Sorted(maps.Keys(p.results)) {
		reason := p.reasons[test]
		switch {
		case p.results[test] == failed:
			fmt.Fprintf(&b, "- `%s/%s`: **not known**\n", p.name, test)
		case p.results[test] == known && !listed[reason]:
			listed[reason] = true
			fmt.Fprintf(&b, "- `%s/%s`", p.name, test)
			n := -1
			for _, r := range p.reasons {
				if r == reason {
					n++
				}
			}
			if n > 0 {
				fmt.Fprintf(&b, " and %d more", n)
			}
			fmt.Fprintf(&b, ": %s\n", reason)
		}
	}
	return b.String()
}

// verdict returns an error if there was a failure that is not known, or no test at all.
func verdict(packages []*pkg) error {
	tests := 0
	var unknown []string
	for _, p := range packages {
		tests += len(p.results)
		if p.fault != "" {
			unknown = append(unknown, p.name)
		}
		for _, test := range slices.Sorted(maps.Keys(p.results)) {
			if p.results[test] == failed {
				unknown = append(unknown, p.name+"/"+test)
			}
		}
	}
	switch {
	case len(unknown) > 0:
		return fmt.Errorf("%d unknown failures: %s", len(unknown), strings.Join(unknown, ", "))
	case tests == 0:
		return errors.New("no test ran")
	}
	return nil
}
