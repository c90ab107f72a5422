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

// verb is what a step does with a pod.
type verb string

const (
	create  verb = "create"  // create missing claims of the pod, and then the pod
	repair  verb = "repair"  // correct the pod's identity and volumes, and its claims
	claims  verb = "claims"  // create missing claims of the pod, and correct the owners of all its claims
	settle  verb = "settle"  // correct the owners of the pod's existing claims
	destroy verb = "destroy" // delete the pod, because it is not wanted or has ended
	replace verb = "replace" // delete the pod, so that it is created again at the update revision
)

type step struct {
	verb verb
	pod  *v1.Pod
}

// plan is what one sync does. A phase begins when all steps of the phase before have succeeded. The
// steps of a phase run one after another, or in parallel if the StatefulSet's podManagementPolicy
// is Parallel.
type plan struct {
	phases [][]step
	// update is true if the plan is at the stage where it may replace pods for an update. most is
	// how many pods may be unavailable at once, and unavailable how many are.
	update            bool
	most, unavailable int
}

// state is the input of the function decide, which does not change it.
type state struct {
	set *appsv1.StatefulSet
	// pods are the set's pods.
	pods []*v1.Pod
	// claim returns the claim with the given name, or nil if it does not exist.
	claim           func(name string) *v1.PersistentVolumeClaim
	current, update revision
	now             time.Time
}

// decision is a plan that is being made, with the data that is needed for it.
type decision struct {
	state
	ordered bool
	// replicas are the wanted pods by ordinal, with placeholders for missing pods. condemned are
	// the other pods, with the highest ordinal first. They are deleted.
	replicas, condemned []*v1.Pod
	// firstUnavailable is the pod with the lowest ordinal that is not available.
	firstUnavailable *v1.Pod
	phases           [][]step
	deleting         map[*v1.Pod]bool
}

// decide makes a plan. With the policy OrderedReady, a pod is created only when all pods before it
// are available, and pods are deleted in reverse order. If a step must wait, all later steps wait
// too. With Parallel, no pod waits for another. In both cases an update makes no more than
// maxUnavailable pods unavailable, by default one.
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

// mostUnavailable returns how many pods an update may make unavailable at once.
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

// sort divides the pods into replicas and condemned, adds placeholders for missing pods, and sets
// firstUnavailable.
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

// revisionFor returns the revision at which the replica with index i is created if it is missing.
// It is the current revision if i is below the partition, or if there is no partition and the
// update has not reached this pod yet. Otherwise it is the update revision.
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

// exists reports whether a pod exists on the API server, so that it is not a placeholder.
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

// each calls f for each pod and adds the returned steps to the plan as one phase. The second result
// of f is whether later pods must wait; it applies only with the policy OrderedReady. The method
// returns false if some pods must wait, so that the plan ends with this phase.
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

// keepReplicas plans to create, correct and replace the pods that the StatefulSet should have.
func (d *decision) keepReplicas() bool { return d.each(d.replicas, d.keepReplica) }

func (d *decision) keepReplica(pod *v1.Pod) (step, bool) {
	switch {
	case ended(pod) && terminating(pod):
		return step{}, true
	case ended(pod):
		return step{destroy, pod}, true // a later sync creates the pod again when the API server has deleted this one
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

// blocked reports whether a pod cannot be created until the claims of an earlier pod with its name
// are deleted.
func (d *decision) blocked(pod *v1.Pod) bool {
	return retentionPolicy(d.set).WhenScaled != retain &&
		d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool { return c != nil && stale(c, pod, podKind) })
}

// wantsClaims reports whether a claim of a pod is missing, is being deleted, or has wrong owners.
func (d *decision) wantsClaims(pod *v1.Pod) bool {
	return d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool {
		return c == nil ||
			c.DeletionTimestamp != nil
	}) || d.unsettled(pod)
}

// unsettled reports whether a claim of a pod has wrong owners.
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

// settleCondemned plans to correct the owners of the claims of condemned pods, which are to be
// deleted because their ordinals are out of range.
func (d *decision) settleCondemned() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if d.unsettled(pod) {
			return step{settle, pod}, false
		}
		return step{}, false
	})
}

// shrink plans to delete the condemned pods, whose ordinals are out of range. With the policy
// OrderedReady, it deletes a pod that is not available only if all pods before it are available.
func (d *decision) shrink() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if terminating(pod) || d.ordered && pod != d.firstUnavailable && !(isRunningReady(pod) && d.ready(pod)) {
			return step{}, true
		}
		return step{destroy, pod}, true
	})
}

// roll plans to replace pods of older revisions, those with the highest ordinals first. If
// maxUnavailable is set, it replaces as many pods as may become unavailable. Otherwise it replaces
// one pod, when all pods with higher ordinals are available.
//
// If maxUnavailable is set and the policy is Parallel, roll first replaces outdated pods that are
// already unavailable, at most maxUnavailable of them. Otherwise a StatefulSet whose pods never
// become available could not be updated.
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

// outdated reports whether a pod must be replaced because of its revision. Placeholders and pods
// that are being deleted are not replaced.
func (d *decision) outdated(pod *v1.Pod) bool {
	return revisionOf(pod) != d.update.name && exists(pod) && !terminating(pod) && !d.deleting[pod]
}
