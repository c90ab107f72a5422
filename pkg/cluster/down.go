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
)

const downPatience = 30 * time.Second

// Down stops a cluster and removes all of its files, processes and devices. It also cleans up after
// a supervisor that has died.
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
	if err := errors.Join(unmergeKubeconfig(c.Name, c.Kubeconfig), removeData(c), os.RemoveAll(c.dirs().run)); err != nil {
		return err
	}
	_ = os.Remove(DefaultRoot) // succeeds only if there are no other clusters
	_ = os.Remove(filepath.Join(runRoot, c.Name+".lock"))
	_ = os.Remove(runRoot)
	p.sayf("cluster %s is gone", c.Name)
	return nil
}

// stopSupervisor asks the supervisor to end the cluster and waits until the supervisor has ended.
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
		// All processes of the cluster end with the supervisor.
		return syscall.Kill(st.Supervisor, syscall.SIGKILL)
	}
	return nil
}

var (
	errStillThere = errors.New("the supervisor has not ended")
	errNotOurs    = errors.New("not the data directory of a cluster, so it was not deleted")
)

// removeData removes the data directory after checking that it belongs to a cluster.
func removeData(c *Config) error {
	if !exists(c.DataDir) {
		return nil
	}
	if !exists(c.dirs().config()) {
		return fmt.Errorf("%s: %w", c.DataDir, errNotOurs)
	}
	if err := loopdev.DetachBelow(c.DataDir); err != nil { // loop devices remain when the nodes have ended
		return fmt.Errorf("remove data: %w", err)
	}
	if err := os.RemoveAll(c.DataDir); err != nil {
		return fmt.Errorf("remove data: %w", err)
	}
	return nil
}
