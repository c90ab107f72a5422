// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severity says whether a finding prevents the installation.
type Severity string

// The severities of findings.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is a problem of a machine.
type Finding struct {
	// Check is the name of the check, with which operators ignore its errors. Checks that kubeadm has
	// too have kubeadm's names.
	Check    string
	Severity Severity
	// What is wrong, and what the operator can do about it.
	What, Remedy string
}

// Report prints findings. It returns an error that names the checks whose findings are errors, except
// those that are in ignore. The names in ignore may have capital or small letters; "all" stands for
// all checks.
func Report(out io.Writer, findings []Finding, ignore []string) error {
	ignored := func(check string) bool {
		return slices.ContainsFunc(ignore, func(s string) bool { return strings.EqualFold(s, check) || s == "all" })
	}
	var failed []string
	for _, f := range findings {
		label := string(f.Severity)
		switch {
		case f.Severity == Error && ignored(f.Check):
			label = "ignored"
		case f.Severity == Error && !slices.Contains(failed, f.Check):
			failed = append(failed, f.Check)
		}
		if _, err := fmt.Fprintf(out, "%-8s %s: %s\n         remedy: %s\n", label, f.Check, f.What, f.Remedy); err != nil {
			return err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("preflight checks failed; after you have fixed the causes, run the command again, or ignore them "+
		"with --ignore-preflight-errors=%s", strings.Join(failed, ","))
}
