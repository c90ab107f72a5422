// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestInitContainerOfBefore checks a stored pod that has an init container whose resize policy asks
// for a restart. New pods must not have such a container. The pod can be updated, but the container
// cannot be resized.
func TestInitContainerOfBefore(t *testing.T) {
	const policy = "must not be set to 'RestartContainer' for non-sidecar initContainers"
	old := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", ResourceVersion: "1"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "once", Image: "i",
					ResizePolicy: []corev1.ContainerResizePolicy{
						{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}}},
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	for _, list := range [][]corev1.Container{old.Spec.InitContainers, old.Spec.Containers} {
		list[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	defaultPod(old)
	preparePodCreate(t.Context(), old)
	if errs := validatePod(t.Context(), old); len(errs) != 1 || errs[0].Detail != policy {
		t.Errorf("created: %v", errs)
	}
	if errs := validatePodUpdate(t.Context(), old.DeepCopy(), old); len(errs) > 0 {
		t.Errorf("unchanged: %v", errs)
	}
	more := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	pod := old.DeepCopy()
	pod.Spec.Containers[0].Resources.Requests = more
	if errs := validatePodResize(t.Context(), pod, old); len(errs) > 0 {
		t.Errorf("another container: %v", errs)
	}
	pod.Spec.InitContainers[0].Resources.Requests = more
	errs := validatePodResize(t.Context(), pod, old)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.initContainers[0]: Forbidden: non-sidecar "+
		"init containers with a resize policy of RestartContainer cannot be resized") {
		t.Errorf("resized: %v", errs)
	}
}

// TestPodLevelResources checks that a new pod gets missing pod-level resources and the QoS class
// that follows from them, that updates keep pod-level resources that they do not name, and that a
// resize keeps the claims of containers.
func TestPodLevelResources(t *testing.T) {
	row := rowOf(t, "pods")
	pod := rowtest.Decode(t, row, "p", `{"metadata":{"namespace":"n"},"spec":{"resources":{"requests":{"cpu":"1"}},
		"resourceClaims":[{"name":"r","resourceClaimName":"r"}],
		"containers":[{"name":"c","image":"i","resources":{"claims":[{"name":"r"}],
			"limits":{"cpu":"1","memory":"1Mi"}}}]},"status":{"qosClass":"BestEffort"}}`).(*corev1.Pod)
	row.PrepareCreate(t.Context(), pod)
	if got := pod.Spec.Resources; got.Limits.Memory().String() != "1Mi" || got.Requests.Memory().String() != "1Mi" {
		t.Errorf("resources of the new pod: %v", got)
	}
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("class of the new pod: %s", pod.Status.QOSClass)
	}

	forgetful := pod.DeepCopy()
	forgetful.Spec.Resources = nil
	row.PrepareUpdate(t.Context(), forgetful, pod)
	if !equality.Semantic.DeepEqual(forgetful.Spec, pod.Spec) || forgetful.Generation != pod.Generation {
		t.Errorf("an update that does not name pod-level resources changes them: %v", forgetful.Spec.Resources)
	}

	resized := pod.DeepCopy()
	resized.Spec.Resources = nil
	resized.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("500m")
	resized.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("500m")
	resize := row.Subresource("resize")
	resize.PrepareUpdate(t.Context(), resized, pod)
	if !equality.Semantic.DeepEqual(resized.Spec.Resources, pod.Spec.Resources) {
		t.Errorf("pod-level resources of the resized pod: %v", resized.Spec.Resources)
	}
	if errs := resize.ValidateUpdate(t.Context(), resized, pod); len(errs) > 0 {
		t.Errorf("resize of a container with a claim: %v", errs)
	}
}
