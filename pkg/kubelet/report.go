// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/restorehold"
)

// While the node is unreported, the kubelet checks every reportPeriod whether unknown pods have ended. It
// lists its pods again every listPeriod until the list is new enough.
const (
	reportPeriod = time.Second
	listPeriod   = 5 * time.Second
)

// reporter reports the node after a restore of the cluster's store: it removes the label Unreported from
// the Node when the pods that the restored store does not know have ended. See package restorehold.
//
// The API server that sends the list of pods may still have the lost history. Its list is older than the
// label. So the reporter waits until the kubelet has pods that are at least as new as the Node with the
// label. The workers and podEvents end the pods that are not among them.
type reporter struct {
	clock clock.Clock
	log   *slog.Logger
	node  markedNode
	pods  knownPods
	// workers returns the UIDs of all pods that have a worker.
	workers func() []types.UID
	runtime runtimePods
	relist  func() // makes podEvents list the runtime, to end pods that have no worker

	value   string // the value of the label that is being handled, or ""
	version string // the resourceVersion of the Node when the label had this value first
	listed  time.Time
}

// markedNode is the node's own Node object.
type markedNode interface {
	Current() *v1.Node
	Seen() <-chan struct{}
	RemoveLabel(ctx context.Context, label, value string) error
	Poke()
}

// knownPods are the pods that the node should run.
type knownPods interface {
	// list lists the pods of the API again, at least as of a resourceVersion.
	list(ctx context.Context, version string) error
	// atLeast reports whether all pods are known as of a resourceVersion of the API.
	atLeast(version string) bool
	all() []*v1.Pod
}

// runtimePods are the pods in the container runtime.
type runtimePods interface {
	Digest(ctx context.Context) (map[types.UID]string, error)
	Pod(ctx context.Context, uid types.UID) (*cri.Pod, error)
}

func (k *Kubelet) reporter() *reporter {
	s := k.shared
	return &reporter{clock: s.cfg.Clock, log: s.cfg.Log, node: s.node, pods: k.pods.sources, workers: s.workers.Pods,
		runtime: k.runtime.client, relist: k.pods.events.again.raise}
}

// run reports the node whenever it is unreported, until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	for ctx.Err() == nil {
		done, err := r.report(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("Failed to report the node after the restore of the cluster", "err", err)
		}
		if !done {
			pause(ctx, r.clock, reportPeriod)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.node.Seen():
		}
	}
	return nil
}

// report reports the node, if it is unreported and everything that the store does not know has ended. It
// returns false if it must be called again soon.
func (r *reporter) report(ctx context.Context) (done bool, err error) {
	node := r.node.Current()
	if node == nil || !restorehold.Waiting(node) {
		return true, nil
	}
	if value := node.Labels[restorehold.Unreported]; value != r.value {
		r.log.Info("Ending pods that the restored cluster does not know", "node", node.Name)
		r.value, r.version, r.listed = value, node.ResourceVersion, time.Time{}
	}
	if !r.pods.atLeast(r.version) {
		now := r.clock.Now()
		if now.Sub(r.listed) < listPeriod {
			return false, nil
		}
		r.listed = now
		return false, r.pods.list(ctx, r.version)
	}
	if ended, err := r.ended(ctx); !ended {
		r.relist()
		return false, err
	}
	if err := r.node.RemoveLabel(ctx, restorehold.Unreported, r.value); err != nil {
		r.node.Poke() // the label may have a new value
		return false, err
	}
	r.log.Info("Node reported after the restore of the cluster", "node", node.Name)
	return true, nil
}

// ended reports whether all pods that the node should not run have ended.
func (r *reporter) ended(ctx context.Context) (bool, error) {
	known := map[types.UID]bool{}
	for _, pod := range r.pods.all() {
		known[pod.UID] = true
	}
	for _, uid := range r.workers() {
		if !known[uid] {
			return false, nil
		}
	}
	digest, err := r.runtime.Digest(ctx)
	if err != nil {
		return false, fmt.Errorf("list the runtime: %w", err)
	}
	for uid := range digest {
		if known[uid] {
			continue
		}
		pod, err := r.runtime.Pod(ctx, uid)
		if err != nil {
			return false, fmt.Errorf("pod %s of the runtime: %w", uid, err)
		}
		if pod.Running() {
			return false, nil
		}
	}
	return true, nil
}
