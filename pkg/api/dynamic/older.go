// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"encoding/json"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// In v1beta1, a request for devices has itself what it asks for exactly, and what a device
// has is below its "basic".

func olderClaims() []resource.Other {
	return []resource.Other{
		resource.OtherForm(older("ResourceClaim"), func(in *resourcev1beta1.ResourceClaim, out *resourcev1.ResourceClaim) {
			takeRequests(&in.Spec, &out.Spec)
		}),
	}
}

func olderTemplates() []resource.Other {
	return []resource.Other{
		resource.OtherForm(older("ResourceClaimTemplate"), func(in *resourcev1beta1.ResourceClaimTemplate, out *resourcev1.ResourceClaimTemplate) {
			takeRequests(&in.Spec.Spec, &out.Spec.Spec)
		}),
	}
}

func olderSlices() []resource.Other {
	return []resource.Other{
		resource.OtherForm(older("ResourceSlice"), func(in *resourcev1beta1.ResourceSlice, out *resourcev1.ResourceSlice) {
			if in.Spec.NodeName == "" {
				out.Spec.NodeName = nil
			}
			if !in.Spec.AllNodes {
				out.Spec.AllNodes = nil
			}
			for i := range in.Spec.Devices {
				if basic := in.Spec.Devices[i].Basic; basic != nil {
					take(basic, &out.Spec.Devices[i])
				}
			}
		}),
	}
}

func older(kind string) schema.GroupVersionKind {
	return resourcev1beta1.SchemeGroupVersion.WithKind(kind)
}

func takeRequests(in *resourcev1beta1.ResourceClaimSpec, out *resourcev1.ResourceClaimSpec) {
	for i := range in.Devices.Requests {
		r := &in.Devices.Requests[i]
		if r.DeviceClassName != "" || r.Selectors != nil || r.AllocationMode != "" || r.Count != 0 ||
			r.AdminAccess != nil || r.Tolerations != nil || r.Capacity != nil {
			exactly := &resourcev1.ExactDeviceRequest{}
			take(r, exactly)
			out.Devices.Requests[i].Exactly = exactly
		}
	}
}

// take sets what the two call the same. Both are of the API: JSON has all of them.
func take(in, out any) {
	if data, err := json.Marshal(in); err == nil {
		_ = json.Unmarshal(data, out)
	}
}
