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

// shortage is the amount of a resource that a pod lacks.
type shortage struct {
	name   v1.ResourceName
	amount int64
}

// shortages returns the resources that the node lacks to run the pod in addition to the others, and
// how much.
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

// asked returns how much of a resource a pod requests.
func asked(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, requests(pod)[name])
}

// lessBy returns the shortages that remain when the pods have ended.
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

// Victims returns the pods to end so that a critical pod fits, and the first resource that it
// lacks. It chooses as few pods as possible of the higher QoS classes and, within a class, the pods
// whose requests come closest to what is missing. It returns no pods if the pod lacks no resource,
// and a Refusal if no set of pods is enough.
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
	// Take from a class only what all lower classes together do not free.
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

// closest takes pods until nothing is missing. Each time it takes the pod after which the least is
// missing and, if several pods are equal in that, the pod with the smallest request.
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

// distance returns how much of the shortage would remain without the pod: the sum of the squares of
// the remaining fractions of all resources.
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
