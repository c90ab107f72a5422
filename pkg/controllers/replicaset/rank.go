// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// rank orders pods by who is to go first, as Kubernetes documents it for scaling
// down a ReplicaSet: pods without a node; by phase; those that are not ready; by
// the deletion cost that users set; those on nodes with more of their kind; those
// that became ready, or were created, later, of about the same age at random;
// those that restarted more.
func rank(pods []*v1.Pod, neighbours map[string]int, now time.Time) []*v1.Pod {
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b *v1.Pod) int {
		return cmp.Or(
			boolFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phase(a), phase(b)),
			boolFirst(!controller.Ready(a), !controller.Ready(b)),
			cmp.Compare(cost(a), cost(b)),
			cmp.Compare(neighbours[b.Spec.NodeName], neighbours[a.Spec.NodeName]),
			youngerFirst(readySince(a), readySince(b), now),
			cmp.Compare(restarts(b), restarts(a)),
			youngerFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
			cmp.Compare(a.UID, b.UID), // as good as random
		)
	})
	return out
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func phase(p *v1.Pod) int {
	switch p.Status.Phase {
	case v1.PodPending:
		return 0
	case v1.PodRunning:
		return 2
	}
	return 1
}

func cost(p *v1.Pod) int32 {
	n, err := strconv.ParseInt(p.Annotations["controller.kubernetes.io/pod-deletion-cost"], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func readySince(p *v1.Pod) time.Time {
	if c := controller.Condition(p, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// youngerFirst compares ages by their order of magnitude only, so that not always the newest pod goes.
func youngerFirst(a, b, now time.Time) int {
	return cmp.Compare(magnitude(now.Sub(a)), magnitude(now.Sub(b)))
}

func magnitude(age time.Duration) int { return int(math.Log2(float64(max(age, 1)))) }

func restarts(p *v1.Pod) int32 {
	var n int32
	for i := range p.Status.ContainerStatuses {
		n = max(n, p.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}
