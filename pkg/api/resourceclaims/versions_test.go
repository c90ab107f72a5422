// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"reflect"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"keelson.dev/apiserver/resource"
)

// TestOlderVersions sets the defaults of ResourceClaims of older API versions, converts the claims
// to v1, and converts them back.
func TestOlderVersions(t *testing.T) {
	exact := &resourcev1.ExactDeviceRequest{DeviceClassName: "c",
		AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	for name, tc := range map[string]struct {
		version string
		obj     resource.Object
		want    resourcev1.DeviceRequest
	}{
		"v1beta1": {"v1beta1",
			&resourcev1beta1.ResourceClaim{Spec: resourcev1beta1.ResourceClaimSpec{Devices: resourcev1beta1.DeviceClaim{
				Requests: []resourcev1beta1.DeviceRequest{{Name: "r", DeviceClassName: "c"}}}}},
			resourcev1.DeviceRequest{Name: "r", Exactly: exact}},
		"v1beta1 without a class": {"v1beta1",
			&resourcev1beta1.ResourceClaim{Spec: resourcev1beta1.ResourceClaimSpec{Devices: resourcev1beta1.DeviceClaim{
				Requests: []resourcev1beta1.DeviceRequest{
					{Name: "r", Tolerations: []resourcev1beta1.DeviceToleration{{Key: "k"}}}}}}},
			resourcev1.DeviceRequest{Name: "r",
				Exactly: &resourcev1.ExactDeviceRequest{
					Tolerations: []resourcev1.DeviceToleration{{Key: "k", Operator: resourcev1.DeviceTolerationOpEqual}}}}},
		"v1beta2": {"v1beta2",
			&resourcev1beta2.ResourceClaim{Spec: resourcev1beta2.ResourceClaimSpec{Devices: resourcev1beta2.DeviceClaim{
				Requests: []resourcev1beta2.DeviceRequest{
					{Name: "r", Exactly: &resourcev1beta2.ExactDeviceRequest{DeviceClassName: "c"}}}}}},
			resourcev1.DeviceRequest{Name: "r", Exactly: exact}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range claimVersions() {
				if v.Name != tc.version {
					continue
				}
				v.Default(tc.obj)
				got, err := v.ToStorage(tc.obj)
				if err != nil {
					t.Fatal(err)
				}
				claim, ok := got.(*resourcev1.ResourceClaim)
				if !ok || len(claim.Spec.Devices.Requests) != 1 || !reflect.DeepEqual(claim.Spec.Devices.Requests[0], tc.want) {
					t.Errorf("%+v, want %+v", got, tc.want)
				}
				back, err := v.FromStorage(got)
				if err != nil || !reflect.DeepEqual(back, tc.obj) {
					t.Errorf("back: %+v, %v, want %+v", back, err, tc.obj)
				}
			}
		})
	}
}
