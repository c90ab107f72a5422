// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExtendedResources checks that a container gets the devices of exactly those requests to which
// the pod's status maps its extended resources.
func TestExtendedResources(t *testing.T) {
	const gpu = "example.com/gpu"
	list := v1.ResourceList{gpu: resource.MustParse("1"), "example.com/none": resource.MustParse("0")}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: list}}},
			Containers:     []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list}}, {Name: "other"}},
		},
		Status: v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
			ResourceClaimName: "special", RequestMappings: []v1.ContainerExtendedResourceRequest{
				{ContainerName: "init", ResourceName: gpu, RequestName: "one"},
				{ContainerName: "init", ResourceName: gpu, RequestName: "two"},
				{ContainerName: "main", ResourceName: gpu, RequestName: "two"},
				{ContainerName: "main", ResourceName: "example.com/none", RequestName: "one"},
			},
		}},
	}
	m, d := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("special", "p")), &fakeDriver{}
	if err := m.Register(t.Context(), d.serve(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Container(pod, &pod.Spec.Containers[0]); err == nil {
		t.Error("a container has devices before they are prepared")
	}
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := d.did(); got != "+special" {
		t.Errorf("calls %q", got)
	}
	for c, want := range map[*v1.Container]string{
		&pod.Spec.InitContainers[0]: "vendor/class=1,vendor/class=all,vendor/class=2",
		&pod.Spec.Containers[0]:     "vendor/class=2,vendor/class=all",
		&pod.Spec.Containers[1]:     "",
	} {
		if got, err := m.Container(pod, c); err != nil || strings.Join(got, ",") != want {
			t.Errorf("container %s: %v, %v; want %s", c.Name, got, err, want)
		}
	}
	if got := m.Devices(pod, &pod.Spec.Containers[0]); len(got) != 1 || got[0].Name != "special" ||
		len(got[0].Devices) != 2 {
		t.Errorf("claims of main: %v", got)
	}
	if !Serves(pod, "main", gpu) || Serves(pod, "other", gpu) || Serves(pod, "main", "cpu") {
		t.Error("it is not known what the claim serves")
	}
	if err := m.Unprepare(t.Context(), "p"); err != nil || d.did() != "-special" {
		t.Errorf("unprepare: %v", err)
	}
}
