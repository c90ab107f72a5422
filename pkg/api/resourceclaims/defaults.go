// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/keelson/pkg/api/unset"
)

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultDevices(&c.Spec.Devices)
	if c.Status.Allocation == nil {
		return
	}
	for i := range c.Status.Allocation.Devices.Results {
		defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
	}
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultDevices(&t.Spec.Spec.Devices)
}

func defaultDevices(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		request := &d.Requests[i]
		if exact := request.Exactly; exact != nil {
			unset.Fill(&exact.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if exact.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				unset.Fill(&exact.Count, 1)
			}
			defaultTolerations(exact.Tolerations)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			unset.Fill(&sub.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if sub.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				unset.Fill(&sub.Count, 1)
			}
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		unset.Fill(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func resourceSliceFields(s *resourcev1.ResourceSlice) fields.Set {
	nodeName := ""
	if s.Spec.NodeName != nil {
		nodeName = *s.Spec.NodeName
	}
	return fields.Set{"spec.nodeName": nodeName, "spec.driver": s.Spec.Driver}
}
