// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// devices evaluates claims of devices: how many of each class they may come to have.
func devices(lister quota.ListerForResourceFunc) quota.Evaluator {
	gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	countName := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*resourcev1.ResourceClaim]{
		resource: gvr.GroupResource(),
		matching: func(n corev1.ResourceName) bool {
			return n == countName || strings.HasSuffix(string(n), corev1.ResourceClaimsPerClass)
		},
		usage: func(c *resourcev1.ResourceClaim) corev1.ResourceList {
			out := corev1.ResourceList{countName: count(1)}
			for class, n := range devicesOf(c) {
				out[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = count(n)
			}
			return out
		},
		list: generic.ListResourceUsingListerFunc(lister, gvr),
	}
}

// devicesOf are the most devices of each class that a claim can get.
func devicesOf(c *resourcev1.ResourceClaim) map[string]int {
	out := map[string]int{}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			out[e.DeviceClassName] += mostDevices(e.AllocationMode, e.Count)
		}
		most := map[string]int{} // it gets one of these
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			most[s.DeviceClassName] = max(most[s.DeviceClassName], mostDevices(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			out[class] += n
		}
	}
	return out
}

// mostDevices is how many devices a request can get; none if its mode is not known.
func mostDevices(mode resourcev1.DeviceAllocationMode, exact int64) int {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return int(exact)
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
