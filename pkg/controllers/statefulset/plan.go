// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// verb is an action on a pod.
type verb string

const (
	create  verb = "create"  // create its claims, and then the pod
	repair  verb = "repair"  // restore its identity, volumes and claims
	claims  verb = "claims"  // create missing claims, and set the owners of all its claims
	settle  verb = "settle"  // set the owners of its existing claims
	destroy verb = "destroy" // delete the pod, which is not wanted or has ended
	replace verb = "replace" // delete the pod, so that it is recreated at the newest revision
)

type step struct {
	verb verb
	pod  *v1.Pod
}

// plan is what one sync does. Each phase starts when the one before has succeeded. The steps of a
// phase run one by one, or in parallel if the set's podManagementPolicy is Parallel.
type plan struct {
	phases [][]step
	// update is true if all pods exist and an update may replace some. most is how many pods may be
	// unavailable at once, and unavailable how many are.
	update            bool
	most, unavailable int
}

// state is the input of a plan. It is not changed.
type state struct {
	set *appsv1.StatefulSet
	// pods are the set's members.
	pods []*v1.Pod
	// claim returns a claim, or nil if it does not exist.
	claim           func(name string) *v1.PersistentVolumeClaim
	current, update revision
	now             time.Time
}

// decision is the state of a plan that is not yet complete.
type decision struct {
	state
	ordered bool
	// replicas are the wanted pods, by ordinal; placeholders stand for missing pods. condemned are
	// the other pods, the highest ordinal first.
	replicas, condemned []*v1.Pod
	// firstUnavailable is the first pod that is not available.
	firstUnavailable *v1.Pod
	phases           [][]step
	deleting         map[*v1.Pod]bool
}

// decide computes the plan. With OrderedReady, a pod is created only after all pods before it are
// available, and pods are deleted in reverse order; a step that must wait blocks all later steps.
// With Parallel no pod waits for another, but an update still replaces one pod at a time.
func decide(s state) (plan, error) {
	if s.set.DeletionTimestamp != nil {
		return plan{}, nil
	}
	d := &decision{state: s, ordered: s.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement,
		deleting: map[*v1.Pod]bool{}}
	d.sort()
	most, err := mostUnavailable(s.set)
	if err != nil {
		return plan{}, err
	}
	if !d.keepReplicas() || !d.settleCondemned() || !d.shrink() ||
		s.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return plan{phases: d.phases, most: most}, nil
	}
	unavailable := 0
	for _, pod := range d.replicas {
		if !d.available(pod) {
			unavailable++
		}
	}
	d.roll(most, unavailable)
	return plan{d.phases, true, most, unavailable}, nil
}

// mostUnavailable returns how many pods may be unavailable at once during an update.
func mostUnavailable(set *appsv1.StatefulSet) (int, error) {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1, nil
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, replicaCount(set), false)
	if err != nil {
		return 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	return max(most, 1), nil
}

// sort divides the pods into replicas and condemned, and adds placeholders for missing pods.
func (d *decision) sort() {
	d.replicas = make([]*v1.Pod, replicaCount(d.set))
	for _, pod := range d.pods {
		if n := ordinalOf(pod); inRange(d.set, n) {
			d.replicas[n-startOrdinal(d.set)] = pod
		} else {
			d.condemned = append(d.condemned, pod)
		}
	}
	for i, pod := range d.replicas {
		if pod == nil {
			d.replicas[i] = placeholder(d.set, d.revisionFor(i), startOrdinal(d.set)+i)
		}
	}
	slices.SortFunc(d.condemned, func(a, b *v1.Pod) int { return cmp.Compare(ordinalOf(b), ordinalOf(a)) })
	for _, pod := range slices.Concat(d.replicas, reversed(d.condemned)) {
		if !d.available(pod) {
			d.firstUnavailable = pod
			break
		}
	}
}

func reversed(pods []*v1.Pod) []*v1.Pod {
	out := slices.Clone(pods)
	slices.Reverse(out)
	return out
}

// revisionFor returns the revision for creating the i-th replica. It is the current revision if the
// ordinal is below the partition or if an update has not replaced the pod yet, and otherwise the
// update revision.
func (d *decision) revisionFor(i int) revision {
	strategy := d.set.Spec.UpdateStrategy
	old := 0
	switch {
	case strategy.RollingUpdate != nil:
		old = partition(d.set)
	case strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType:
		old = int(d.set.Status.CurrentReplicas)
	}
	if i < old {
		return d.current
	}
	return d.update
}

func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// exists reports whether the pod exists in the API server.
func exists(pod *v1.Pod) bool { return pod.Status.Phase != "" }

func terminating(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }

func isRunningReady(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodRunning && controller.Ready(pod)
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

func (d *decision) ready(pod *v1.Pod) bool {
	ok, _ := controller.Available(pod, minReady(d.set), d.now)
	return ok
}

func (d *decision) available(pod *v1.Pod) bool { return d.ready(pod) && !terminating(pod) }

func minReady(set *appsv1.StatefulSet) time.Duration {
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// each calls f for each pod. f returns a step, if any, and whether later pods must wait. each
// reports whether the plan continues with the next kind of steps.
func (d *decision) each(pods []*v1.Pod, f func(pod *v1.Pod) (step, bool)) bool {
	var phase []step
	stopped := false
	for _, pod := range pods {
		s, stop := f(pod)
		if s.verb != "" {
			phase = append(phase, s)
			d.deleting[pod] = d.deleting[pod] || s.verb == destroy
		}
		if stop && d.ordered {
			stopped = true
			break
		}
	}
	if len(phase) > 0 {
		d.phases = append(d.phases, phase)
	}
	return !stopped
}

// keepReplicas creates, repairs and recreates the wanted pods.
func (d *decision) keepReplicas() bool { return d.each(d.replicas, d.keepReplica) }

func (d *decision) keepReplica(pod *v1.Pod) (step, bool) {
	switch {
	case ended(pod) && terminating(pod):
		return step{}, true
	case ended(pod):
		return step{destroy, pod}, true // the pod is recreated when the API server has deleted it
	case !exists(pod) && d.blocked(pod):
		return step{}, true
	case !exists(pod):
		return step{create, pod}, true
	}
	var s step
	if pod.Status.Phase == v1.PodPending && len(d.set.Spec.VolumeClaimTemplates) > 0 && d.wantsClaims(pod) {
		s = step{claims, pod}
	}
	if d.ordered && (terminating(pod) || !isRunningReady(pod) || !d.ready(pod)) {
		return s, true
	}
	if !hasIdentity(pod) || !hasVolumes(d.set, pod) || d.unsettled(pod) {
		s = step{repair, pod}
	}
	return s, false
}

// blocked reports whether a pod must wait until claims of an earlier pod with the same name are
// deleted.
func (d *decision) blocked(pod *v1.Pod) bool {
	return retentionPolicy(d.set).WhenScaled != retain &&
		d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool { return c != nil && stale(c, pod, podKind) })
}

// wantsClaims reports whether a claim of the pod is missing, is being deleted, or has wrong owners.
func (d *decision) wantsClaims(pod *v1.Pod) bool {
	return d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool {
		return c == nil ||
			c.DeletionTimestamp != nil
	}) || d.unsettled(pod)
}

// unsettled reports whether a claim of the pod has wrong owners.
func (d *decision) unsettled(pod *v1.Pod) bool {
	return d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool {
		if c == nil {
			return false
		}
		_, change, _ := claimOwners(c, d.set, pod)
		return change
	})
}

func (d *decision) anyClaim(pod *v1.Pod, f func(*v1.PersistentVolumeClaim) bool) bool {
	for i := range d.set.Spec.VolumeClaimTemplates {
		if f(d.claim(claimName(d.set, d.set.Spec.VolumeClaimTemplates[i].Name, ordinalOf(pod)))) {
			return true
		}
	}
	return false
}

// settleCondemned sets the owners of the claims of condemned pods.
func (d *decision) settleCondemned() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if d.unsettled(pod) {
			return step{settle, pod}, false
		}
		return step{}, false
	})
}

// shrink deletes condemned pods. With OrderedReady, it deletes a pod only if it is available or is
// the first pod that is not.
func (d *decision) shrink() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if terminating(pod) || d.ordered && pod != d.firstUnavailable && !(isRunningReady(pod) && d.ready(pod)) {
			return step{}, true
		}
		return step{destroy, pod}, true
	})
}

// roll replaces pods of older revisions, the highest ordinals first. With maxUnavailable it
// replaces as many pods as may become unavailable. Otherwise it replaces one pod, when all pods
// above it are available.
//
// With Parallel it first replaces outdated pods that are unavailable, up to maxUnavailable at a
// time. Their deletion makes no more pods unavailable. Otherwise a set whose first revision does
// not work could never be updated.
func (d *decision) roll(most, unavailable int) {
	if rolling := d.set.Spec.UpdateStrategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable == nil {
		d.rollOne()
		return
	}
	var phase []step
	add := func(room int, which func(pod *v1.Pod) bool) {
		for i := len(d.replicas) - 1; i >= partition(d.set) && room > 0; i-- {
			if pod := d.replicas[i]; d.outdated(pod) && which(pod) {
				phase = append(phase, step{replace, pod})
				room--
			}
		}
	}
	if d.ordered {
		add(most-unavailable, func(*v1.Pod) bool { return true })
	} else {
		add(most, func(pod *v1.Pod) bool { return !d.available(pod) })
		add(most-unavailable, d.available)
	}
	if len(phase) > 0 {
		d.phases = append(d.phases, phase)
	}
}

func (d *decision) rollOne() {
	for i := len(d.replicas) - 1; i >= partition(d.set); i-- {
		pod := d.replicas[i]
		if d.outdated(pod) {
			d.phases = append(d.phases, []step{{replace, pod}})
			return
		}
		if !d.available(pod) {
			return
		}
	}
}

// outdated reports whether a pod must be replaced. A pod that does not exist yet or is being
// deleted need not be replaced.
func (d *decision) outdated(pod *v1.Pod) bool {
	return revisionOf(pod) != d.update.name && exists(pod) && !terminating(pod) && !d.deleting[pod]
}
