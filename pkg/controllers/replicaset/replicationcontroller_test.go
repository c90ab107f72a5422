// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
)

func exampleController() *v1.ReplicationController {
	two := int32(2)
	app := map[string]string{"app": "x"}
	return &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc", Namespace: namespace},
		Spec: v1.ReplicationControllerSpec{
			Replicas: &two, MinReadySeconds: 3, Selector: app,
			Template: &v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       v1.PodSpec{ServiceAccountName: "late", Containers: []v1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// TestReadWrite checks that nothing is lost when a ReplicationController is converted to a
// ReplicaSet and back.
func TestReadWrite(t *testing.T) {
	rc := exampleController()
	rc.UID, rc.Generation, rc.ResourceVersion = "u", 4, "7"
	rc.Status = v1.ReplicationControllerStatus{
		Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4, ObservedGeneration: 5,
		Conditions: []v1.ReplicationControllerCondition{{Type: "T", Status: "True", Reason: "R", Message: "M",
			LastTransitionTime: metav1.Unix(1, 0)}},
	}
	if got := write(read(rc)); !equality.Semantic.DeepEqual(got, rc) {
		t.Errorf("there and back: %+v, want %+v", got, rc)
	}
}

// TestReplicationController checks the condition of a ReplicationController that cannot create pods, and
// that it adopts, replaces, releases and deletes pods.
func TestReplicationController(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, New, serviceaccount.NewDefaultAccounts)
	controllertest.RunAs(t, s, "replication-controller", controller.Options{}, NewReplicationController)
	core, ctx := s.Client.CoreV1(), t.Context()
	create := metav1.CreateOptions{}
	rcs := func() *v1.ReplicationController {
		rc, err := core.ReplicationControllers(namespace).Get(ctx, "rc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return rc
	}
	if _, err := core.ReplicationControllers(namespace).Create(ctx, exampleController(), create); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the condition says why there are no pods", func(context.Context) (any, bool) {
		st := rcs().Status
		return st, len(st.Conditions) == 1 && st.Conditions[0].Type == v1.ReplicationControllerReplicaFailure &&
			st.Conditions[0].Reason == "FailedCreate" && st.ObservedGeneration == 1
	})

	loose := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "loose", Labels: map[string]string{"app": "x"}},
		Spec: exampleController().Spec.Template.Spec}
	loose.Spec.ServiceAccountName = "" // use no service account, because none exists here
	controllertest.Eventually(t, "the loose pod is let in", func(ctx context.Context) (any, bool) {
		_, err := core.Pods(namespace).Create(ctx, loose, create)
		return err, err == nil
	})
	if _, err := core.ServiceAccounts(namespace).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, create); err != nil {
		t.Fatal(err)
	}
	pods := func(ctx context.Context) []v1.Pod {
		list, err := core.Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		return list.Items
	}
	owned := func(want int) func(context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			n := 0
			for _, p := range pods(ctx) {
				if ref := metav1.GetControllerOf(&p); ref != nil && ref.Kind == "ReplicationController" &&
					ref.APIVersion == "v1" && ref.UID == rcs().UID {
					n++
				}
			}
			st := rcs().Status
			return st, n == want && int(st.Replicas) == want && len(st.Conditions) == 0
		}
	}
	controllertest.Eventually(t, "the loose pod is adopted, one is made", owned(2))

	patch := []byte(`{"metadata":{"labels":{"app":"y"}}}`)
	if _, err := core.Pods(namespace).Patch(ctx, "loose", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "a pod of other labels is released", func(ctx context.Context) (any, bool) {
		pod, err := core.Pods(namespace).Get(ctx, "loose", metav1.GetOptions{})
		return pod, err == nil && len(pod.OwnerReferences) == 0
	})
	controllertest.Eventually(t, "another is made instead", owned(2))

	patch = []byte(`{"spec":{"replicas":0}}`)
	if _, err := core.ReplicationControllers(namespace).Patch(ctx, "rc", types.MergePatchType, patch,
		metav1.PatchOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "scaled to none", owned(0))
}
