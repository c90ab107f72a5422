// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
)

// QOSClass is the quality of service that a pod asks for: Guaranteed when every
// container has CPU and memory limits that equal its requests, BestEffort when
// none asks for anything, Burstable otherwise. Resources of the pod itself take
// the place of its containers'. Ephemeral containers have none.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	allLimited := true
	count := func(r *corev1.ResourceRequirements) {
		addComputing(requests, r.Requests)
		if addComputing(limits, r.Limits) < 2 {
			allLimited = false
		}
	}
	if own := spec.Resources; own != nil && len(own.Requests)+len(own.Limits) > 0 { // empty ones mean nothing
		addComputing(requests, own.Requests)
		if n := addComputing(limits, own.Limits); len(own.Limits) > 0 && n < 2 {
			allLimited = false
		}
	} else {
		for place, c := range Containers(spec, nil) {
			if place.Role != Ephemeral {
				count(&c.Resources)
			}
		}
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return corev1.PodQOSBestEffort
	case allLimited && equalLists(requests, limits):
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

// addComputing adds the CPU and memory of list that are not zero, and says how
// many of the two there were.
func addComputing(sum, list corev1.ResourceList) int {
	found := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		quantity, ok := list[name]
		if !ok || quantity.Sign() <= 0 {
			continue
		}
		found++
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
	return found
}

func equalLists(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, ok := b[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
