// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"

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
