// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/pkg/provision"
)

const downPatience = 30 * time.Second

// Down stops a cluster and removes all of its files, processes and devices. It also works if the
// cluster's supervisor has crashed.
func Down(ctx context.Context, c *Config, deps Deps) error {
	p := newProgress(deps)
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	unlock, err := lockFile(filepath.Join(runRoot, c.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := stopSupervisor(ctx, c, p); err != nil {
		return err
	}
	groups, err := findCgroups("/sys/fs/cgroup")
	if err == nil {
		err = groups.remove(ctx, cgroupOf(c.Name, ""), deps.Clock)
		groups.prune(c.Name)
	}
	if err != nil && !errors.Is(err, errCgroups) {
		return fmt.Errorf("remove cgroups: %w", err)
	}
	err = errors.Join(provision.UnmergeKubeconfig(c.Name, c.Kubeconfig), removeData(c), os.RemoveAll(c.dirs().run))
	if err != nil {
		return err
	}
	_ = os.Remove(DefaultRoot) // fails if other clusters exist
	_ = os.Remove(filepath.Join(runRoot, c.Name+".lock"))
	_ = os.Remove(runRoot)
	p.sayf("cluster %s is gone", c.Name)
	return nil
}

// stopSupervisor asks the supervisor to stop the cluster, and waits until the supervisor has ended.
// If that takes too long, it kills the supervisor.
func stopSupervisor(ctx context.Context, c *Config, p *progress) error {
	st, err := Inspect(ctx, c)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := call(ctx, c.dirs().socket(), "POST", "/down", nil, nil); err != nil {
		return err
	}
	err = p.wait(ctx, downPatience, func(context.Context) error {
		if syscall.Kill(st.Supervisor, 0) == nil {
			return errStillThere
		}
		return nil
	})
	if err != nil {
		// The kernel kills all processes of the cluster when the supervisor ends.
		return syscall.Kill(st.Supervisor, syscall.SIGKILL)
	}
	return nil
}

var (
	errStillThere = errors.New("the supervisor has not ended")
	errNotOurs    = errors.New("not the data directory of a cluster, so it was not deleted")
)

// removeData removes the data directory after it has checked that the directory belongs to a
// cluster.
func removeData(c *Config) error {
	if !exists(c.DataDir) {
		return nil
	}
	if !exists(c.dirs().config()) {
		return fmt.Errorf("%s: %w", c.DataDir, errNotOurs)
	}
	if err := loopdev.DetachBelow(c.DataDir); err != nil { // loop devices remain after the nodes have ended
		return fmt.Errorf("remove data: %w", err)
	}
	if err := os.RemoveAll(c.DataDir); err != nil {
		return fmt.Errorf("remove data: %w", err)
	}
	return nil
}
