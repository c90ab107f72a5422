// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// identityMark is the name of an environment variable in containers of StatefulSets. Its value is
// the run's seed followed by the pod's identity, which is its name: only one pod at a time may have
// it.
const identityMark = "KEELSON_SOAK_IDENTITY="

// identities looks for processes of StatefulSets on this machine, where all nodes run, and finds
// pod identities (names of pods) that run twice at the same time.
type identities struct {
	mark  []byte
	looks int
	// runs has the processes that were seen, by pod identity.
	runs map[string]map[string]bool
	// twice has the pairs of processes with the same pod identity that ran at the same time.
	twice map[string]bool
	done  sync.WaitGroup
}

// process is a process that was seen. start, its start time, distinguishes it from a later process
// with the same process ID.
type process struct{ pid, start, identity string }

func (s *soak) watchIdentities(ctx context.Context) *identities {
	i := newIdentities(s.seed)
	i.done.Go(func() {
		for pause(ctx, time.Second) {
			for _, pair := range i.look() {
				s.violatef("identity runs twice: %s", pair)
			}
		}
	})
	return i
}

func newIdentities(seed uint64) *identities {
	return &identities{mark: fmt.Appendf(nil, "%s%d/", identityMark, seed), runs: map[string]map[string]bool{},
		twice: map[string]bool{}}
}

func (i *identities) wait() { i.done.Wait() }

// look lists all processes, and returns the pairs of processes with the same pod identity that ran
// at the same time: one started before the other was seen, and was still running afterwards. It
// returns each pair only once.
func (i *identities) look() (found []string) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	i.looks++
	seen := map[string][]process{}
	for _, file := range files {
		p, ok := i.read(filepath.Base(filepath.Dir(file)))
		if !ok {
			continue
		}
		if i.runs[p.identity] == nil {
			i.runs[p.identity] = map[string]bool{}
		}
		i.runs[p.identity][p.pid+"/"+p.start] = true
		for _, other := range seen[p.identity] {
			again, ok := i.read(other.pid)
			pair := fmt.Sprintf("%s: processes %s and %s", p.identity, other.pid, p.pid)
			if ok && again == other && !i.twice[pair] {
				i.twice[pair] = true
				found = append(found, fmt.Sprintf("%s (cgroups %s and %s)", pair, group(other.pid), group(p.pid)))
			}
		}
		seen[p.identity] = append(seen[p.identity], p)
	}
	return found
}

// read returns the process with the given ID. It returns false unless the process is the main
// process of a container with an identityMark, that is, the first process of its PID namespace.
func (i *identities) read(pid string) (process, bool) {
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil {
		return process{}, false // the process has ended in the meantime
	}
	identity := ""
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if rest, ok := bytes.CutPrefix(v, i.mark); ok {
			identity = string(rest)
		}
	}
	if identity == "" {
		return process{}, false
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return process{}, false
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		ids := strings.Fields(line)
		if len(ids) > 1 && ids[0] == "NSpid:" && ids[len(ids)-1] != "1" {
			return process{}, false
		}
	}
	start := startTime(pid)
	return process{pid, start, identity}, start != ""
}

// startTime returns the time at which a process was started, in the kernel's clock ticks since
// boot, or an empty string if the process has ended.
func startTime(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses. The name may itself contain blanks and
	// parentheses, so start after the last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// group returns the cgroup of a process. Its path contains the names of the node and of the pod.
func group(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "unknown"
	}
	lines := strings.Split(string(data), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "/keelson/") })
	return lines[max(at, 0)]
}
