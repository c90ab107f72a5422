// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cpus"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// pinning keeps running containers on the CPUs that the CPU manager allows them. When CPUs are
// assigned to a container or freed, containers without CPUs of their own must move.
type pinning struct {
	cfg     Config
	client  *cri.Client
	cpus    *cpus.Manager
	sources *sources
	changed signal            // raised when containers may have to move
	last    map[string]string // CPUs last set for each running container, by container ID
}

// run moves containers when the set of shared CPUs changes. It also moves them periodically,
// because a container that was just starting at the time of the change was missed.
func (p *pinning) run(ctx context.Context) error {
	if !p.cpus.Static() {
		return nil
	}
	t := p.cfg.Clock.NewTicker(p.cfg.Kubelet.CPUManagerReconcilePeriod.Duration)
	defer t.Stop()
	for {
		if err := p.moveAll(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("Failed to move containers to their CPUs", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case <-t.C():
		}
	}
}

func (p *pinning) moveAll(ctx context.Context) error {
	last := map[string]string{} // becomes p.last; has no entries of removed containers
	defer func() { p.last = last }()
	for _, pod := range p.sources.all() {
		seen, err := p.client.Pod(ctx, pod.UID)
		if err != nil {
			return fmt.Errorf("pod of the runtime: %w", err)
		}
		for i := range seen.Containers {
			c := &seen.Containers[i]
			if c.State != cri.Running {
				continue
			}
			want := p.cpus.AllowedCPUs(pod.UID, c.Name).String()
			if last[c.ID] = p.last[c.ID]; last[c.ID] == want {
				continue
			}
			if err := p.client.UpdateResources(ctx, c.ID, &runtimeapi.LinuxContainerResources{CpusetCpus: want}); err != nil {
				return fmt.Errorf("container %s of pod %s: %w", c.Name, pod.UID, err)
			}
			last[c.ID] = want
		}
	}
	return nil
}
