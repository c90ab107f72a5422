// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgrouptree finds cgroup hierarchies, makes new cgroups usable, and removes cgroups with
// everything that runs in them.
// It supports cgroup version 1, which has one hierarchy for each controller, and version 2.
package cgrouptree

import (
	"bytes"
	"context"
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

	"keelson.dev/api/clock"
)

// A cgroup is in use for a moment after its last process has ended, so RemoveAll retries: attempts
// times, every pause.
const (
	attempts = 250
	pause    = 20 * time.Millisecond
)

// Hierarchies returns the directories of all cgroup hierarchies below mount, normally /sys/fs/cgroup.
// The hierarchy of version 2 that some machines have besides those of version 1 is one of them.
func Hierarchies(mount string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return []string{mount}, nil
	}
	files, err := filepath.Glob(filepath.Join(mount, "*", "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
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
	return slices.Compact(out), nil
}

// InheritCpuset copies the CPUs and memory nodes of the cgroup parent to its child in dir, unless the
// child has some. A new cgroup of version 1 has none, and processes cannot enter it until it has some.
func InheritCpuset(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || len(bytes.TrimSpace(value)) > 0 {
			continue // the file is not in this hierarchy, or already has a value
		}
		if value, err = os.ReadFile(filepath.Join(parent, file)); err != nil || len(bytes.TrimSpace(value)) == 0 {
			continue // in version 2, child groups inherit the CPUs and memory nodes
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return fmt.Errorf("cgroup %s: %w", file, err)
		}
	}
	return nil
}

// RemoveAll removes a cgroup and all cgroups below it from several hierarchies. It kills the processes
// in them, also frozen ones, and returns when they have ended. The cgroup need not exist.
func RemoveAll(ctx context.Context, hierarchies []string, group string, clk clock.Clock) error {
	for n := 1; ; n++ {
		var errs []error
		for _, h := range hierarchies {
			errs = append(errs, Remove(filepath.Join(h, group)))
		}
		err := errors.Join(errs...)
		if err == nil || n == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-clk.After(pause):
		}
	}
}

// Remove removes the cgroup in dir and all cgroups below it. It kills the processes in cgroups that
// cannot be removed, and then returns an error: the caller must call it again.
func Remove(dir string) error {
	dirs, err := tree(dir)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	var errs []error
	for _, d := range slices.Backward(dirs) { // children first
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			kill(d)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}

// tree returns a cgroup and all cgroups below it, parents first.
func tree(root string) ([]string, error) {
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

// kill kills the processes of one cgroup.
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

// Thaw thaws the processes of a cgroup of version 1 and of all cgroups below it. Frozen processes, such
// as those of a paused container, do not end.
func Thaw(dir string) {
	dirs, _ := tree(dir)
	for _, d := range dirs {
		thaw(d)
	}
}

// thaw thaws the processes of one cgroup. The file exists only in the hierarchy freezer.
func thaw(dir string) {
	if f, err := os.OpenFile(filepath.Join(dir, "freezer.state"), os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("THAWED")
		_ = f.Close()
	}
}
