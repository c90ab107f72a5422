// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/replicaset"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
)

// TestRevisions checks that each template gets a revision number, that a template which is used
// again gets a new, highest number, and that the controller's own writes do not change the
// generation.
func TestRevisions(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, serviceaccount.NewDefaultAccounts)
	controllertest.RunAs(t, s, "deployment-controller", controller.Options{}, New)
	controllertest.RunAs(t, s, "replicaset-controller", controller.Options{}, replicaset.New)
	controllertest.Kubelets(t, s, controllertest.Ready)
	api, ctx := s.Client.AppsV1().Deployments(metav1.NamespaceDefault), t.Context()
	replicas, labels := int32(2), map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}}},
	}}
	if _, err := api.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct{ image, revision, history string }{{"one", "1", ""}, {"two", "2", ""},
		{"one", "3", "1"}} {
		if i > 0 {
			patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"` + step.image + `"}]}}}}`)
			if _, err := api.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		generation := int64(i + 1)
		controllertest.Eventually(t, "rollout of revision "+step.revision, func(ctx context.Context) (any, bool) {
			d, err := api.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			return d, d.Generation == generation && d.Annotations[annotationRevision] == step.revision && complete(d, d.Status)
		})
		sets, err := s.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets.Items {
			if image := set.Spec.Template.Spec.Containers[0].Image; image != step.image {
				continue
			}
			if got := set.Annotations[annotationRevision]; got != step.revision {
				t.Errorf("step %d: revision of the replica set: %q, want %q", i, got, step.revision)
			}
			if got := set.Annotations[annotationHistory]; got != step.history {
				t.Errorf("step %d: revisions it had before: %q, want %q", i, got, step.history)
			}
		}
	}
}

// TestRecreate checks that the new ReplicaSet is created only after the status of the old one also
// shows no pods, so that a client that watches both never sees pods of both.
func TestRecreate(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "deployment-controller", controller.Options{}, New)
	deployments, sets, ctx := s.Client.AppsV1().Deployments(metav1.NamespaceDefault),
		s.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault), t.Context()
	replicas, labels := int32(1), map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}}},
	}}
	if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	count := func(n int, size int32) []appsv1.ReplicaSet {
		t.Helper()
		var list *appsv1.ReplicaSetList
		controllertest.Eventually(t, "replica sets", func(ctx context.Context) (any, bool) {
			var err error
			if list, err = sets.List(ctx, metav1.ListOptions{}); err != nil {
				return err, false
			}
			return list, len(list.Items) == n && *list.Items[0].Spec.Replicas == size
		})
		return list.Items
	}
	say := func(set appsv1.ReplicaSet, pods int32) {
		t.Helper()
		set.Status.Replicas = pods
		if _, err := sets.UpdateStatus(ctx, &set, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	say(count(1, 1)[0], 1)
	change := func(spec string, generation int64) {
		t.Helper()
		if _, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(`{"spec":`+spec+`}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "sync", func(ctx context.Context) (any, bool) {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			return d, d.Status.ObservedGeneration == generation
		})
	}
	change(`{"template":{"spec":{"containers":[{"name":"c","image":"two"}]}}}`, 2)
	count(1, 0)
	// Now the old ReplicaSet is scaled down and has no pods, but its status still shows one pod.
	change(`{"revisionHistoryLimit":5}`, 3)
	say(count(1, 0)[0], 0)
	controllertest.Eventually(t, "new replica set", func(ctx context.Context) (any, bool) {
		list, err := sets.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err, false
		}
		return list, len(list.Items) == 2
	})
}
