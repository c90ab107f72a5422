// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/shutdown"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// ready returns why pods cannot run on the node, or nil.
func (k *Kubelet) ready() error { return cmp.Or(k.runtime.ready(), k.shutdown.Down()) }

func (k *Kubelet) shutdownConfig() shutdown.Config {
	return shutdown.Config{
		Kubelet: k.cfg.Kubelet, Connect: shutdown.System, Changed: func() { k.node.Poke() }, Clock: k.cfg.Clock, Log: k.cfg.Log, Metrics: k.cfg.Metrics,
		Pods: func() []*v1.Pod {
			return slices.DeleteFunc(k.Pods(), func(pod *v1.Pod) bool {
				return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
			})
		},
		End: func(pod *v1.Pod, grace int64) {
			k.pool.Evict(pod.UID, status.Verdict{Phase: v1.PodFailed, Reason: shutdown.Reason, Message: shutdown.Message, Disruption: true}, grace)
		},
		Ended: func(ctx context.Context, pod *v1.Pod) bool {
			seen, err := k.runtime.client.Pod(ctx, pod.UID)
			return err == nil && !seen.Active()
		},
	}
}
