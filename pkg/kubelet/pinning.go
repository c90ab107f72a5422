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

// pinning moves running containers that have no CPUs of their own to the CPUs that no container
// owns.
type pinning struct {
	cfg     Config
	client  *cri.Client
	cpus    *cpus.Manager
	sources *sources
	changed signal            // raised when containers may have to move
	last    map[string]string // CPUs that containers were last given, by container ID
}

// run moves containers when the shared CPUs change. It also does so periodically, because a
// container may just have been starting when they changed.
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
	last := map[string]string{} // the new value of p.last, without containers that were removed
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
