// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

var (
	errShare = errors.New("want I/N with 1 <= I <= N")
	errNone  = errors.New("no spec is left to be run")
)

// plan prints a regular expression for the specs that still must run.
func plan(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("plan", flag.ExitOnError)
	in := flags.String("in", "", "JSON report of a dry run")
	done := flags.String("done", "", "JSON reports of runs whose passed specs are left out, separated by commas")
	part := flags.String("share", "1/1", "I/N: divide the specs into N shares and take share I")
	focus := flags.String("focus", "", "regular expression of the specs to choose from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*focus)
	if err != nil {
		return fmt.Errorf("focus: %w", err)
	}
	mine, err := parseShare(*part)
	if err != nil {
		return err
	}
	specs, err := read(*in)
	if err != nil {
		return err
	}
	passed := map[string]outcome{}
	if *done != "" {
		runs, err := read(*done)
		if err != nil {
			return err
		}
		passed = outcomes(runs, func(*types.SpecReport) bool { return true })
	}
	left := outcomes(specs, func(spec *types.SpecReport) bool {
		name := spec.FullText()
		return !ending(spec).Is(notRun) && wanted.MatchString(name) && mine.has(name) &&
			!passed[name].Is(types.SpecStatePassed)
	})
	if len(left) == 0 {
		return errNone
	}
	names := slices.Sorted(maps.Keys(left))
	for i, name := range names {
		names[i] = regexp.QuoteMeta(name)
	}
	// The expression does not begin with ^, because Ginkgo puts the suite's name before the name of
	// each spec.
	_, err = fmt.Fprintf(stdout, "(%s)$\n", strings.Join(names, "|"))
	return err
}

// share is part i of n parts into which the specs are divided.
type share struct{ i, n uint32 }

func parseShare(text string) (share, error) {
	var s share
	if _, err := fmt.Sscanf(text, "%d/%d", &s.i, &s.n); err != nil || s.i < 1 || s.i > s.n {
		return s, fmt.Errorf("share %q: %w", text, errShare)
	}
	return s, nil
}

// has reports whether a spec is in the share. The result depends only on the spec's name, so adding
// or removing other specs does not change it.
func (s share) has(name string) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	return h.Sum32()%s.n == s.i-1
}
