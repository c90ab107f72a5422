// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory is what processes hold while the run goes on: their anonymous pages, since
// those of files the kernel takes away as it likes.
type memory struct {
	s        *soak
	duration time.Duration
	began    time.Duration
	samples  []sample
	born     map[string]time.Duration
	done     sync.WaitGroup
}

// sample is one process at one moment since the beginning of the trouble.
type sample struct {
	role    string
	at, age time.Duration
	kib     int
}

// Ages between which processes are compared: young ones hold less.
var ages = []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 24 * time.Hour}

// elected are the roles of which one process works and the others wait: the largest is
// looked at, which is the one that works.
var elected = []string{"controller-manager", "scheduler"}

// Growth that is not judged: what the workload's own ups and downs bring about.
const (
	growthFactor = 1.5
	growthKiB    = 20 << 10
)

func (s *soak) sampleMemory(ctx context.Context) *memory {
	m := &memory{s: s, duration: s.duration, began: s.at(), born: map[string]time.Duration{}}
	m.done.Go(func() {
		for pause(ctx, 5*time.Second) {
			m.look(ctx)
		}
	})
	return m
}

func (m *memory) wait() { m.done.Wait() }

func (m *memory) look(ctx context.Context) {
	st, err := m.s.status(ctx)
	if err != nil {
		return
	}
	m.add("supervisor", st.Supervisor)
	for _, n := range st.Nodes {
		m.add("node host", n.Pid)
	}
	leaders := map[string]int{}
	for name, pid := range st.Pids {
		switch r := role(name); {
		case !slices.Contains(elected, r):
			m.add(r, pid)
		case leaders[r] == 0 || anonymous(pid) > anonymous(leaders[r]):
			leaders[r] = pid
		}
	}
	for r, pid := range leaders {
		m.add(r, pid)
	}
}

func (m *memory) add(role string, pid int) {
	start := startTime(strconv.Itoa(pid))
	kib := anonymous(pid)
	if start == "" || kib == 0 {
		return
	}
	id, now := fmt.Sprint(pid, "/", start), m.s.at()-m.began
	if _, known := m.born[id]; !known {
		m.born[id] = now
	}
	m.samples = append(m.samples, sample{role, now, now - m.born[id], kib})
}

// anonymous is how many KiB of its own a process holds, 0: it went.
func anonymous(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "RssAnon:" {
			n, _ := strconv.Atoi(fields[1]) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// median of the samples that are chosen, 0: there are none.
func (m *memory) median(chosen func(sample) bool) int {
	var kib []int
	for _, s := range m.samples {
		if chosen(s) {
			kib = append(kib, s.kib)
		}
	}
	if len(kib) == 0 {
		return 0
	}
	slices.Sort(kib)
	return kib[len(kib)/2]
}

func (m *memory) roles() []string {
	var roles []string
	for _, s := range m.samples {
		if !slices.Contains(roles, s.role) {
			roles = append(roles, s.role)
		}
	}
	slices.Sort(roles)
	return roles
}

// judge compares the first third of the run with the last, among processes of one role
// and of one age, and says what has grown: what they mostly held beyond what any of them
// held at first, since one that takes over from another holds little at first.
func (m *memory) judge() (grown []string) {
	third := m.duration / 3
	for _, role := range m.roles() {
		for i := range len(ages) - 1 {
			of := func(s sample) bool { return s.role == role && s.age >= ages[i] && s.age < ages[i+1] }
			early := 0
			for _, s := range m.samples {
				if of(s) && s.at < third {
					early = max(early, s.kib)
				}
			}
			late := m.median(func(s sample) bool { return of(s) && s.at > 2*third })
			if early > 0 && float64(late) > growthFactor*float64(early)+growthKiB {
				grown = append(grown, fmt.Sprintf("%s at an age of %v to %v: %d KiB in the first third of the run, %d in the last", role, ages[i], ages[i+1], early, late))
			}
		}
	}
	return grown
}

// table has a row for each role: what it held at some 10, 50 and 100% of the run, in MiB, of
// processes older than ages[0].
func (m *memory) table() string {
	var b strings.Builder
	b.WriteString("| process | at 10 % | at 50 % | at 100 % | most |\n|---|---|---|---|---|\n")
	mib := func(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }
	for _, role := range m.roles() {
		fmt.Fprintf(&b, "| %s |", role)
		for _, part := range []float64{0.1, 0.5, 0.95} {
			at := float64(m.duration) * part
			fmt.Fprintf(&b, " %s |", mib(m.median(func(s sample) bool {
				off := float64(s.at) - at
				return s.role == role && s.age >= ages[0] && max(off, -off) <= 0.06*float64(m.duration)
			})))
		}
		most := 0
		for _, s := range m.samples {
			if s.role == role {
				most = max(most, s.kib)
			}
		}
		fmt.Fprintf(&b, " %s |\n", mib(most))
	}
	return b.String()
}
