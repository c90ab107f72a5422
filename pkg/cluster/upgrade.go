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
)

// restartPatience is how long a process may take to be there again.
const restartPatience = time.Minute

// programs are Keelson's own, in bin/.
func programs() []string {
	return []string{apiserver, controllerManager, scheduler, "kubelet", "cni", "proxy", "ctl"}
}

// upgradeOrder is in which order processes are started anew: nobody is newer than
// the API server.
func upgradeOrder() []string {
	return []string{etcd, apiserver, controllerManager, scheduler, "containerd", "kubelet", "proxy"}
}

// Upgrade puts the programs in dir, unless it is empty, in the place of the
// cluster's, and starts each process anew that runs another program than the one
// that is there, one after the other: the control plane first, then the nodes.
// Containers go on. It may be interrupted and run again. The supervisor and the
// node hosts stay as they are until the cluster is started anew.
func Upgrade(ctx context.Context, c *Config, dir string, deps Deps) error {
	unlock, err := lockFile(filepath.Join(runRoot, c.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	p := newProgress(deps)
	if dir != "" {
		if err := install(dir, c.BinDir); err != nil {
			return err
		}
		p.say("programs of %s are in %s", dir, c.BinDir)
	}
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	upgraded := 0
	for _, name := range inOrder(st.Pids) {
		old, err := outdated(c, name, st.Pids[name])
		if err != nil {
			return err
		}
		if !old {
			continue
		}
		if err := restart(ctx, c, name, st.Pids[name], deps); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		upgraded++
		p.say("%s runs the new program", name)
	}
	if upgraded == 0 {
		p.say("every process runs the program that is there")
	}
	return nil
}

// install copies the programs that are in a directory into another. Each appears
// by rename: what runs keeps its own file.
func install(from, to string) error {
	for _, name := range programs() {
		if !exists(filepath.Join(from, name)) {
			return fmt.Errorf("%s: %w", filepath.Join(from, name), errNotBuilt)
		}
	}
	for _, name := range programs() {
		target := filepath.Join(to, name)
		_ = os.Remove(target + ".new") // of an upgrade that was cut
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

// inOrder are the names of processes in the order of an upgrade.
func inOrder(pids map[string]int) []string {
	names := slices.Sorted(maps.Keys(pids))
	rank := func(name string) int {
		return slices.IndexFunc(upgradeOrder(), func(program string) bool { return programOf(name) == program })
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

// programOf is the program that a process, as [Status] names it, runs.
func programOf(name string) string {
	for _, program := range upgradeOrder() {
		if name == program || strings.HasPrefix(name, program+"-") {
			return program
		}
	}
	return name
}

// outdated tells whether a process runs another file than the one that it would be
// started from now.
func outdated(c *Config, name string, pid int) (bool, error) {
	program := programOf(name)
	dir := c.ToolsDir
	if slices.Contains(programs(), program) {
		dir = c.BinDir
	}
	want, err := os.Stat(filepath.Join(dir, program))
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // it has ended: its keeper starts the new one
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return !os.SameFile(want, have), nil
}

var errNotBack = errors.New("it has not come back")

// restart ends a process and waits until its keeper has started it, and until it
// does its work where that can be seen.
func restart(ctx context.Context, c *Config, name string, pid int, deps Deps) error {
	p := newProgress(deps)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if err := waitAnew(ctx, c, p, name, pid); err != nil {
		return err
	}
	switch program, node, _ := strings.Cut(name, "-"); program {
	case apiserver:
		return waitControlPlane(ctx, c, p)
	case "kubelet":
		return waitSign(ctx, c, node, p)
	}
	return nil
}

// waitAnew waits until the keeper of a process that had pid has started it again.
func waitAnew(ctx context.Context, c *Config, p *progress, name string, pid int) error {
	return p.wait(ctx, restartPatience, func(ctx context.Context) error {
		st, err := Inspect(ctx, c)
		if err == nil && (st.Pids[name] == 0 || st.Pids[name] == pid) {
			err = errNotBack
		}
		return err
	})
}
