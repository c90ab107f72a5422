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

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestResizeBeyondTheNode: what a node could never give a pod is refused, what it may later is not.
func TestResizeBeyondTheNode(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for name, system := range map[string]string{"n": "linux", "w": "windows"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: system}}, Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
		if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"there": "n", "lost": "nowhere", "other": "w", "pending": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi")}},
		}}}}
		if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const prefix = `pods "%s" is forbidden: `
	for _, tc := range []struct {
		pod, cpu, memory string
		want             string // of the refusal
		cause            metav1.CauseType
	}{
		{"there", "2", "1Gi", "", ""},
		{"there", "2001m", "1Gi", "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000", "NodeCapacity"},
		{"there", "3", "2Gi", "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824", "NodeCapacity"},
		{"lost", "2", "1Mi", `node "nowhere" not found`, ""},
		{"other", "2", "1Mi", `pod resize is only supported on linux nodes, node "w" is "windows"`, "UnsupportedPlatform"},
		{"other", "1", "1Mi", "", ""}, // nothing changes
		{"pending", "9", "1Mi", "", ""},
	} {
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":%q,"memory":%q}}}]}}`, tc.cpu, tc.memory)
		_, err := c.CoreV1().Pods("default").Patch(t.Context(), tc.pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s to %s, %s: %v", tc.pod, tc.cpu, tc.memory, err)
			}
			continue
		}
		status := (*apierrors.StatusError)(nil)
		if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonForbidden || status.ErrStatus.Message != fmt.Sprintf(prefix, tc.pod)+tc.want {
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
