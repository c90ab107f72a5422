// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// rank returns the pods in the order in which they must be deleted when a ReplicaSet is scaled
// down. Pods in the same state are ordered by their deletion cost, which users set in an
// annotation, and then by the number of related pods on their node (neighbours).
func rank(pods []*v1.Pod, neighbours map[string]int, now time.Time) []*v1.Pod {
	order := controller.DeletionOrder{Now: now, Prefer: func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(neighbours[b.Spec.NodeName], neighbours[a.Spec.NodeName]))
	}}
	out := slices.Clone(pods)
	slices.SortStableFunc(out, order.Compare)
	return out
}

// cost returns the deletion cost in a pod's annotation, or 0 if the annotation is missing or not a
// number in its usual form.
func cost(p *v1.Pod) int32 {
	text := p.Annotations[v1.PodDeletionCost]
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] != '-' && strconv.FormatInt(n, 10) != text {
		return 0
	}
	return int32(n)
}
