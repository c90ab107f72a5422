// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
)

// withGroups starts a server that serves workloads and pod groups.
func withGroups(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
		c.Features.Turned = features.Turned{features.GenericWorkload: true}
	}})
}

// member returns a pod of the pod group g.
func member() *corev1.Pod {
	group := "g"
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group},
		Containers:      []corev1.Container{{Name: "c", Image: "i"}},
	}}
}

func createAccount(t *testing.T, s *testserver.Server) {
	t.Helper()
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestGroupsByDefault checks that a server without the feature has neither the kinds nor the field
// of pods.
func TestGroupsByDefault(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	createAccount(t, s)
	groups, err := s.Client.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if g.Name == schedulingv1beta1.GroupName && len(g.Versions) != 1 {
			t.Errorf("versions %v, want only v1", g.Versions)
		}
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/apis/scheduling.k8s.io"} {
		body, err := s.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil || strings.Contains(string(body), "scheduling.k8s.io/v1beta1") {
			t.Errorf("%s lists v1beta1, or %v", path, err)
		}
	}
	if _, err := s.Client.SchedulingV1beta1().PodGroups("").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("pod groups: %v, want not found", err)
	}
	pod, err := s.Client.CoreV1().Pods("default").Create(t.Context(), member(), metav1.CreateOptions{})
	if err != nil || pod.Spec.SchedulingGroup != nil {
		t.Errorf("scheduling group %v, %v, want none", pod.Spec.SchedulingGroup, err)
	}
}

// TestWorkloads checks that a server with the feature creates, validates, updates and deletes
// workloads.
func TestWorkloads(t *testing.T) {
	client := withGroups(t).Client.SchedulingV1beta1().Workloads("default")
	w := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	if _, err := client.Create(t.Context(), w, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without templates: %v, want invalid", err)
	}
	w.Spec.PodGroupTemplates = []schedulingv1beta1.PodGroupTemplate{{Name: "t",
		SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}}}}
	w, err := client.Create(t.Context(), w, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Spec.PodGroupTemplates[0].SchedulingPolicy.Gang.MinCount = 3
	if w, err = client.Update(t.Context(), w, metav1.UpdateOptions{}); err != nil || w.Generation != 0 {
		t.Fatalf("generation %d, %v, want none", w.Generation, err)
	}
	w.Spec.PodGroupTemplates[0].Name = "u"
	if _, err = client.Update(t.Context(), w, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("with another template: %v, want invalid", err)
	}
	if err := client.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestPodGroups checks that a server with the feature creates, validates, updates and deletes pod
// groups and pods of groups, that the priority of a group is that of its class, and that a group is
// protected by a finalizer.
func TestPodGroups(t *testing.T) {
	s := withGroups(t)
	createAccount(t, s)
	ctx, client := t.Context(), s.Client.SchedulingV1beta1().PodGroups("default")
	if _, err := s.Client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	priority := int32(8)
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Spec: schedulingv1beta1.PodGroupSpec{Priority: &priority, PriorityClassName: "high"}}
	_, err := client.Create(ctx, g, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		"priority set in the pod group (8) must match the priority computed (7)") {
		t.Errorf("another priority than that of the class: %v", err)
	}
	g.Spec.Priority = nil
	if _, err := client.Create(ctx, g, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without a policy: %v, want invalid", err)
	}
	g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	g.Status.Conditions = []metav1.Condition{{Type: "A"}}
	if g, err = client.Create(ctx, g, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(g.Finalizers, "scheduling.k8s.io/podgroup-protection") || len(g.Status.Conditions) > 0 ||
		g.Spec.Priority == nil || *g.Spec.Priority != 7 || g.Spec.DisruptionMode.Single == nil {
		t.Errorf("created %+v", g)
	}
	g.Status.Conditions = []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled,
		Status: metav1.ConditionTrue, Reason: "Scheduled", LastTransitionTime: metav1.Now()}}
	if g, err = client.UpdateStatus(ctx, g, metav1.UpdateOptions{}); err != nil || len(g.Status.Conditions) != 1 {
		t.Fatalf("status %+v, %v", g.Status, err)
	}
	g.Spec.PriorityClassName = ""
	if _, err := client.Update(ctx, g, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without a class: %v, want invalid", err)
	}
	checkMember(t, s)
	if err := client.Delete(ctx, "g", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if g, err = client.Get(ctx, "g", metav1.GetOptions{}); err != nil || g.DeletionTimestamp == nil {
		t.Fatalf("after the delete: %+v, %v, want a group with a finalizer", g, err)
	}
	g.Finalizers = nil
	if _, err := client.Update(ctx, g, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "g", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without the finalizer: %v, want not found", err)
	}
}

// checkMember checks that a pod can be created in a group, and cannot leave it.
func checkMember(t *testing.T, s *testserver.Server) {
	t.Helper()
	pods := s.Client.CoreV1().Pods("default")
	invalid := member()
	*invalid.Spec.SchedulingGroup.PodGroupName = "A"
	if _, err := pods.Create(t.Context(), invalid, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.schedulingGroup.podGroupName: Invalid value") {
		t.Errorf("invalid group: %v", err)
	}
	pod, err := pods.Create(t.Context(), member(), metav1.CreateOptions{})
	if err != nil || pod.Spec.SchedulingGroup == nil {
		t.Fatalf("pod %+v, %v, want one with a group", pod, err)
	}
	pod.Spec.SchedulingGroup = nil
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("pod that leaves its group: %v, want invalid", err)
	}
}
