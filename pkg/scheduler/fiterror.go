// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"keelson.dev/scheduling"
)

// fitMessage returns the message, worded as in Kubernetes, that says why no node fits: for each
// reason the number of nodes, and then the result of preemption (the argument after).
func fitMessage(nodes int, reject *scheduling.Status, objections map[*scheduling.Status]int, after string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available", nodes)
	switch reasons := histogram(objections); {
	case reject != nil:
		fmt.Fprintf(&b, ": %s.", strings.Join(reject.Reasons, ", "))
	case len(reasons) > 0:
		fmt.Fprintf(&b, ": %s.", strings.Join(reasons, ", "))
	}
	if after != "" {
		b.WriteString(" " + after)
	}
	return b.String()
}

// joinReasons joins two messages with a comma. Either message may be empty.
func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// objections counts how many nodes each status rejects.
func (e *evaluation) objections() map[*scheduling.Status]int {
	switch {
	case e.statuses == nil:
		return nil
	case !e.narrowed:
		return e.class.counts
	}
	return tallyUp(e.statuses)
}

func tallyUp(statuses []*scheduling.Status) map[*scheduling.Status]int {
	counts := map[*scheduling.Status]int{}
	var last *scheduling.Status // neighbours often share a status, so one map update covers a run of them
	run := 0
	for _, st := range statuses {
		if st != last {
			if last != nil {
				counts[last] += run
			}
			last, run = st, 0
		}
		run++
	}
	if last != nil {
		counts[last] += run
	}
	return counts
}

func histogram(objections map[*scheduling.Status]int) []string {
	counts := map[string]int{}
	for st, n := range objections {
		for _, r := range st.Reasons {
			counts[r] += n
		}
	}
	out := make([]string, 0, len(counts))
	for reason, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(out)
	return out
}
