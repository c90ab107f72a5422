// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// shortage is the amount of a resource that the node lacks to run a pod.
type shortage struct {
	name   v1.ResourceName
	amount int64
}

// shortages returns which resources the node lacks to run the pod together with the other given pods,
// and how much of each resource.
func shortages(pod *v1.Pod, others []*v1.Pod, limits v1.ResourceList) []shortage {
	var out []shortage
	want := requests(pod)
	want[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	for _, name := range inOrder(want) {
		has, known := limits[name]
		ask := want[name]
		if !known || ask.IsZero() {
			continue
		}
		missing := amount(name, ask) - amount(name, has)
		for _, other := range others {
			missing += asked(other, name)
		}
		if missing > 0 {
			out = append(out, shortage{name, missing})
		}
	}
	return out
}

// asked returns how much of a resource the pod requests, in the unit of the function amount.
func asked(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, requests(pod)[name])
}

// lessBy returns the shortages that remain if the given pods end.
func lessBy(missing []shortage, pods ...*v1.Pod) []shortage {
	var out []shortage
	for _, s := range missing {
		for _, pod := range pods {
			s.amount -= asked(pod, s.name)
		}
		if s.amount > 0 {
			out = append(out, s)
		}
	}
	return out
}

// Victims returns the pods to end so that a critical pod fits on the node, and the first resource
// that the node lacks. It takes a pod only if ending all pods of lower QoS classes would not free
// enough. Within a QoS class, it takes the pods whose requests come closest to what is missing.
//
// Victims returns no pods if the node lacks no resource or the pod is not critical. It returns a
// Refusal if ending all pods that may be preempted is not enough.
func Victims(pod *v1.Pod, others []*v1.Pod, n Node, critical func(*v1.Pod) bool) ([]*v1.Pod, v1.ResourceName,
	*Refusal) {
	missing := shortages(pod, others, n.Allocatable)
	n.Allocatable = nil
	if len(missing) == 0 || !critical(pod) || Check(pod, others, n) != nil {
		return nil, "", nil
	}
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	for _, other := range others {
		if preemptable(pod, other, critical) {
			classes[qos.Class(other)] = append(classes[qos.Class(other)], other)
		}
	}
	best, middle, worst := classes[v1.PodQOSGuaranteed], classes[v1.PodQOSBurstable], classes[v1.PodQOSBestEffort]
	if rest := lessBy(missing, slices.Concat(best, middle, worst)...); len(rest) > 0 {
		var told strings.Builder
		for _, s := range rest {
			fmt.Fprintf(&told, "(res: %s, q: %d), ", s.name, s.amount)
		}
		return nil, "", &Refusal{Reason: "UnexpectedAdmissionError",
			Message: "Unexpected error while attempting to recover from admission failure: " +
				"preemption: error finding a set of pods to preempt: no set of running pods found to " +
				"reclaim resources: [" + told.String() + "]"}
	}
	// From each QoS class, take pods only for the part of the shortage that the other two classes do
	// not cover. If pods of one of those were chosen already, only the chosen pods count.
	best = closest(best, lessBy(missing, slices.Concat(middle, worst)...))
	middle = closest(middle, lessBy(missing, slices.Concat(worst, best)...))
	worst = closest(worst, lessBy(missing, slices.Concat(middle, best)...))
	return slices.Concat(worst, middle, best), missing[0].name, nil
}

func preemptable(pod, other *v1.Pod, critical func(*v1.Pod) bool) bool {
	if critical(pod) && !critical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// closest chooses pods until their requests cover the shortages. In each step, it takes the pod
// whose end would leave the least of the shortages (see distance) or, among equal ones, the pod
// with the smallest request.
func closest(pods []*v1.Pod, missing []shortage) []*v1.Pod {
	var out []*v1.Pod
	pods = slices.Clone(pods)
	for len(missing) > 0 && len(pods) > 0 {
		best := 0
		for i := range pods {
			d, least := distance(pods[i], missing), distance(pods[best], missing)
			if d < least || d == least && smaller(pods[i], pods[best]) {
				best = i
			}
		}
		out = append(out, pods[best])
		missing = lessBy(missing, pods[best])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// distance returns how much of the shortages would remain if the pod ended: the sum over all
// resources of the square of the fraction that remains.
func distance(pod *v1.Pod, missing []shortage) float64 {
	sum := 0.0
	for _, s := range missing {
		if rest := float64(s.amount - asked(pod, s.name)); rest > 0 {
			sum += math.Pow(rest/float64(s.amount), 2)
		}
	}
	return sum
}

func smaller(a, b *v1.Pod) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x, y := asked(a, name), asked(b, name); x != y {
			return x < y
		}
	}
	return false
}
