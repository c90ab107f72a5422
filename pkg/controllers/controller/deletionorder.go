// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// DeletionOrder orders the pods of an owner that scales down, as Kubernetes documents it. Pods are
// deleted in this order: pods without a node; pending before running ones; pods that are not ready;
// pods that became ready last; pods with more restarts; pods that were created last.
type DeletionOrder struct {
	// Prefer, unless it is nil, compares pods that are equal in node, phase and readiness.
	Prefer func(a, b *v1.Pod) int
	// Now, unless it is zero, is the time at which ages are compared on a logarithmic scale.
	// Then the newest pod is not always deleted first: among pods of about the same age the
	// UIDs decide, which is as good as random.
	Now time.Time
}

// Compare returns a negative number if a should be deleted before b.
func (l DeletionOrder) Compare(a, b *v1.Pod) int {
	stage := cmp.Or(
		trueFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
		cmp.Compare(phaseRank(a), phaseRank(b)),
		trueFirst(!Ready(a), !Ready(b)),
	)
	if stage == 0 && l.Prefer != nil {
		stage = l.Prefer(a, b)
	}
	return cmp.Or(
		stage,
		l.latestFirst(a, b, readySince),
		moreFirst(countRestarts(a), countRestarts(b)),
		l.latestFirst(a, b, func(p *v1.Pod) time.Time { return p.CreationTimestamp.Time }),
	)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func phaseRank(p *v1.Pod) int {
	switch p.Status.Phase {
	case v1.PodPending:
		return 0
	case v1.PodRunning:
		return 2
	}
	return 1
}

// latestFirst compares two times of pods. The later time comes first, and a zero time before all
// others.
func (l DeletionOrder) latestFirst(a, b *v1.Pod, of func(*v1.Pod) time.Time) int {
	s, t := of(a), of(b)
	switch {
	case s.Equal(t):
		return 0
	case s.IsZero() || t.IsZero():
		return trueFirst(s.IsZero(), t.IsZero())
	case l.Now.IsZero():
		return t.Compare(s)
	}
	return cmp.Or(cmp.Compare(magnitude(l.Now.Sub(s)), magnitude(l.Now.Sub(t))), cmp.Compare(a.UID, b.UID))
}

func magnitude(age time.Duration) int {
	if age <= 0 {
		return -1
	}
	return int(math.Log2(float64(age)))
}

func readySince(p *v1.Pod) time.Time {
	if c := Condition(p, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// countRestarts returns the highest restart count of a container and of a sidecar.
func countRestarts(p *v1.Pod) [2]int32 {
	var n [2]int32
	for i := range p.Status.ContainerStatuses {
		n[0] = max(n[0], p.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; Sidecar(p, s.Name) {
			n[1] = max(n[1], s.RestartCount)
		}
	}
	return n
}

func moreFirst(a, b [2]int32) int { return slices.Compare(b[:], a[:]) }
