// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"keelson.dev/api/quantity"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// tolerance is the relative deviation from the target, downwards and upwards, that causes no
// scaling.
type tolerance struct{ down, up float64 }

func (t tolerance) holds(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// usage is the ratio of the measured usage to the target, with the values for the status.
type usage struct {
	ratio float64
	// percent is the usage as a percentage of the pods' requests. average is the average per pod,
	// in thousandths.
	percent int32
	average int64
}

// measure compares the usage of pods with a target value. The first function computes the usage from
// samples. The second one returns the value that is assumed for a pod without a sample, if the
// number of pods may decrease.
type measure struct {
	of      func(samples) (usage, error)
	missing func(pod string) int64
}

var errNoMatch = errors.New("no metrics returned matched known pods")

// ofRequests returns a measure whose target is a percentage of the pods' requests.
func ofRequests(requests map[string]int64, target int32) measure {
	return measure{
		of: func(s samples) (usage, error) {
			used, asked, n := int64(0), int64(0), int64(0)
			for pod, x := range s {
				if request, ok := requests[pod]; ok {
					used, asked, n = used+x.value, asked+request, n+1
				}
			}
			if asked == 0 {
				return usage{}, errNoMatch
			}
			percent := percentOf(used, asked)
			return usage{float64(percent) / float64(target), percent, used / n}, nil
		},
		missing: func(pod string) int64 { return requests[pod] * int64(max(100, target)) / 100 },
	}
}

// percentOf returns used as a percentage of asked, rounded down. The result is at most the maximum
// of int32, because the field in the status has this type.
func percentOf(used, asked int64) int32 {
	hi, lo := bits.Mul64(uint64(max(used, 0)), 100)
	if hi >= uint64(asked) {
		return math.MaxInt32
	}
	percent, _ := bits.Div64(hi, lo, uint64(asked))
	return int32(min(percent, math.MaxInt32))
}

// ofAverage returns a measure whose target is an average value per pod.
func ofAverage(target int64) measure {
	return measure{
		of: func(s samples) (usage, error) {
			used := int64(0)
			for _, x := range s {
				used += x.value
			}
			average := used / int64(len(s))
			return usage{ratio: float64(average) / float64(target), average: average}, nil
		},
		missing: func(string) int64 { return target },
	}
}

// group divides pods by whether their samples can be used. ready is the number of pods with a
// usable sample. unready are the pods that are pending or whose sample is from their start, and
// missing the pods without a sample. Pods that are being deleted or have failed are in no group.
// group deletes all samples that cannot be used from s. starts reports whether a sample is from the
// start of a pod.
func group(pods []*v1.Pod, s samples, starts func(*v1.Pod, sample) bool) (ready int, unready, missing []string) {
	for _, pod := range pods {
		x, found := s[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed:
			delete(s, pod.Name)
		case pod.Status.Phase == v1.PodPending:
			unready = append(unready, pod.Name)
			delete(s, pod.Name)
		case !found:
			missing = append(missing, pod.Name)
		case starts(pod, x):
			unready = append(unready, pod.Name)
			delete(s, pod.Name)
		default:
			ready++
		}
	}
	return ready, unready, missing
}

// neverStarting is passed to propose for metrics other than CPU: for these, samples from the start
// of a pod are used too.
func neverStarting(*v1.Pod, sample) bool { return false }

// starting reports whether a CPU sample is from the start of a pod, so that it does not show how
// much the pod will use later.
func starting(pod *v1.Pod, x sample, o controller.Autoscaling, now time.Time) bool {
	c := controller.Condition(pod, v1.PodReady)
	if c == nil || pod.Status.StartTime == nil {
		return true
	}
	if pod.Status.StartTime.Add(o.CPUInitialization).After(now) {
		return c.Status == v1.ConditionFalse || x.at.Before(c.LastTransitionTime.Add(x.window))
	}
	return c.Status == v1.ConditionFalse && pod.Status.StartTime.Add(o.ReadinessDelay).After(c.LastTransitionTime.Time)
}

// propose returns how many pods are required. For pods that are not ready or have no sample it
// assumes a usage that makes the change smaller. These assumed values never reverse the direction
// of the change.
func propose(current int32, pods []*v1.Pod, s samples, m measure, t tolerance,
	starts func(*v1.Pod, sample) bool) (int32, usage, error) {
	if len(pods) == 0 {
		return 0, usage{}, errNoPods
	}
	ready, unready, missing := group(pods, s, starts)
	if len(s) == 0 {
		return 0, usage{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	u, err := m.of(s)
	if err != nil {
		return 0, u, err
	}
	if len(missing) == 0 && (len(unready) == 0 || u.ratio <= 1) {
		if t.holds(u.ratio) {
			return current, u, nil
		}
		return ceil(u.ratio * float64(ready)), u, nil
	}
	for _, pod := range missing {
		switch {
		case u.ratio < 1:
			s[pod] = sample{value: m.missing(pod)}
		case u.ratio > 1:
			s[pod] = sample{}
		}
	}
	if u.ratio > 1 {
		for _, pod := range unready {
			s[pod] = sample{}
		}
	}
	again, err := m.of(s)
	if err != nil {
		return 0, u, err
	}
	if t.holds(again.ratio) || (u.ratio < 1) != (again.ratio < 1) && u.ratio != 1 && again.ratio != 1 {
		return current, u, nil
	}
	n := ceil(again.ratio * float64(len(s)))
	if again.ratio < 1 && n > current || again.ratio > 1 && n < current {
		return current, u, nil
	}
	return n, u, nil
}

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// ceil rounds up. The result is at most the maximum of int32.
func ceil(x float64) int32 {
	if x >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(math.Ceil(x))
}

// byRatio returns how many pods are required if a metric's total value is ratio times its target.
func byRatio(current int32, ratio float64, pods []*v1.Pod, t tolerance) (int32, error) {
	if current == 0 {
		return ceil(ratio), nil
	}
	if t.holds(ratio) {
		return current, nil
	}
	if len(pods) == 0 {
		return 0, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodRunning && controller.Ready(pod) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// perPod divides the total value of a metric by the target value per pod, and returns the required
// number of pods, rounded up. It also returns the average per existing pod, or the total if no pods
// exist.
//
// If the average is within the tolerance of the target, the required number is that in the scaled
// object's spec, the argument wanted. During a rollout, more pods may exist.
func perPod(wanted, existing int32, total, target int64, t tolerance) (n int32, average int64) {
	if existing == 0 {
		return ceil(float64(total) / float64(target)), total
	}
	n = wanted
	if ratio := float64(total) / (float64(target) * float64(existing)); !t.holds(ratio) {
		n = ceil(float64(total) / float64(target))
	}
	if total == math.MaxInt64 {
		return n, total
	}
	return n, int64(math.Ceil(float64(total) / float64(existing)))
}

// requestsOf returns the requests of pods for a resource, in thousandths. If container is not "",
// only that container's request counts. Otherwise the pod-level request counts or, if there is
// none, the sum over containers and sidecars.
func requestsOf(pods []*v1.Pod, container string, name v1.ResourceName) (map[string]int64, error) {
	out := map[string]int64{}
	for _, pod := range pods {
		n, err := requestOf(pod, container, name)
		if err != nil {
			return nil, err
		}
		out[pod.Name] = n
	}
	return out, nil
}

func requestOf(pod *v1.Pod, container string, name v1.ResourceName) (int64, error) {
	if container == "" && podresources.IsPodLevelRequestsSet(pod) {
		q, ok := podresources.PodRequests(pod, podresources.PodResourcesOptions{ExcludeOverhead: true})[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, pod.Name)
		}
		return quantity.Milli(q), nil
	}
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	sum, found := int64(0), container == ""
	for _, c := range containers {
		if container != "" && c.Name != container {
			continue
		}
		q, ok := c.Resources.Requests[name]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, pod.Name)
		}
		sum, found = sum+quantity.Milli(q), true
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return sum, nil
}
