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

// verb is what is done to a pod.
type verb string

const (
	create  verb = "create"  // its claims, and then the pod
	repair  verb = "repair"  // its identity, volumes and claims
	claims  verb = "claims"  // create those that are missing, and settle who owns them
	settle  verb = "settle"  // who owns its claims
	destroy verb = "destroy" // the pod, which is not to be or has ended
	replace verb = "replace" // the pod, to have it made anew at another revision
)

type step struct {
	verb verb
	pod  *v1.Pod
}

// plan is what one sync does: phase after phase, each when the one before went
// through; the steps of a phase one by one, or in parallel if the set wants it so.
type plan struct {
	phases [][]step
	// update says that all pods asked for are there and may be replaced by newer
	// ones, most of which may be unavailable at once; so many are.
	update            bool
	most, unavailable int
}

// state is what a plan is made from. Nothing in it is changed.
type state struct {
	set *appsv1.StatefulSet
	// pods are the set's members.
	pods []*v1.Pod
	// claim looks a claim up, nil: there is none.
	claim           func(name string) *v1.PersistentVolumeClaim
	current, update revision
	now             time.Time
}

// decision is a plan in the making.
type decision struct {
	state
	ordered bool
	// replicas are the pods asked for, by ordinal; of those that are not there
	// only the name and the revision are known. Condemned are the others, the
	// highest ordinal first.
	replicas, condemned []*v1.Pod
	// troubled is the first pod that is not available.
	troubled *v1.Pod
	phases   [][]step
	doomed   map[*v1.Pod]bool
}

// decide makes the plan. With OrderedReady pods come one after the other, each
// when all before it are available, and go the other way round; whatever keeps
// one from coming or going keeps all later steps waiting. With Parallel none
// waits for another, but an update is still done pod by pod.
func decide(s state) (plan, error) {
	if s.set.DeletionTimestamp != nil {
		return plan{}, nil
	}
	d := &decision{state: s, ordered: s.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, doomed: map[*v1.Pod]bool{}}
	d.sort()
	most, err := mostUnavailable(s.set)
	if err != nil {
		return plan{}, err
	}
	if !d.keep() || !d.settleCondemned() || !d.shrink() || s.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
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

// mostUnavailable is how many pods may be unavailable at once for an update.
func mostUnavailable(set *appsv1.StatefulSet) (int, error) {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1, nil
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, size(set), false)
	if err != nil {
		return 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	return max(most, 1), nil
}

// sort puts the pods where they belong and makes up those that are missing.
func (d *decision) sort() {
	d.replicas = make([]*v1.Pod, size(d.set))
	for _, pod := range d.pods {
		if n := ordinalOf(pod); within(d.set, n) {
			d.replicas[n-first(d.set)] = pod
		} else {
			d.condemned = append(d.condemned, pod)
		}
	}
	for i, pod := range d.replicas {
		if pod == nil {
			d.replicas[i] = toBe(d.set, d.revisionFor(i), first(d.set)+i)
		}
	}
	slices.SortFunc(d.condemned, func(a, b *v1.Pod) int { return cmp.Compare(ordinalOf(b), ordinalOf(a)) })
	for _, pod := range slices.Concat(d.replicas, reversed(d.condemned)) {
		if !d.available(pod) {
			d.troubled = pod
			break
		}
	}
}

func reversed(pods []*v1.Pod) []*v1.Pod {
	out := slices.Clone(pods)
	slices.Reverse(out)
	return out
}

// revisionFor is the revision that the i-th replica is made at: below the
// partition, and where an update has not come by yet, the current one.
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

// created tells whether the pod is one that the API server has.
func created(pod *v1.Pod) bool { return pod.Status.Phase != "" }

func terminating(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }

func runs(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning && controller.Ready(pod) }

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

// each walks over pods; f returns a step, if there is one, and whether nothing
// after it may be done now. It tells whether the plan goes on.
func (d *decision) each(pods []*v1.Pod, f func(pod *v1.Pod) (step, bool)) bool {
	var phase []step
	stopped := false
	for _, pod := range pods {
		s, stop := f(pod)
		if s.verb != "" {
			phase = append(phase, s)
			d.doomed[pod] = d.doomed[pod] || s.verb == destroy
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

// keep brings up what is asked for.
func (d *decision) keep() bool { return d.each(d.replicas, d.keepOne) }

func (d *decision) keepOne(pod *v1.Pod) (step, bool) {
	switch {
	case ended(pod) && terminating(pod):
		return step{}, true
	case ended(pod):
		return step{destroy, pod}, true // it is made anew when it is gone
	case !created(pod) && d.blocked(pod):
		return step{}, true
	case !created(pod):
		return step{create, pod}, true
	}
	var s step
	if pod.Status.Phase == v1.PodPending && len(d.set.Spec.VolumeClaimTemplates) > 0 && d.wantsClaims(pod) {
		s = step{claims, pod}
	}
	if d.ordered && (terminating(pod) || !runs(pod) || !d.ready(pod)) {
		return s, true
	}
	if !identified(pod) || !mounted(d.set, pod) || d.unsettled(pod) {
		s = step{repair, pod}
	}
	return s, false
}

// blocked tells whether a pod has to wait for claims of a former pod of its
// name to go: the policy is to delete them.
func (d *decision) blocked(pod *v1.Pod) bool {
	return policy(d.set).WhenScaled != retain && d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool { return c != nil && stale(c, pod, podKind) })
}

// wantsClaims tells whether a claim of the pod is missing, going, or not settled.
func (d *decision) wantsClaims(pod *v1.Pod) bool {
	return d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool { return c == nil || c.DeletionTimestamp != nil }) || d.unsettled(pod)
}

// unsettled tells whether a claim of the pod has not the owners that it is to have.
func (d *decision) unsettled(pod *v1.Pod) bool {
	return d.anyClaim(pod, func(c *v1.PersistentVolumeClaim) bool {
		if c == nil {
			return false
		}
		_, change, _ := owners(c, d.set, pod)
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

// settleCondemned has the claims of pods that go owned as the policy wants.
func (d *decision) settleCondemned() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if d.unsettled(pod) {
			return step{settle, pod}, false
		}
		return step{}, false
	})
}

// shrink ends what is not asked for: in order, only one that is available or
// the one that troubles all others.
func (d *decision) shrink() bool {
	return d.each(d.condemned, func(pod *v1.Pod) (step, bool) {
		if terminating(pod) || d.ordered && pod != d.troubled && !(runs(pod) && d.ready(pod)) {
			return step{}, true
		}
		return step{destroy, pod}, true
	})
}

// roll replaces pods of other revisions than the newest, the highest ordinals first: with
// maxUnavailable as many as may become unavailable, otherwise one when all above it are
// available.
//
// With Parallel, outdated pods that are unavailable go first, up to maxUnavailable at a time. They
// need no room, because their end makes nothing unavailable. Otherwise a set whose first revision
// does not work could never be updated.
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

// outdated tells whether a pod is to be replaced; one that comes or goes anyway is not.
func (d *decision) outdated(pod *v1.Pod) bool {
	return revisionOf(pod) != d.update.name && created(pod) && !terminating(pod) && !d.doomed[pod]
}
