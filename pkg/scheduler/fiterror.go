// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"keelson.dev/scheduling"
)

// fitMessage tells in Kubernetes' words why no node was found: how often each
// reason was given, and what preemption had to say.
func fitMessage(nodes int, reject *scheduling.Status, statuses []*scheduling.Status, after string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available", nodes)
	switch reasons := histogram(statuses); {
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

func histogram(statuses []*scheduling.Status) []string {
	counts := map[string]int{}
	for _, st := range statuses {
		if st == nil {
			continue
		}
		for _, r := range st.Reasons {
			counts[r]++
		}
	}
	out := make([]string, 0, len(counts))
	for reason, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(out)
	return out
}
