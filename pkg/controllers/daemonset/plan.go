// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// state is the input of the function decide, which does not change it.
type state struct {
	set *appsv1.DaemonSet
	// hash is the hash of the set's present revision.
	hash string
	// places has an entry for each existing node, and one for each missing node that pods of the
	// set are bound to or have an affinity for.
	places []place
	now    time.Time
	// held returns the back-off during which a failed pod on a node is not replaced, or 0 if there
	// is no back-off or it has ended.
	held func(node string) time.Duration
}

// place is a node with the DaemonSet's pods on it.
type place struct {
	name   string
	exists bool
	verdict
	// pods are the pods that are bound to the node or have an affinity for it, sorted by
	// comparePods. Ended pods that are being deleted are left out.
	pods []*v1.Pod
}

// plan is what one sync does: it creates a pod on each node in create and deletes the pods in
// delete.
type plan struct {
	create []string
	delete []*v1.Pod
	// failed and succeeded are the ended pods in delete.
	failed, succeeded []*v1.Pod
	// again is the time until the next sync that may delete failed pods which this sync keeps. It
	// is 0 if there are no such pods.
	again time.Duration
}

func (p *plan) idle() bool { return len(p.create) == 0 && len(p.delete) == 0 }

// assignPods returns all nodes, each with the pods of the DaemonSet on it.
func assignPods(set *appsv1.DaemonSet, nodes []*v1.Node, pods []*v1.Pod) []place {
	byName := map[string]*place{}
	j := newEligibility(set)
	for _, node := range nodes {
		byName[node.Name] = &place{name: node.Name, exists: true, verdict: j.evaluate(node)}
	}
	for _, pod := range pods {
		name := target(pod)
		if name == "" || ended(pod) && pod.DeletionTimestamp != nil {
			continue
		}
		if byName[name] == nil {
			byName[name] = &place{name: name}
		}
		byName[name].pods = append(byName[name].pods, pod)
	}
	out := make([]place, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.SortFunc(byName[name].pods, comparePods)
		out = append(out, *byName[name])
	}
	return out
}

// comparePods compares two pods on a node: bound pods come first, then older pods.
func comparePods(a, b *v1.Pod) int {
	if (a.Spec.NodeName != "") != (b.Spec.NodeName != "") {
		return -cmp.Compare(len(a.Spec.NodeName), len(b.Spec.NodeName))
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

func (s *state) available(pod *v1.Pod) bool {
	ok, _ := controller.Available(pod, time.Duration(s.set.Spec.MinReadySeconds)*time.Second, s.now)
	return ok
}

// decide returns the plan. If pods are missing on eligible nodes or there are too many, the plan
// creates and deletes these pods. Otherwise the plan is the next step of a rolling update.
func decide(s *state) (plan, error) {
	p := s.manage()
	if !p.idle() || s.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return p, nil
	}
	surge, unavailable, desired, err := s.limits()
	if err != nil {
		return p, err
	}
	if surge == 0 {
		s.rollInPlace(&p, unavailable)
	} else {
		s.rollBeside(&p, surge, desired)
	}
	return p, nil
}

// manage plans to have one pod on each eligible node and none on other nodes.
func (s *state) manage() plan {
	var p plan
	for i := range s.places {
		at := &s.places[i]
		switch {
		case !at.exists:
			// If a node does not exist, the garbage collector deletes pods that are bound to it.
			// Delete the other pods here.
			for _, pod := range at.pods {
				if pod.Spec.NodeName == "" {
					p.delete = append(p.delete, pod)
				}
			}
		case at.run && len(at.pods) == 0:
			p.create = append(p.create, at.name)
		case at.stay:
			s.prune(&p, at)
		default:
			p.delete = append(p.delete, living(at.pods)...)
		}
	}
	return p
}

func living(pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
}

// prune plans which pods on a node to delete. It keeps one running pod, or an old and a new one if
// the update strategy has a surge. It deletes succeeded pods, and one failed pod if the back-off of
// the node has ended. With a surge, it also creates a pod if none is running.
func (s *state) prune(p *plan, at *place) {
	var running []*v1.Pod
	left := s.held(at.name)
	for _, pod := range living(at.pods) {
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			p.succeeded = append(p.succeeded, pod)
			p.delete = append(p.delete, pod)
		case pod.Status.Phase != v1.PodFailed:
			running = append(running, pod)
		case left > 0:
			if p.again == 0 || left < p.again {
				p.again = left
			}
		default:
			p.failed = append(p.failed, pod)
			p.delete = append(p.delete, pod)
			left = retryFirst
		}
	}
	switch {
	case !s.surges():
		if len(running) > 1 {
			p.delete = append(p.delete, running[1:]...)
		}
	case len(running) > 1:
		s.prunePair(p, running)
	case len(running) == 0 && at.run:
		p.create = append(p.create, at.name)
	}
}

// prunePair keeps at most two pods: the oldest pod of the present revision (young) and the oldest
// pod of other revisions (old). It deletes old if that pod is not ready or if young is available.
func (s *state) prunePair(p *plan, running []*v1.Pod) {
	var young, old *v1.Pod
	for _, pod := range running {
		switch present := pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == s.hash; {
		case present && young == nil:
			young = pod
		case !present && old == nil:
			old = pod
		default:
			p.delete = append(p.delete, pod)
		}
	}
	if young != nil && old != nil && (!controller.Ready(old) || s.available(young)) {
		p.delete = append(p.delete, old)
	}
}

// surges reports whether the update strategy allows two pods on a node.
func (s *state) surges() bool {
	n, err := surge(s.set, 1)
	return err == nil && n > 0
}

func surge(set *appsv1.DaemonSet, of int) (int, error) {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || r == nil || r.MaxSurge == nil {
		return 0, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, of, true)
	if err != nil {
		return 0, fmt.Errorf("invalid value for MaxSurge: %w", err)
	}
	return n, nil
}

// limits returns how many pods a rolling update may have above (over) and below (under) the desired
// number of pods, and that number.
func (s *state) limits() (over, under, desired int, err error) {
	for i := range s.places {
		if s.places[i].run {
			desired++
		}
	}
	if over, err = surge(s.set, desired); err != nil {
		return 0, 0, 0, err
	}
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		if under, err = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, desired, true); err != nil {
			return 0, 0, 0, fmt.Errorf("invalid value for MaxUnavailable: %w", err)
		}
	}
	if desired > 0 && over == 0 && under == 0 {
		under = 1 // if both limits were 0, no pod could be replaced
	}
	return over, under, desired, nil
}

// pair returns the pod of the present revision (young) and the pod of another revision (old) on a
// node. ok is false if there are several pods of one kind.
func (s *state) pair(at *place) (young, old *v1.Pod, ok bool) {
	for _, pod := range living(at.pods) {
		which := &old
		if updated(s.set, pod, s.hash) {
			which = &young
		}
		if *which != nil {
			return nil, nil, false
		}
		*which = pod
	}
	return young, old, true
}

// rollInPlace plans to delete old pods, so that later syncs create new ones in their place. It
// deletes all old pods that are not available, and as many available ones as limit allows: at most
// limit pods are unavailable at a time.
func (s *state) rollInPlace(p *plan, limit int) {
	unavailable := 0
	var candidates []*v1.Pod
	for i := range s.places {
		at := &s.places[i]
		if !at.run && len(at.pods) == 0 {
			continue
		}
		young, old, ok := s.pair(at)
		switch {
		case !ok || (young == nil) == (old == nil):
			unavailable++
		case young != nil:
			if !s.available(young) {
				unavailable++
			}
		case !s.available(old):
			p.delete = append(p.delete, old)
			unavailable++
		default:
			candidates = append(candidates, old)
		}
	}
	p.delete = append(p.delete, candidates[:min(max(limit-unavailable, 0), len(candidates))]...)
}

// rollBeside plans to create new pods on nodes that have an old pod, and to delete an old pod when
// the new pod on its node is available. At most limit nodes with an available old pod get a new pod
// at the same time.
func (s *state) rollBeside(p *plan, limit, desired int) {
	surging, available := 0, 0
	var candidates []string // eligible nodes that have an available old pod and no new pod
	var misplaced []*v1.Pod // available old pods on nodes that are not eligible
	for i := range s.places {
		at := &s.places[i]
		young, old, ok := s.pair(at)
		if !ok {
			surging++
			continue
		}
		if first := cmp.Or(old, young); first != nil && s.available(first) {
			available++
		}
		switch {
		case old == nil: // the node has no old pod, so there is nothing to update
		case young != nil && s.available(young):
			p.delete = append(p.delete, old)
		case young != nil:
			surging++
		case s.available(old) && at.run:
			candidates = append(candidates, at.name)
		case s.available(old):
			misplaced = append(misplaced, old)
		case at.run:
			p.create = append(p.create, at.name)
		default:
			p.delete = append(p.delete, old)
		}
	}
	// Delete an old pod on a node that is not eligible only while more pods are available than
	// desired.
	p.delete = append(p.delete, misplaced[:min(max(available-desired, 0), len(misplaced))]...)
	p.create = append(p.create, candidates[:min(max(limit-surging, 0), len(candidates))]...)
}
