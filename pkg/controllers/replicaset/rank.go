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

// rank orders pods by who is to go first when a set is scaled down: between pods
// that are equally far, the deletion costs decide that users set, then how many of
// their kind are on the node.
func rank(pods []*v1.Pod, neighbours map[string]int, now time.Time) []*v1.Pod {
	order := controller.DeletionOrder{Now: now, Prefer: func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(neighbours[b.Spec.NodeName], neighbours[a.Spec.NodeName]))
	}}
	out := slices.Clone(pods)
	slices.SortStableFunc(out, order.Compare)
	return out
}

// cost is what the user says that it costs to delete a pod; 0 if that is no plain number.
func cost(p *v1.Pod) int32 {
	text := p.Annotations[v1.PodDeletionCost]
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] != '-' && strconv.FormatInt(n, 10) != text {
		return 0
	}
	return int32(n)
}
