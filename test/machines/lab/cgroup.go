// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is the cgroup of all labs, in every hierarchy.
const cgroupRoot = "keelson-machines"

// hierarchies returns the mount points of the cgroup hierarchies.
func hierarchies() ([]string, error) {
	files, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		dir, err := filepath.EvalSymlinks(filepath.Dir(f)) // cpu may be a link to cpu,cpuacct
		if err != nil {
			return nil, fmt.Errorf("cgroups: %w", err)
		}
		out = append(out, dir)
	}
	slices.Sort(out)
	out = slices.Compact(out)
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
			if err := inheritCpuset(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCpuset copies the CPUs and memory nodes of the parent. A new group of the hierarchy cpuset
// has none, and no process can enter it.
func inheritCpuset(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) || len(bytes.TrimSpace(value)) == 0 {
			continue // another hierarchy
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
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

// removeGroup kills all processes in a group and the groups below it, and removes the groups. It
// retries, because a group is in use until the kernel has removed its last process.
func (l *Lab) removeGroup(group string) error {
	var err error
	for range 250 {
		err = nil
		for _, mount := range l.hierarchies {
			err = errors.Join(err, removeTree(filepath.Join(mount, cgroupRoot, group)))
		}
		if err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("remove cgroups: %w", err)
}

func removeTree(root string) error {
	dirs, err := subgroups(root)
	for _, dir := range slices.Backward(dirs) { // children first
		kill(dir)
		if rm := os.Remove(dir); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return err
}

// subgroups returns a group and all groups below it, parents first.
func subgroups(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}

// kill kills the processes of a group.
func kill(dir string) {
	thaw(dir)
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(procs)) {
		// The ID is 0 if the process is in another PID namespace.
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// thaw thaws the processes of a group and the groups below it. Frozen processes, such as those of a
// paused container, do not end.
func (l *Lab) thaw(group string) {
	dirs, _ := subgroups(filepath.Join("/sys/fs/cgroup/freezer", cgroupRoot, group))
	for _, dir := range dirs {
		thaw(dir)
	}
}

// thaw thaws the processes of one group. The file exists only in the hierarchy freezer.
func thaw(dir string) {
	if f, err := os.OpenFile(filepath.Join(dir, "freezer.state"), os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("THAWED")
		_ = f.Close()
	}
}
