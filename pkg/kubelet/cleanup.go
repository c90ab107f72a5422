// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/podsapi"
	"keelson.dev/keelson/pkg/kubelet/shims"
	"keelson.dev/keelson/pkg/kubelet/volume"
	"keelson.dev/keelson/pkg/kubelet/worker"
	"keelson.dev/keelson/pkg/network"
)

// cleanupPeriod is how often the kubelet searches the node for leftovers of pods.
const cleanupPeriod = 30 * time.Second

// cleanup releases everything that the node still holds for pods that have no worker and do not
// exist in the runtime.
type cleanup struct {
	cfg     Config
	client  *cri.Client
	workers interface{ HasWorker(uid types.UID) bool }
	// listed reports whether the workers have the pods of all sources. Until then, nothing of a pod
	// is released.
	listed func() bool

	// The parts below hold resources or state of pods.

	volumes    *volume.Manager
	logs       *logs.Keeper
	allocation *allocation.Manager
	preemption *preemption
	cgroups    podCgroups
	hardware   *hardware
	sandboxes  *sandboxes
}

// run cleans up immediately and then every cleanupPeriod, until ctx ends.
func (c *cleanup) run(ctx context.Context) error {
	t := c.cfg.Clock.NewTicker(cleanupPeriod)
	defer t.Stop()
	for {
		if err := errors.Join(c.sweep(ctx), c.cgroups.share()); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("Failed to release resources of deleted pods", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

func (c *cleanup) sweep(ctx context.Context) error {
	ctx, span := c.cfg.tracer().Start(ctx, "Containers/GarbageCollect")
	defer span.End()
	err := c.releaseAll(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "release resources of deleted pods")
	}
	return err
}

func (c *cleanup) releaseAll(ctx context.Context) error {
	unknown, err := c.leftovers(ctx)
	if err != nil {
		return err
	}
	left, err := c.volumes.Pods()
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	for _, uid := range left {
		if unknown(uid) {
			if err := c.volumes.Teardown(ctx, uid); err != nil {
				return fmt.Errorf("volumes of %s: %w", uid, err)
			}
		}
	}
	if err := worker.SweepFiles(c.cfg.RootDir, unknown); err != nil {
		return err
	}
	if err := c.logs.Sweep(func(uid types.UID) bool { return !unknown(uid) }); err != nil {
		return err
	}
	for _, uid := range slices.Concat(c.allocation.Pods(), c.preemption.all()) {
		if unknown(uid) {
			c.forget(uid)
		}
	}
	for _, uid := range c.cgroups.Pods() {
		if unknown(uid) {
			if err := c.cgroups.Remove(ctx, uid); err != nil {
				return fmt.Errorf("cgroup of %s: %w", uid, err)
			}
		}
	}
	if err := c.sandboxes.sweep(ctx); err != nil {
		return err
	}
	// The hardware is released last: its drivers may not answer, which must not delay the other
	// parts.
	for _, uid := range c.hardware.pods() {
		if unknown(uid) {
			if err := c.hardware.release(ctx, uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftovers returns a function that reports whether a pod has neither a worker nor anything in the
// runtime, so that everything else that the node holds for it can be released. The function reports
// false for all pods until the workers have the pods of all sources: a pod that only has volumes now,
// for example after a reboot, may be started soon.
func (c *cleanup) leftovers(ctx context.Context) (func(types.UID) bool, error) {
	running, err := c.client.Digest(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the runtime: %w", err)
	}
	listed := c.listed()
	return func(uid types.UID) bool {
		_, there := running[uid]
		return listed && !there && !c.workers.HasWorker(uid)
	}, nil
}

// forget drops the kubelet's records about a pod that no longer has anything on the node.
func (c *cleanup) forget(uid types.UID) {
	c.preemption.released(uid)
	c.preemption.forget(uid)
	c.allocation.Forget(uid)
}

// release releases what the kubelet holds for a pod while the pod's worker ends the pod.
type release struct {
	*cleanup
	sources *sources
	changes *podsapi.Changes
}

var _ worker.Release = release{}

// Release implements worker.Release. It releases the pod's hardware and wakes the critical pods
// that wait for this pod's end.
func (r release) Release(ctx context.Context, pod *v1.Pod) error {
	if err := r.hardware.release(ctx, pod.UID); err != nil {
		return err
	}
	r.preemption.released(pod.UID)
	r.changes.Removed(pod)
	return nil
}

// Forget implements worker.Release. It drops the kubelet's records about the pod.
func (r release) Forget(uid types.UID) {
	r.forget(uid)
	r.changes.Forget(uid)
}

// Removed implements worker.Release. A static pod that was waiting for the removed pod's end may
// start now.
func (r release) Removed(types.UID) { r.sources.poke() }

// sandboxes removes what the runtime may leave behind of pod sandboxes: network namespaces,
// addresses and containerd shims.
type sandboxes struct {
	cfg        Config
	runtime    *runtime
	namespaces *network.Namespaces
	shims      *shims.Finder
}

func newSandboxes(cfg Config, r *runtime) *sandboxes {
	return &sandboxes{
		cfg: cfg, runtime: r, namespaces: network.NewNamespaces(network.NamespacesDir, "/proc", cfg.Clock),
		shims: shims.New("/proc", cfg.Clock),
	}
}

func (s *sandboxes) sweep(ctx context.Context) error {
	if err := s.removeNamespaces(ctx); err != nil {
		return err
	}
	return s.endShims()
}

// removeNamespaces removes the network namespaces of sandboxes that the runtime was creating when
// it was killed, and releases the addresses that were allocated to these sandboxes.
func (s *sandboxes) removeNamespaces(ctx context.Context) error {
	left, err := s.namespaces.Abandoned()
	if err != nil || len(left) == 0 {
		return err
	}
	// If the runtime is creating a sandbox now, the namespaces stay until the next cleanup.
	_, err = s.runtime.client.TryBetweenSandboxes(func() error {
		for _, file := range left {
			s.cfg.Log.Warn("Removing a network namespace that belongs to no pod sandbox", "file", file)
			if err := s.namespaces.Remove(file); err != nil {
				return err
			}
		}
		return s.releaseAddresses(ctx)
	})
	return err
}

// endShims kills containerd shims that containerd no longer manages.
func (s *sandboxes) endShims() error {
	lost, err := s.shims.FindLost()
	if err != nil {
		return err
	}
	for _, shim := range lost {
		s.cfg.Log.Warn("Killing a shim process that containerd no longer knows", "pid", shim.PID)
		if err := s.shims.Kill(shim); err != nil {
			return err
		}
	}
	return nil
}

// releaseAddresses releases the addresses that no ready sandbox uses.
func (s *sandboxes) releaseAddresses(ctx context.Context) error {
	inUse, err := s.runtime.attachments(ctx)
	if err != nil || s.runtime.network == nil {
		return err
	}
	return s.runtime.network.Collect(ctx, inUse)
}

// awaitRuntime waits until the runtime answers, and then releases the addresses that no ready
// sandbox uses.
func (s *sandboxes) awaitRuntime(ctx context.Context) error {
	for {
		err := s.releaseAddresses(ctx)
		if err == nil {
			return nil
		}
		s.cfg.Log.Debug("Waiting for the container runtime", "err", err)
		if !pause(ctx, s.cfg.Clock, startPoll) {
			return ctx.Err()
		}
	}
}
