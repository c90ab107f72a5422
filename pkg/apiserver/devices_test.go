// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestAdminAccess(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AdminAccess: ptr.To(true)}}},
	}}}
	api := s.Client.ResourceV1().ResourceClaims("default")
	_, err := api.Create(t.Context(), claim, metav1.CreateOptions{})
	want := "ResourceClaim.resource.k8s.io \"a\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := s.Client.CoreV1().Namespaces().Patch(t.Context(), "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
