// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/features"
)

// TestPodGroups checks that a deleted PodGroup stays while one of its pods has not ended: until the pod
// ends, or is deleted. Pods of other groups and of other namespaces do not matter.
func TestPodGroups(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Features.Turned = features.Turned{features.GenericWorkload: true}
		c.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
	}})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "podgroup-protection-controller", controller.Options{}, NewPodGroups)
	ctx, groups, pods := t.Context(), s.Client.SchedulingV1beta1().PodGroups("default"), s.Client.CoreV1().Pods("default")
	for _, name := range []string{"free", "ends", "deleted"} {
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
		if _, err := groups.Create(ctx, g, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if name == "free" {
			continue
		}
		if _, err := pods.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			Containers:      []v1.Container{{Name: "c", Image: "i"}},
			SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: ptr.To(name)},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ends", "deleted", "free"} {
		if err := groups.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Eventually(t, "the group without pods goes", gone(groups.Get, "free"))
	for _, name := range []string{"ends", "deleted"} {
		if got, yes := gone(groups.Get, name)(ctx); yes {
			t.Fatalf("the group %s was deleted although it has a pod: %v", name, got)
		}
	}
	pod, err := pods.Get(ctx, "ends", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = v1.PodSucceeded
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the group goes when its pod has ended", gone(groups.Get, "ends"))
	if err := pods.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the group goes when its pod is deleted", gone(groups.Get, "deleted"))
}
