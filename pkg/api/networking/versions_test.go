// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"reflect"
	"slices"
	"testing"

	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// TestOlderVersions converts objects of older versions to the stored version and back. The result
// must be equal to the original object.
func TestOlderVersions(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}
	objects := []resource.Object{
		&networkingv1beta1.IPAddress{ObjectMeta: meta,
			Spec: networkingv1beta1.IPAddressSpec{
				ParentRef: &networkingv1beta1.ParentReference{Resource: "services", Name: "n"}}},
		&networkingv1beta1.ServiceCIDR{ObjectMeta: meta,
			Spec: networkingv1beta1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}}},
	}
	for i, v := range slices.Concat(ipAddressVersions(), serviceCIDRVersions()) {
		stored, err := v.ToStorage(objects[i])
		if err != nil {
			t.Fatal(err)
		}
		back, err := v.FromStorage(stored)
		if err != nil || !reflect.DeepEqual(back, objects[i]) {
			t.Errorf("%+v, %v, want %+v", back, err, objects[i])
		}
	}
}
