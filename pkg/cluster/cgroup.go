// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/cgrouptree"
)

// cgroups has the machine's cgroup hierarchies: one for each controller in cgroup version 1, a
// single one in version 2. In each hierarchy, a node has the group /keelson/CLUSTER/NODE. The
// node's daemons run in its child group "host", and the kubelet creates the groups of pods below
// the node's group.
type cgroups struct {
	mounts  []string
	unified bool
	// hybrid is the version 2 hierarchy that some machines mount in addition to those of version 1.
	// It has no controllers, but the container runtime leaves groups in it that must be removed.
	hybrid string
}

const (
	cgroupRoot = "keelson"
	cgroupHost = "host"
)

// errCgroups is returned if the machine has no cgroup hierarchy, so that clusters cannot limit
// containers. The kubelet would not start.
var errCgroups = errors.New("no cgroup hierarchy below /sys/fs/cgroup")

func findCgroups(root string) (*cgroups, error) {
	hierarchies, err := cgrouptree.Hierarchies(root)
	if err != nil {
		return nil, err
	}
	c := &cgroups{}
	for _, dir := range hierarchies {
		switch v2 := exists(filepath.Join(dir, "cgroup.controllers")); {
		case !v2:
			c.mounts = append(c.mounts, dir)
		case dir == root:
			c.mounts, c.unified = append(c.mounts, dir), true
		default:
			c.hybrid = dir
		}
	}
	if len(c.mounts) == 0 {
		return nil, errCgroups
	}
	return c, nil
}

func cgroupOf(cluster, node string) string { return "/" + filepath.Join(cgroupRoot, cluster, node) }

// create creates a cgroup in every hierarchy, and enables the controllers, CPUs and memory nodes
// that its child groups need.
func (c *cgroups) create(group string) error {
	for _, mount := range c.mounts {
		dir := mount
		for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
			if c.unified {
				if err := enableControllers(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("cgroup: %w", err)
			}
			if err := cgrouptree.InheritCpuset(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// enableControllers enables all controllers of a version 2 group for its child groups.
func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cgroup controllers: %w", err)
	}
	for name := range strings.FieldsSeq(string(have)) {
		if slices.Contains([]string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}, name) {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644); err != nil {
				return fmt.Errorf("cgroup controller %s: %w", name, err)
			}
		}
	}
	return nil
}

// used returns all cgroup hierarchies in which clusters have groups: those of mounts, and the
// version 2 hierarchy that some machines mount in addition to version 1.
func (c *cgroups) used() []string {
	if c.hybrid == "" {
		return c.mounts
	}
	return append(slices.Clip(c.mounts), c.hybrid)
}

// enter moves a process into a cgroup.
func (c *cgroups) enter(group string, pid int) error {
	for _, mount := range c.mounts {
		file := filepath.Join(mount, group, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// remove kills all processes in a group and its descendants, and removes the groups.
func (c *cgroups) remove(ctx context.Context, group string, clk clock.Clock) error {
	return cgrouptree.RemoveAll(ctx, c.used(), group, clk)
}

// prune removes the group of a cluster, and the common parent group of all clusters if that is
// empty.
func (c *cgroups) prune(cluster string) {
	for _, mount := range c.used() {
		_ = os.Remove(filepath.Join(mount, cgroupRoot, cluster))
		_ = os.Remove(filepath.Join(mount, cgroupRoot))
	}
}
