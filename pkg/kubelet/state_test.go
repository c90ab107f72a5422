// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/source"
)

func TestCountPods(t *testing.T) {
	static := metav1.ObjectMeta{Annotations: map[string]string{source.AnnotationSource: source.File}}
	got := countPods([]*v1.Pod{
		{Status: v1.PodStatus{Phase: v1.PodRunning}, Spec: v1.PodSpec{EphemeralContainers: make([]v1.EphemeralContainer, 2)}},
		{Status: v1.PodStatus{Phase: v1.PodSucceeded}}, {Status: v1.PodStatus{Phase: v1.PodFailed}}, {},
		{ObjectMeta: static, Status: v1.PodStatus{Phase: v1.PodPending}},
	}, 3)
	if got.Desired[false] != 4 || got.Desired[true] != 1 || got.Active[false] != 2 || got.Active[true] != 1 ||
		got.Mirrors != 3 || got.Ephemeral != 2 {
		t.Errorf("%+v", got)
	}
}
