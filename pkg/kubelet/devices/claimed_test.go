// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestClaimed checks that a container gets no devices from a plugin for a resource that a resource
// claim provides, even if the plugin has too few devices.
func TestClaimed(t *testing.T) {
	at := dir(t)
	n, f := start(t, at), &fakePlugin{}
	if err := n.plug(t, at, f, gadget); err != nil {
		t.Fatal(err)
	}
	f.lists <- healthy("d1")
	n.awaitDevices(t, 1, 1)
	pod := podOf("u", "i2", "1")
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "special",
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "c0", ResourceName: gadget,
			RequestName: "r"}},
	}
	if err := n.admit(t, pod); err != nil {
		t.Fatal(err)
	}
	if given := n.Assigned("u", "c0"); len(given) != 0 {
		t.Errorf("the init container has %v of the plugin", given)
	}
	if given := n.Assigned("u", "c1"); len(given) != 1 {
		t.Errorf("the other container has %v of the plugin", given)
	}
}
