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

// Loss orders pods by how little is lost when they end, as Kubernetes documents
// it: those without a node; pending ones before running ones; those that are not
// ready; those that became ready last; those that restarted more often; those
// that were created last.
type Loss struct {
	// Prefer, unless it is nil, decides between pods that are equally far.
	Prefer func(a, b *v1.Pod) int
	// Now, unless it is zero, has ages compared by their order of magnitude only, so
	// that not always the newest pod goes; of the same one, UIDs decide, which is as
	// good as chance.
	Now time.Time
}

// Compare is negative if less is lost with a.
func (l Loss) Compare(a, b *v1.Pod) int {
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
		moreFirst(restarts(a), restarts(b)),
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

// latestFirst has what has no time before all.
func (l Loss) latestFirst(a, b *v1.Pod, of func(*v1.Pod) time.Time) int {
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

// restarts are the most restarts of a container, and of a sidecar.
func restarts(p *v1.Pod) [2]int32 {
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

// Sidecar tells whether an init container of that name runs along with the others.
func Sidecar(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}
