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

// DeletionOrder is the order in which an owner deletes pods when it scales down. It is the order
// that Kubernetes documents for ReplicaSets: pods without a node first, then pending pods, pods
// that are not ready, pods that became ready last, pods with more restarts, and pods that were
// created last.
type DeletionOrder struct {
	// Prefer compares pods that are equal in node, phase and readiness. It may be nil.
	Prefer func(a, b *v1.Pod) int
	// Now is the current time. If it is set, the ages of two pods are compared by their logarithms
	// to base 2, and of two pods with the same rounded logarithm the one with the lower UID is
	// deleted first. So the newest pod is not always deleted first. If Now is zero, exact times are
	// compared.
	Now time.Time
}

// Compare returns a negative number if pod a should be deleted before b.
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

// latestFirst compares the times that a given function returns for two pods. The result is negative
// if a's time is later than b's, or if only a's time is zero.
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

// countRestarts returns two numbers: the highest restart count of the pod's ordinary containers,
// and the highest restart count of its sidecars (restartable init containers).
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
