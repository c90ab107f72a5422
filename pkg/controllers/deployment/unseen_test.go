// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"log/slog"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestUnseenSet checks a Deployment whose template changes while the cache does not show the
// ReplicaSet of the earlier template yet. The new ReplicaSet must be created only when the cache
// shows the earlier one, and with no more pods than the surge allows.
func TestUnseenSet(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	// The informers are not started; the test fills their caches itself.
	informers := controller.NewInformers(s.Client, 0)
	made, err := New(controller.Deps{
		Client: s.Client, Informers: informers, Events: &record.FakeRecorder{}, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler), Options: controller.Options{Workers: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := made.(*Controller), t.Context()
	deployments, sets := s.Client.AppsV1().Deployments(metav1.NamespaceDefault),
		s.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault)
	labels := map[string]string{"app": "web"}
	d, err := deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sync := func() []appsv1.ReplicaSet {
		t.Helper()
		if d, err = deployments.Get(ctx, d.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := informers.Apps().V1().Deployments().Informer().GetIndexer().Update(d); err != nil {
			t.Fatal(err)
		}
		if err := c.sync(ctx, controller.Key(d)); err != nil {
			t.Fatal(err)
		}
		list, err := sets.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	first := sync()
	if len(first) != 1 {
		t.Fatalf("replica sets of the first template: %d", len(first))
	}
	d.Spec.Template.Spec.Containers[0].Image = "two"
	d.ResourceVersion = ""
	if d, err = deployments.Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := sync(); len(got) != 1 {
		t.Errorf("replica sets while the cache does not show the first: %d, want only that one", len(got))
	}
	if err := c.setCache.GetIndexer().Add(&first[0]); err != nil {
		t.Fatal(err)
	}
	c.setChanged(nil, &first[0])
	got := sync()
	if len(got) != 2 {
		t.Fatalf("replica sets once the cache shows it: %d, want the new one too", len(got))
	}
	for _, set := range got {
		if set.UID != first[0].UID && *set.Spec.Replicas != 1 {
			t.Errorf("size of the new replica set: %d, want 1 more than the Deployment's at most", *set.Spec.Replicas)
		}
	}
}
