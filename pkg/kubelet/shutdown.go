// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/shutdown"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// newShutdown returns the manager that ends the node's pods before the machine shuts down.
func newShutdown(s *shared, pods *podView, client *cri.Client) *shutdown.Manager {
	return shutdown.New(shutdown.Config{
		Kubelet: s.cfg.Kubelet, Connect: shutdown.System, Pods: pods.live, Changed: s.node.Poke,
		Clock: s.cfg.Clock, Log: s.cfg.Log, Metrics: s.cfg.Metrics,
		End: func(pod *v1.Pod, grace int64) {
			s.workers.Evict(pod.UID, status.Verdict{
				Phase: v1.PodFailed, Reason: shutdown.Reason, Message: shutdown.Message, Disruption: true,
			}, grace)
		},
		Ended: func(ctx context.Context, pod *v1.Pod) bool {
			seen, err := client.Pod(ctx, pod.UID)
			return err == nil && !seen.Active()
		},
	})
}
