// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// pins are the CPUs that containers were last told to run on.
type pins struct {
	changed chan struct{} // holds a token when containers may have to move
	last    map[string]string
}

func newPins() *pins { return &pins{changed: make(chan struct{}, 1), last: map[string]string{}} }

// again has the containers looked at.
func (p *pins) again() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// repin moves running containers that have no CPUs of their own to those that nobody has, when
// these change and, because a container may just have been starting then, from time to time.
func (k *Kubelet) repin(ctx context.Context) error {
	t := k.cfg.Clock.NewTicker(k.cfg.Kubelet.CPUManagerReconcilePeriod.Duration)
	defer t.Stop()
	for {
		if err := k.repinAll(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("Containers are not on their CPUs", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.pins.changed:
		case <-t.C():
		}
	}
}

func (k *Kubelet) repinAll(ctx context.Context) error {
	last := map[string]string{} // without containers that are gone
	defer func() { k.pins.last = last }()
	for _, pod := range k.sources.all() {
		seen, err := k.runtime.client.Pod(ctx, pod.UID)
		if err != nil {
			return fmt.Errorf("pod of the runtime: %w", err)
		}
		for i := range seen.Containers {
			c := &seen.Containers[i]
			if c.State != cri.Running {
				continue
			}
			want := k.hardware.cpus.On(pod.UID, c.Name).String()
			if last[c.ID] = k.pins.last[c.ID]; last[c.ID] == want {
				continue
			}
			if err := k.runtime.client.UpdateResources(ctx, c.ID, &runtimeapi.LinuxContainerResources{CpusetCpus: want}); err != nil {
				return fmt.Errorf("container %s of pod %s: %w", c.Name, pod.UID, err)
			}
			last[c.ID] = want
		}
	}
	return nil
}
