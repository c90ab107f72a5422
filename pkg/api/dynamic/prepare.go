// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"keelson.dev/apiserver/resource"
)

// stampTaints says of taints since when they are there, where nobody has.
func stampTaints(ctx context.Context, s *resourcev1.ResourceSlice) {
	now := resource.Time(ctx)
	now = now.Rfc3339Copy()
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			if t := &s.Spec.Devices[i].Taints[j]; t.TimeAdded == nil {
				t.TimeAdded = &now
			}
		}
	}
}

// dropFreed forgets what was said of devices that the claim has no more, so that
// who takes a device from a claim need not know who else speaks of it.
func dropFreed(c, old *resourcev1.ResourceClaim) {
	freed := allocatedDevices(&old.Status).Difference(allocatedDevices(&c.Status))
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return freed.Has(statusID(&d)) })
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}
