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

// GroupOf is the cgroup that a process is in. Of cgroup v1 it is that by which both CPUs and
// memory are counted; where those differ, or where systemd has the process in another one and so
// does not have it counted by itself, nothing can be told of it.
func (r Reader) GroupOf(proc string, pid int) (string, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("cgroup of a process: %w", err)
	}
	groups := map[string]string{} // by controller; "" is the hierarchy of version 2
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
		return "", fmt.Errorf("%s/cgroup: the process is not counted by itself", dir)
	}
	return path, nil
}

// CreatedAt is when the cgroup was made, zero if it is not there.
func (r Reader) CreatedAt(path string) time.Time {
	info, err := os.Stat(r.dir("cpu", path))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
