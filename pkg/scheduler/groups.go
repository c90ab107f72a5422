// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/scheduling"
)

// groups finds the gang of a pod. A gang is a set of pods that are placed all at once or not at all.
// A pod names its gang by a PodGroup in its spec, or by annotations.
type groups struct {
	// podGroups has the PodGroups. It is nil without the feature GenericWorkload: then pods are not in
	// PodGroups, whatever their spec says.
	podGroups schedulinglisters.PodGroupLister
}

// podGroupName returns the name of the PodGroup that a pod is in, or "".
func (g groups) podGroupName(pod *v1.Pod) string {
	if of := pod.Spec.SchedulingGroup; g.podGroups != nil && of != nil && of.PodGroupName != nil {
		return *of.PodGroupName
	}
	return ""
}

// name returns the name of a pod's gang, or "" if the pod has none.
func (g groups) name(pod *v1.Pod) string {
	return cmp.Or(g.podGroupName(pod), pod.Annotations[v1alpha1.AnnGang])
}

// key identifies the gang of a pod: by namespace and name of its PodGroup, or by namespace, profile
// and name in its annotations. It returns "" for a pod without a gang.
func (g groups) key(pod *v1.Pod) string {
	switch name := g.name(pod); {
	case name == "":
		return ""
	case g.podGroupName(pod) != "":
		return podGroupKey(pod.Namespace, name)
	default:
		return pod.Namespace + "/" + pod.Spec.SchedulerName + "/" + name
	}
}

// podGroupKey returns the key of the pods of a PodGroup. No annotations give the same key, because a
// namespace has no colon.
func podGroupKey(namespace, name string) string { return "podgroup:" + namespace + "/" + name }

// podGroup returns the PodGroup of a pod. It returns nil if the pod is in none or if the PodGroup does
// not exist.
func (g groups) podGroup(pod *v1.Pod) *schedulingv1beta1.PodGroup {
	name := g.podGroupName(pod)
	if name == "" {
		return nil
	}
	return found(g.podGroups.PodGroups(pod.Namespace).Get(name))
}

// of returns the gang of a pod. placed returns how many pods of a gang are on nodes.
func (g groups) of(pod *v1.Pod, placed func(key string) int) gang {
	out := gang{key: g.key(pod)}
	switch {
	case out.key == "":
		return out
	case g.podGroupName(pod) != "":
		out.group = g.podGroup(pod)
		out.unknown = out.group == nil
		out.size = minCount(out.group)
	default:
		out.size = gangSize(pod)
	}
	out.placed = placed(out.key)
	return out
}

// gangSize returns how many pods of the gang must fit at once, or 0 if the annotation is missing or
// invalid.
func gangSize(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnGangSize])
	if err != nil || n < 1 || n > v1alpha1.MaxGang {
		return 0
	}
	return n
}

// minCount returns how many pods of a PodGroup must be on nodes before single pods are placed. It is 0
// if the PodGroup does not exist or has the policy basic.
func minCount(g *schedulingv1beta1.PodGroup) int {
	if g == nil || g.Spec.SchedulingPolicy.Gang == nil {
		return 0
	}
	return int(g.Spec.SchedulingPolicy.Gang.MinCount)
}

// gang is what the scheduler knows about the gang of a pod. The zero value means that the pod has no
// gang.
type gang struct {
	key    string
	size   int // number of pods that must get nodes at once; 0 if annotations give no valid number
	placed int // number of pods that are on nodes

	group   *schedulingv1beta1.PodGroup // nil if the gang is named by annotations
	unknown bool                        // the gang's PodGroup does not exist
}

// need returns how many pods of the gang must get nodes at once. If it returns 0, pods are placed one
// by one.
//
// Once a gang with annotations has a pod on a node, a replacement, or a pod that was not bound because
// of a crash, does not wait for other pods. The pods of a PodGroup wait until the PodGroup has its
// minimum again, as in Kubernetes.
func (g *gang) need() int {
	switch {
	case g.group != nil:
		return max(g.size-g.placed, 0)
	case g.placed > 0:
		return 0
	}
	return g.size
}

// shortage says, with Kubernetes' words, why the PodGroup cannot be scheduled: in addition to the pods
// that were on nodes before, fits pods fit, and left pods have not been tried. It returns "" if the
// PodGroup can be scheduled, or if the gang has no PodGroup.
func (g *gang) shortage(fits, left int) string {
	least := max(g.size, 1) // at least one pod, also for the policy basic
	if g.group == nil || g.placed+fits+left >= least {
		return ""
	}
	return fmt.Sprintf("minCount (%d) cannot be satisfied: %d scheduled, %d remaining", least, g.placed+fits, left)
}

// check returns an error, with Kubernetes' words, if the given pods of the gang's PodGroup contradict
// the PodGroup or each other.
func (g *gang) check(pods []*v1.Pod) error {
	if g.group == nil {
		return nil
	}
	const all = "all pods in a single pod group should have the same "
	first, want := pods[0], groupPriority(g.group)
	for _, pod := range pods {
		have := (&scheduling.Pod{Pod: pod}).Priority()
		switch {
		case pod.Spec.SchedulerName != first.Spec.SchedulerName:
			return fmt.Errorf(all+".spec.schedulerName set, got: %q and %q", pod.Spec.SchedulerName,
				first.Spec.SchedulerName)
		case have != want:
			return fmt.Errorf(all+"priority as the pod group's priority, got %d and %d", have, want)
		case preemptionPolicy(pod) != preemptionPolicy(first):
			return fmt.Errorf(all+"preemption policy, got %v and %v", preemptionPolicy(pod), preemptionPolicy(first))
		}
	}
	return nil
}

// groupPriority returns the priority of the pods of a PodGroup.
func groupPriority(g *schedulingv1beta1.PodGroup) int32 {
	if g.Spec.Priority == nil {
		return 0
	}
	return *g.Spec.Priority
}

// evictedWhole reports whether the pods of a PodGroup are evicted only together.
func evictedWhole(g *schedulingv1beta1.PodGroup) bool {
	return g.Spec.DisruptionMode != nil && g.Spec.DisruptionMode.All != nil
}
