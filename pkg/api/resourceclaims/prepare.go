// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

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

// dropFreed removes the state of devices that the claim has no longer, so that a client that takes a
// device from a claim need not know which drivers report its state.
func dropFreed(c, old *resourcev1.ResourceClaim) {
	if c.Status.Allocation == nil && old.Status.Allocation != nil {
		c.Status.Devices = nil
		return
	}
	freed := allocatedDevices(&old.Status).Difference(allocatedDevices(&c.Status))
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return freed.Has(statusID(&d)) })
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}
