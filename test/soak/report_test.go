// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"keelson.dev/keelson/test/soak/history"
)

// report runs the final checks and writes the report.
func (s *soak) report(k *killer, w *workloads, i *identities, m *memory) {
	for _, grown := range m.growth() {
		s.violatef("memory: %s", grown)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Soak of %v, seed %d, %d control planes, %d nodes, a kill every %v, on %s.\n\n", s.duration,
		s.seed, s.planes, nodes, s.every, time.Now().UTC().Format(time.DateOnly))
	k.table(&b)
	w.table(&b)
	runs := 0
	for _, processes := range i.runs {
		runs += len(processes)
	}
	fmt.Fprintf(&b, "\n| stateful identities | |\n|---|---|\n| inspections of all processes of the machine | %d "+
		"|\n| identities, processes that had them | %d, %d |\n| identities that ran twice | %d |\n", i.looks,
		len(i.runs), runs, len(i.twice))
	b.WriteString("\nAnonymous memory in MiB, median of processes older than 15 s:\n\n")
	b.WriteString(m.table())
	fmt.Fprintf(&b, "\nViolations: %d.\n", len(s.violations))
	for _, v := range s.violations {
		fmt.Fprintf(&b, "- %s\n", v)
	}
	s.t.Logf("\n%s", b.String())
	if s.settings.report == "" {
		return
	}
	if err := os.WriteFile(s.settings.report, []byte(b.String()), 0o644); err != nil {
		s.t.Error(err)
	}
}

func (k *killer) table(b *strings.Builder) {
	b.WriteString("| process | SIGKILL | SIGTERM |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(k.kills)) {
		fmt.Fprintf(b, "| %s | %d | %d |\n", name, k.kills[name][syscall.SIGKILL], k.kills[name][syscall.SIGTERM])
	}
	for _, node := range slices.Sorted(maps.Keys(k.plugs)) {
		fmt.Fprintf(b, "| whole node %s | %d | |\n", node, k.plugs[node])
	}
	fmt.Fprintf(b, "| upgrades of all programs | | %d |\n", k.upgrades)
}

func (w *workloads) table(b *strings.Builder) {
	b.WriteString("\n| operations | acknowledged | refused | unknown |\n|---|---|---|---|\n")
	for _, part := range []struct {
		what string
		ops  []history.Op
	}{{"registers", w.registers.Ops()}, {"counters", w.counters.Ops()}, {"files in volumes", w.files.Ops()}} {
		for _, kind := range []history.Kind{history.Create, history.Update, history.Delete, history.Read, history.Append} {
			n := map[history.Outcome]int{}
			for _, o := range part.ops {
				if o.Kind == kind {
					n[o.Outcome]++
				}
			}
			if len(n) > 0 {
				fmt.Fprintf(b, "| %s: %s | %d | %d | %d |\n", part.what, kind, n[history.Acknowledged],
					n[history.Refused], n[history.Unknown])
			}
		}
	}
	segments, connections, events := 0, 0, 0
	for _, one := range w.watchers {
		for _, segment := range one.segments {
			segments++
			connections += segment.Connections
			events += len(segment.Events)
		}
	}
	b.WriteString("\n| workload | |\n|---|---|\n")
	fmt.Fprintf(b, "| watchers, connections, lists, events | %d, %d, %d, %d |\n", len(w.watchers), connections,
		segments, events)
	for _, c := range w.s.counts {
		fmt.Fprintf(b, "| %s | %d |\n", c.what, c.n)
	}
}
