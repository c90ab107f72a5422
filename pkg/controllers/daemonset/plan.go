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

// state is the input of a plan. It is not changed.
type state struct {
	set *appsv1.DaemonSet
	// hash is the hash of the present revision.
	hash string
	// places has an entry for each existing node, and one for each missing node that the node
	// affinity of a pod names.
	places []place
	now    time.Time
	// held returns how much longer a failed pod on a node is kept.
	held func(node string) time.Duration
}

// place is a node with the set's pods.
type place struct {
	name   string
	exists bool
	verdict
	// pods are the pods that are on the node or require it, in the order of comparePods, without
	// ended pods that are being deleted.
	pods []*v1.Pod
}

// plan is what one sync does.
type plan struct {
	// create are the nodes on which to create a pod.
	create []string
	delete []*v1.Pod
	// failed and succeeded are ended pods that are to be deleted.
	failed, succeeded []*v1.Pod
	// again is when to sync again for failed pods that were kept, or 0.
	again time.Duration
}

func (p *plan) idle() bool { return len(p.create) == 0 && len(p.delete) == 0 }

// assignPods assigns pods to nodes.
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

// comparePods orders the pods of a node: bound pods first, then by age.
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

// decide computes the plan. It first plans to create missing pods and to delete surplus pods. If no
// pods are missing or surplus, it plans the next step of an update.
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

// manage plans one pod for each eligible node and no pods for the other nodes.
func (s *state) manage() plan {
	var p plan
	for i := range s.places {
		at := &s.places[i]
		switch {
		case !at.exists:
			// The garbage collector deletes pods bound to a missing node, but not pods that wait
			// for it.
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

// prune keeps one pod on a node, or two during an update, and deletes the others.
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

// prunePair keeps two of several pods: the first one of the present revision (new) and the first
// one of another revision (old). It keeps the old pod only while the old pod is ready and the new
// one is not available.
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

// surges reports whether an update may run two pods on a node.
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

// limits returns how many pods an update may have above (over) and below (under) the desired
// number.
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
		under = 1 // with 0 and 0 no pod could ever be replaced
	}
	return over, under, desired, nil
}

// pair returns the pods of the present and of another revision on a node. ok is false if there are
// several pods of one revision. Then manage must delete the surplus ones first.
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

// rollInPlace deletes old pods, so that they are recreated. It deletes all that are not available,
// and available ones as long as no more than limit pods are unavailable.
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

// rollBeside creates new pods in addition to old ones, and deletes an old pod when the new one on
// its node is available. At most limit new pods are on nodes whose old pod is available.
func (s *state) rollBeside(p *plan, limit, desired int) {
	surging, available := 0, 0
	var candidates []string // nodes whose old pod is available
	var misplaced []*v1.Pod // available old pods on ineligible nodes
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
		case old == nil: // there is nothing to update on this node
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
	// Delete old pods on ineligible nodes only when enough pods are available on eligible ones.
	p.delete = append(p.delete, misplaced[:min(max(available-desired, 0), len(misplaced))]...)
	p.create = append(p.create, candidates[:min(max(limit-surging, 0), len(candidates))]...)
}
