// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stat

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// GroupOf returns the cgroup of a process. In cgroup v1, a process has one cgroup for each
// controller. GroupOf returns an error if those for CPU and memory are not the same, or if systemd
// has placed the process in another one: then no cgroup shows the usage of this process alone.
func (r Reader) GroupOf(proc string, pid int) (string, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("cgroup of a process: %w", err)
	}
	groups := map[string]string{} // by controller; the key "" stands for the cgroup v2 hierarchy
	for line := range strings.Lines(string(b)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for name := range strings.SplitSeq(parts[1], ",") {
				groups[name] = parts[2]
			}
		}
	}
	if r.unified {
		if path, ok := groups[""]; ok {
			return path, nil
		}
		return "", fmt.Errorf("%s/cgroup: no cgroup of version 2", dir)
	}
	path := groups["cpu"]
	if unit, ok := groups["name=systemd"]; path == "" || path != groups["memory"] || ok && unit != path {
		return "", fmt.Errorf("%s/cgroup: no cgroup shows the usage of the process", dir)
	}
	return path, nil
}

// CreatedAt returns the time at which a cgroup was created. If the cgroup does not exist, it
// returns the zero time.
func (r Reader) CreatedAt(path string) time.Time {
	info, err := os.Stat(r.dir("cpu", path))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
