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

// memory records the memory of the cluster's processes during the run. The check for growth uses
// anonymous memory only. File pages are only shown, because the kernel can reclaim them at any
// time.
type memory struct {
	s        *soak
	duration time.Duration
	began    time.Duration
	samples  []sample
	born     map[string]time.Duration
	done     sync.WaitGroup
}

// sample is the memory of one process at one time. Times are relative to the start of the killing.
type sample struct {
	role    string
	at, age time.Duration
	resident
}

// resident has the resident memory of a process in KiB. It is zero if the process has ended.
type resident struct{ anonymous, files int }

// ages has the bounds of the age groups in which processes are compared, because young processes
// use less memory.
var ages = []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 24 * time.Hour}

// elected has the programs with leader election. Of each, only the process with the most memory is
// sampled, because it is the leader.
var elected = []string{"controller-manager", "scheduler"}

// Limits of growth. Growth below them is not reported, because the workloads themselves cause that
// much.
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
		case leaders[r] == 0 || residentOf(pid).anonymous > residentOf(leaders[r]).anonymous:
			leaders[r] = pid
		}
	}
	for r, pid := range leaders {
		m.add(r, pid)
	}
}

func (m *memory) add(role string, pid int) {
	start := startTime(strconv.Itoa(pid))
	held := residentOf(pid)
	if start == "" || held.anonymous == 0 {
		return
	}
	id, now := fmt.Sprint(pid, "/", start), m.s.at()-m.began
	if _, known := m.born[id]; !known {
		m.born[id] = now
	}
	m.samples = append(m.samples, sample{role, now, now - m.born[id], held})
}

// residentOf returns the resident memory of the process with the given ID.
func residentOf(pid int) (r resident) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return r
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.Atoi(fields[1]) // the kernel writes numbers, so there is no error
		switch fields[0] {
		case "RssAnon:":
			r.anonymous = n
		case "RssFile:":
			r.files = n
		}
	}
	return r
}

func anonymous(s sample) int { return s.anonymous }
func files(s sample) int     { return s.files }

// median returns the median of value over the samples for which chosen returns true, or 0 if there
// are none.
func (m *memory) median(value func(sample) int, chosen func(sample) bool) int {
	var kib []int
	for _, s := range m.samples {
		if chosen(s) {
			kib = append(kib, value(s))
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

// growth compares the first third of the run with the last third, for processes of the same program
// in the same age group. It reports growth of anonymous memory if the median of the last third
// exceeds the maximum of the first third. The maximum is used because a process that has just
// become the leader still uses little memory.
func (m *memory) growth() (grown []string) {
	third := m.duration / 3
	for _, role := range m.roles() {
		for i := range len(ages) - 1 {
			of := func(s sample) bool { return s.role == role && s.age >= ages[i] && s.age < ages[i+1] }
			early := 0
			for _, s := range m.samples {
				if of(s) && s.at < third {
					early = max(early, s.anonymous)
				}
			}
			late := m.median(anonymous, func(s sample) bool { return of(s) && s.at > 2*third })
			if early > 0 && float64(late) > growthFactor*float64(early)+growthKiB {
				grown = append(grown,
					fmt.Sprintf(
						"%s at an age of %v to %v: %d KiB in the first third of the run, %d in the last", role,
						ages[i], ages[i+1], early, late))
			}
		}
	}
	return grown
}

// table returns a row for each program: the anonymous memory in MiB of processes older than ages[0]
// at about 10, 50 and 100 % of the run, the maximum, and the file pages at the end.
func (m *memory) table() string {
	var b strings.Builder
	b.WriteString("| process | at 10 % | at 50 % | at 100 % | maximum | file pages at 100 % " +
		"|\n|---|---|---|---|---|---|\n")
	mib := func(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }
	for _, role := range m.roles() {
		fmt.Fprintf(&b, "| %s |", role)
		near := func(part float64) func(sample) bool {
			return func(s sample) bool {
				off := float64(s.at) - part*float64(m.duration)
				return s.role == role && s.age >= ages[0] && max(off, -off) <= 0.06*float64(m.duration)
			}
		}
		const end = 0.95
		for _, part := range []float64{0.1, 0.5, end} {
			fmt.Fprintf(&b, " %s |", mib(m.median(anonymous, near(part))))
		}
		most := 0
		for _, s := range m.samples {
			if s.role == role {
				most = max(most, s.anonymous)
			}
		}
		fmt.Fprintf(&b, " %s | %s |\n", mib(most), mib(m.median(files, near(end))))
	}
	return b.String()
}
