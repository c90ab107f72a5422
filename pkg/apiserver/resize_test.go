// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestResizeBeyondTheNode checks that a resize that exceeds the size of the node is rejected, and
// that a resize that exceeds its free resources is accepted.
func TestResizeBeyondTheNode(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("1Gi")}
	for name, system := range map[string]string{"n": "linux", "w": "windows"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelOSStable: system}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
		if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"there": "n", "lost": "nowhere", "other": "w", "pending": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Name: "c", Image: "i",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"),
						corev1.ResourceMemory: resource.MustParse("1Mi")}},
			}}}}
		if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const prefix = `pods "%s" is forbidden: `
	for _, tc := range []struct {
		pod, cpu, memory string
		want             string // text of the error
		cause            metav1.CauseType
	}{
		{"there", "2", "1Gi", "", ""},
		{"there", "2001m", "1Gi",
			"node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000", "NodeCapacity"},
		{"there", "3", "2Gi", "node didn't have enough allocatable resources: cpu, requested: 3000, " +
			"allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824", "NodeCapacity"},
		{"lost", "2", "1Mi", `node "nowhere" not found`, ""},
		{"other", "2", "1Mi", `pod resize is only supported on linux nodes, node "w" is "windows"`, "UnsupportedPlatform"},
		{"other", "1", "1Mi", "", ""}, // a resize that changes nothing
		{"pending", "9", "1Mi", "", ""},
	} {
		patch := fmt.Sprintf(
			`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":%q,"memory":%q}}}]}}`, tc.cpu, tc.memory)
		_, err := c.CoreV1().Pods("default").Patch(t.Context(), tc.pod, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "resize")
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s to %s, %s: %v", tc.pod, tc.cpu, tc.memory, err)
			}
			continue
		}
		status := (*apierrors.StatusError)(nil)
		if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonForbidden ||
			status.ErrStatus.Message != fmt.Sprintf(prefix, tc.pod)+tc.want {
			t.Errorf("%s to %s, %s: %v, want %s", tc.pod, tc.cpu, tc.memory, err, tc.want)
			continue
		}
		var causes []string
		for _, c := range status.ErrStatus.Details.Causes {
			causes = append(causes, string(c.Type))
		}
		if got := strings.Join(causes, " "); got != string(tc.cause) {
			t.Errorf("%s to %s, %s: causes %q, want %q", tc.pod, tc.cpu, tc.memory, got, tc.cause)
		}
	}
}

// resizePod creates a pod on a node, with an ordinary and a restartable init container.
func resizePod(t *testing.T, c kubernetes.Interface, name, node string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	has := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}}
	}
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node,
		InitContainers: []corev1.Container{
			{Name: "once", Image: "i", Resources: has()}, {Name: "side", Image: "i", RestartPolicy: &always, Resources: has()},
		},
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: has()}},
	}}
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// resizeNode creates a node that has allocatable resources and declares the given features.
func resizeNode(t *testing.T, c kubernetes.Interface, name string, features ...string) {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("1Gi")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, DeclaredFeatures: features}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestResizeOfInitContainers checks that only CPU and memory of init containers can change.
func TestResizeOfInitContainers(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	resizeNode(t, c, "n", "InPlacePodVerticalScalingInitContainers")
	resizePod(t, c, "p", "n")
	const invalid = `Pod "p" is invalid: `
	const strategic, direct = types.StrategicMergePatchType, types.JSONPatchType
	for _, tc := range []struct {
		name, patch string
		kind        types.PatchType
		want        string // text of the error
	}{
		{"once", `{"spec":{"initContainers":[{"name":"once","resources":{"requests":{"cpu":"2",` +
			`"memory":"2Mi"},"limits":{"cpu":"3"}}}]}}`, strategic, ""},
		{"sidecar", `{"spec":{"initContainers":[{"name":"side","resources":{"requests":{"cpu":"2"}}}]}}`, strategic, ""},
		{"storage of once", `{"spec":{"initContainers":[{"name":"once",` +
			`"resources":{"requests":{"ephemeral-storage":"2Mi"}}}]}}`, strategic,
			invalid + "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar " +
				"containers are mutable"},
		{"removal", `[{"op":"remove","path":"/spec/initContainers/0/resources/requests/memory"}]`, direct,
			invalid + "spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed"},
		{"removal of a limit", `[{"op":"remove","path":"/spec/initContainers/0/resources/limits/cpu"}]`, direct,
			invalid + "spec.initContainers[0].resources.limits: Forbidden: resource limits cannot be removed"},
		{"policy", `{"spec":{"initContainers":[{"name":"once","resizePolicy":[{"resourceName":"cpu",` +
			`"restartPolicy":"RestartContainer"}]}]}}`, strategic,
			invalid + "[spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: " +
				"\"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers, " +
				"spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable, " +
				"spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of " +
				"RestartContainer cannot be resized]"},
		// Kubernetes ignores the changed image, so the resize succeeds.
		{"class",
			`{"spec":{"initContainers":[{"name":"once","image":"other","resources":{"requests":{"cpu":"1"}}}]}}`, strategic, ""},
	} {
		_, err := c.CoreV1().Pods("default").Patch(t.Context(), "p", tc.kind, []byte(tc.patch),
			metav1.PatchOptions{}, "resize")
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	pod, err := c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	once := pod.Spec.InitContainers[0]
	if got := once.Resources; got.Requests.Cpu().String() != "1" || got.Requests.Memory().String() != "2Mi" ||
		got.Limits.Cpu().String() != "3" || once.Image != "i" || pod.Generation != 4 {
		t.Errorf("generation %d, image %s, resources %+v", pod.Generation, once.Image, got)
	}
}

// TestResizeWithoutTheFeature checks that a resize is rejected if the node does not declare the
// feature.
func TestResizeWithoutTheFeature(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	resizeNode(t, c, "old")
	resizePod(t, c, "p", "old")
	resizePod(t, c, "pending", "")
	for _, tc := range []struct{ pod, patch, want string }{
		{"p", `{"spec":{"initContainers":[{"name":"once","resources":{"requests":{"cpu":"2"}}}]}}`,
			`pods "p" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers ` +
				`which are not available on node "old"`},
		{"p", `{"spec":{"initContainers":[{"name":"side","resources":{"requests":{"cpu":"2"}}}]}}`, ""},
		{"p", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`, ""},
		{"p", `{"spec":{"resources":{"requests":{"cpu":"5"}}}}`,
			`pods "p" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling ` +
				`which are not available on node "old"`},
		{"pending", `{"spec":{"initContainers":[{"name":"once","resources":{"requests":{"cpu":"2"}}}]}}`, ""},
	} {
		_, err := c.CoreV1().Pods("default").Patch(t.Context(), tc.pod, types.StrategicMergePatchType,
			[]byte(tc.patch), metav1.PatchOptions{}, "resize")
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s of %s: %v, want %q", tc.patch, tc.pod, err, tc.want)
		}
	}
	if err := c.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Admission reads nodes from the cache. Wait until the cache has the deletion, which is when
	// this read returns NotFound.
	_, err := c.CoreV1().Nodes().Get(t.Context(), "old", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"initContainers":[{"name":"once","resources":{"requests":{"cpu":"2"}}}]}}`)
	_, err = c.CoreV1().Pods("default").Patch(t.Context(), "p", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "resize")
	if want := `pods "p" is forbidden: node "old" not found`; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
