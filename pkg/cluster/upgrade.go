// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/provision"
)

// restartPatience is how long to wait until a process runs again after a restart.
const restartPatience = time.Minute

// programs returns the names of Keelson's own programs in the directory bin.
func programs() []string {
	return []string{apiserver, controllerManager, scheduler, "kubelet", "cni", "proxy", "ctl"}
}

// Upgrade installs the programs in dir, if dir is not empty, and makes the control plane emulate a
// release, or none if emulated is empty. It restarts each process whose program file has changed since
// its start or that does not emulate this release. It restarts them one after the other: first the
// control plane, then the nodes. Containers keep running. Upgrade may be interrupted and called again.
// The supervisor and the node hosts keep running the old program until the cluster is stopped and
// started.
func Upgrade(ctx context.Context, c *Config, dir, emulated string, deps Deps) error {
	if err := checkEmulated(emulated); err != nil {
		return err
	}
	unlock, err := lockFile(filepath.Join(runRoot, c.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	p := newProgress(deps)
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	if err := prepare(ctx, c, st, dir, emulated, p); err != nil {
		return err
	}
	restarted := 0
	for _, name := range inOrder(st.Pids) {
		why, err := reasonToRestart(c, name, st.Pids[name], emulated)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if why == "" {
			continue
		}
		if err := restart(ctx, c, name, st.Pids[name], deps); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		restarted++
		p.sayf("%s runs %s", name, why)
	}
	if restarted == 0 {
		p.sayf("no process had to be restarted")
	}
	return nil
}

// prepare installs the programs in dir, if dir is not empty, and records the release that the
// control plane emulates. A process that ends between these two steps is started again, and must
// not run a new program without emulation. Therefore prepare records a release to emulate before it
// replaces the programs, and the end of an emulation after that.
func prepare(ctx context.Context, c *Config, st *Status, dir, emulated string, p *progress) error {
	if emulated != "" {
		if err := setEmulated(ctx, c, c.dirs(), st, emulated); err != nil {
			return err
		}
	}
	if dir != "" {
		if err := install(dir, c.BinDir); err != nil {
			return err
		}
		p.sayf("programs copied from %s to %s", dir, c.BinDir)
	}
	if emulated == "" {
		return setEmulated(ctx, c, c.dirs(), st, "")
	}
	return nil
}

// reasonToRestart returns what is new in a process after a restart: "the new program", or "with the
// new flags" if the release that it must emulate has changed. It returns "" if the process need not
// be restarted.
func reasonToRestart(c *Config, name string, pid int, emulated string) (string, error) {
	old, err := outdated(c, name, pid)
	if err != nil {
		return "", err
	}
	if old {
		return "the new program", nil
	}
	if same, err := emulates(pid, emulated); err != nil || same || !hasEmulation(name) {
		return "", err
	}
	return "with the new flags", nil
}

// install copies the programs of one directory into another. It replaces each file by a rename, so
// that running processes keep the old file.
func install(from, to string) error {
	for _, name := range programs() {
		if !exists(filepath.Join(from, name)) {
			return fmt.Errorf("%s: %w", filepath.Join(from, name), errNotBuilt)
		}
	}
	for _, name := range programs() {
		target := filepath.Join(to, name)
		_ = os.Remove(target + ".new") // remove the file that an interrupted upgrade may have left
		err := errors.Join(copyContent(filepath.Join(from, name), target+".new"), os.Chmod(target+".new", 0o755))
		if err == nil {
			err = os.Rename(target+".new", target)
		}
		if err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}

// inOrder returns the names of the processes in the order of an upgrade.
func inOrder(pids map[string]int) []string {
	names := slices.Sorted(maps.Keys(pids))
	rank := func(name string) int {
		return slices.IndexFunc(provision.RestartOrder(), func(program string) bool { return programOf(name) == program })
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

// programOf returns the program that a process runs. name is a process name as in [Status].
func programOf(name string) string {
	for _, program := range provision.RestartOrder() {
		if name == program || strings.HasPrefix(name, program+"-") {
			return program
		}
	}
	return name
}

// outdated reports whether a process runs another file than the program that is installed now.
func outdated(c *Config, name string, pid int) (bool, error) {
	program := programOf(name)
	dir := c.ToolsDir
	if slices.Contains(programs(), program) {
		dir = c.BinDir
	}
	want, err := os.Stat(filepath.Join(dir, program))
	if err != nil {
		return false, err
	}
	have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // the process has ended; its keeper starts the new program
	}
	if err != nil {
		return false, err
	}
	return !os.SameFile(want, have), nil
}

var errNotBack = errors.New("it was not restarted in time")

// restart ends a process, waits until its keeper has started it again, and waits until it is ready,
// for processes whose readiness can be checked.
func restart(ctx context.Context, c *Config, name string, pid int, deps Deps) error {
	p := newProgress(deps)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if err := waitRestarted(ctx, c, p, name, pid); err != nil {
		return err
	}
	switch program, node, _ := strings.Cut(name, "-"); program {
	case apiserver:
		// Wait until this API server is ready before the next one is restarted. Otherwise clients
		// might have no API server for a while.
		for _, r := range c.replicas() {
			if c.replicated() && name == apiserver+r.suffix {
				return waitServer(ctx, c, r, p)
			}
		}
		return waitControlPlane(ctx, c, p)
	case "kubelet":
		return waitSign(ctx, c, node, p)
	}
	return nil
}

// waitRestarted waits until the keeper has replaced the process that had process ID pid.
func waitRestarted(ctx context.Context, c *Config, p *progress, name string, pid int) error {
	return p.wait(ctx, restartPatience, func(ctx context.Context) error {
		st, err := Inspect(ctx, c)
		if err == nil && (st.Pids[name] == 0 || st.Pids[name] == pid) {
			err = errNotBack
		}
		return err
	})
}
