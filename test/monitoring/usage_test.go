// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// usage is the CPU time and memory that a process uses during a measurement.
type usage struct {
	cpu             time.Duration
	took            time.Duration
	memory, samples int // sum of the samples of anonymous memory in KiB, and their number
}

// share returns the CPU time in percent of one core.
func (u *usage) share() float64 { return 100 * u.cpu.Seconds() / u.took.Seconds() }

// anonymous returns the mean of the anonymous memory in MB.
func (u *usage) anonymous() float64 {
	return float64(u.memory) * 1024 / 1e6 / float64(max(u.samples, 1))
}

// usage measures the cluster's processes for a duration.
func (l *lab) usage(duration time.Duration) map[string]*usage {
	l.t.Helper()
	pids, out := l.pids(), map[string]*usage{}
	began := time.Now()
	for name, pid := range pids {
		out[name] = &usage{cpu: -cpuTime(l.t, pid)}
	}
	for time.Since(began) < duration {
		time.Sleep(min(5*time.Second, duration))
		for name, pid := range pids {
			out[name].memory += anonymous(l.t, pid)
			out[name].samples++
		}
	}
	for name, pid := range pids {
		out[name].cpu += cpuTime(l.t, pid)
		out[name].took = time.Since(began)
	}
	return out
}

// cpuTime returns the CPU time of a process. The kernel counts in units of 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name of the program, in parentheses, may contain spaces. User and system time are the 12th and 13th field
	// after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	sum := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// anonymous returns the anonymous memory of a process in KiB.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// logUsage logs what the processes used without and with Prometheus, as a table for docs/performance.
func logUsage(t *testing.T, without, with map[string]*usage) {
	t.Helper()
	t.Log("| process | CPU without | CPU with | anonymous memory without | anonymous memory with |")
	for _, name := range slices.Sorted(maps.Keys(with)) {
		a, b := without[name], with[name]
		t.Logf("| %s | %.2f %% | %.2f %% | %.1f MB | %.1f MB |", name, a.share(), b.share(), a.anonymous(), b.anonymous())
	}
}
