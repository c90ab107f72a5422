// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/provision"
)

// Time limits for the runtime, and the number of pods that it ends at the same time.
const (
	runtimeStart = 30 * time.Second
	podsTimeout  = 2 * time.Minute
	callTimeout  = 30 * time.Second
	podsAtOnce   = 8
)

// endPods ends all pods, so that their networks and mounts are removed. A fault is only printed: the
// later steps find what is left.
func (s *steps) endPods(ctx context.Context) error {
	// The unit has a condition. If it does not hold, systemd starts nothing, and reports no error.
	if !exists(filepath.Join(unitsDir, unit(containerd))) || !exists(argsFile(containerd)) ||
		!exists(provision.ContainerdRoot) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	if err := s.removeSandboxes(ctx); err != nil {
		fmt.Fprintf(s.Out, "         The container runtime could not end all pods, so their processes are killed: %v\n", err)
	}
	return nil
}

// removeSandboxes starts the runtime, if it does not run, and removes all sandboxes.
func (s *steps) removeSandboxes(ctx context.Context) error {
	start, cancel := context.WithTimeout(ctx, runtimeStart)
	defer cancel()
	if err := systemctl(start, "start", unit(containerd)); err != nil {
		return err
	}
	c, err := cri.Dial(cri.Target{Endpoint: "unix://" + provision.ContainerdSocket, Timeout: callTimeout},
		cri.NewMetrics(s.Clock, prometheus.NewRegistry()))
	if err != nil {
		return err
	}
	list, err := c.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return errors.Join(fmt.Errorf("list pods: %w", err), c.Close())
	}
	errs := make([]error, len(list.GetItems()))
	var group errgroup.Group
	group.SetLimit(podsAtOnce)
	for i, item := range list.GetItems() {
		group.Go(func() error {
			if errs[i] = c.StopSandbox(ctx, item.GetId()); errs[i] == nil {
				errs[i] = c.RemoveSandbox(ctx, item.GetId())
			}
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return errors.Join(errors.Join(errs...), c.Close())
}
