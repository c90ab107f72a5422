// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
)

const namespace = "default"

func example(replicas int32) *appsv1.ReplicaSet {
	app := map[string]string{"app": "x"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: namespace, UID: "set"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}},
		},
	}
}

// TestExpectations checks that pod events meet the expectations, even if the cache missed that a
// pod was deleted and another one of the same name was created.
func TestExpectations(t *testing.T) {
	const key = namespace + "/rs"
	pod := func(uid string, gone bool) *v1.Pod {
		set := example(1)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, UID: types.UID(uid),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
			}}}
		if gone {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return p
	}
	for name, tc := range map[string]struct {
		old, pod *v1.Pod
		creates  []types.UID
		deletes  types.UID
		met      bool
	}{
		"created":          {nil, pod("a", false), []types.UID{"a"}, "", true},
		"one of two":       {nil, pod("a", false), []types.UID{"a", "b"}, "", false},
		"another created":  {nil, pod("b", false), []types.UID{"a"}, "", false},
		"changed":          {pod("a", false), pod("a", false), []types.UID{"a"}, "", false},
		"is terminating":   {pod("a", false), pod("a", true), nil, "a", true},
		"gone":             {pod("a", true), nil, nil, "a", true},
		"another goes":     {pod("b", true), nil, nil, "a", false},
		"replaced":         {pod("a", false), pod("b", false), nil, "a", true},
		"replaced by ours": {pod("a", false), pod("b", false), []types.UID{"b"}, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(&rest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			d := controller.Deps{Client: client, Informers: informers.NewSharedInformerFactory(client, 0),
				Events: &record.FakeRecorder{}, Clock: clock.Real()}
			made, err := New(d)
			if err != nil {
				t.Fatal(err)
			}
			c := made.(*Controller[appsv1.ReplicaSet])
			if err := c.kind.informer.GetIndexer().Add(example(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.expected.Create(key, len(tc.creates),
				func(i int) (types.UID, error) { return tc.creates[i], nil }); err != nil {
				t.Fatal(err)
			}
			if tc.deletes != "" {
				c.expected.ExpectDeletion(key, tc.deletes)
			}
			c.follower().PodChanged(tc.old, tc.pod)
			if got := c.expected.Met(key, example(1).UID); got != tc.met {
				t.Errorf("met: %v, want %v", got, tc.met)
			}
		})
	}
}

// TestReplicaSet checks that a ReplicaSet gets its pods, that a deleted pod is replaced, and that the
// pod with the highest deletion cost is kept when the ReplicaSet is scaled down.
func TestReplicaSet(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, serviceaccount.NewDefaultAccounts)
	controllertest.RunAs(t, s, "replicaset-controller", controller.Options{}, New)
	controllertest.Kubelets(t, s, controllertest.Ready)
	sets, ctx := s.Client.AppsV1().ReplicaSets(namespace), t.Context()
	if _, err := sets.Create(ctx, example(3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := func(n int32) {
		t.Helper()
		controllertest.Eventually(t, "ready pods", func(ctx context.Context) (any, bool) {
			set, err := sets.Get(ctx, "rs", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			st := set.Status
			return st, st.Replicas == n && st.ReadyReplicas == n && st.AvailableReplicas == n &&
				st.ObservedGeneration == set.Generation
		})
	}
	ready(3)
	pods, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("pods: %v, %v", pods, err)
	}
	dear := pods.Items[1].Name
	patch := []byte(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"5"}}}`)
	if _, err := s.Client.CoreV1().Pods(namespace).Patch(ctx, dear, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := pods.Items[0].Name
	if err := s.Client.CoreV1().Pods(namespace).Delete(ctx, gone, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// When the controller has replaced the deleted pod, it has also received the earlier event with
	// the deletion cost.
	controllertest.Eventually(t, "another pod instead", func(ctx context.Context) (any, bool) {
		now, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err, false
		}
		return now.Items, len(now.Items) == 3 &&
			!slices.ContainsFunc(now.Items, func(p v1.Pod) bool { return p.Name == gone })
	})
	ready(3)
	if _, err := sets.Patch(ctx, "rs", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`),
		metav1.PatchOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	ready(1)
	if _, err := s.Client.CoreV1().Pods(namespace).Get(ctx, dear, metav1.GetOptions{}); err != nil {
		t.Errorf("the pod that costs most: %v", err)
	}
}
