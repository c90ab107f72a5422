// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/cgrouptree"
)

// cgroupRoot is the cgroup of all labs, in every hierarchy.
const cgroupRoot = "keelson-machines"

// hierarchies returns the mount points of the cgroup hierarchies.
func hierarchies() ([]string, error) {
	out, err := cgrouptree.Hierarchies("/sys/fs/cgroup")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(out, "/sys/fs/cgroup/systemd") {
		return nil, errors.New("cgroups: a lab needs the hierarchies of version 1 below /sys/fs/cgroup")
	}
	return out, nil
}

// createGroup creates a cgroup below cgroupRoot in every hierarchy.
func (l *Lab) createGroup(group string) error {
	for _, mount := range l.hierarchies {
		dir := mount
		for part := range strings.SplitSeq(filepath.Join(cgroupRoot, group), "/") {
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

// entrances returns the files to which a process writes in order to enter a group. In the hierarchies
// that the machine's systemd manages, a process enters the group of systemd itself, because systemd
// does not expect processes in groups that it has not made.
func (l *Lab) entrances(group string) string {
	var out []string
	for _, mount := range l.hierarchies {
		dir := filepath.Join(mount, cgroupRoot, group)
		for _, below := range []string{"payload/init.scope", "init.scope"} {
			if _, err := os.Stat(filepath.Join(dir, below)); err == nil {
				dir = filepath.Join(dir, below)
				break
			}
		}
		out = append(out, filepath.Join(dir, "cgroup.procs"))
	}
	return strings.Join(out, " ")
}

// removeGroup kills all processes in a group and the groups below it, and removes the groups.
func (l *Lab) removeGroup(group string) error {
	return cgrouptree.RemoveAll(context.Background(), l.hierarchies, filepath.Join(cgroupRoot, group), clock.Real())
}

// thaw thaws the processes of a group and the groups below it, so that they can end.
func (l *Lab) thaw(group string) {
	cgrouptree.Thaw(filepath.Join("/sys/fs/cgroup/freezer", cgroupRoot, group))
}
