// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/perturb"
	"keelson.dev/keelson/pkg/controllers/replicaset"
)

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

var (
	podKind = gvr("", "v1", "pods")
)

const (
	ns  = "default"
	app = "web"
)

func ptr[T any](v T) *T { return &v }

func labelled() map[string]string { return map[string]string{"app": app} }

func template(image string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labelled()},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}, AutomountServiceAccountToken: ptr(false)},
	}
}

// account makes the account that pods of the namespace default are given.
func account(ctx context.Context, u *perturb.Users) error {
	_, err := u.Client.CoreV1().ServiceAccounts(ns).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return err
}

// patch is a merge patch.
func patch(body string) (types.PatchType, []byte, metav1.PatchOptions) {
	return types.MergePatchType, []byte(body), metav1.PatchOptions{}
}

// scenarios has a row for each controller.
func scenarios() map[string]perturb.Scenario {
	return map[string]perturb.Scenario{
		replicaset.Name: {
			Members: []perturb.Member{{Account: "replicaset-controller", New: replicaset.New}},
			Kubelet: perturb.Running,
			Kinds:   []schema.GroupVersionResource{gvr("apps", "v1", "replicasets"), podKind},
			Script: func(ctx context.Context, u *perturb.Users) error {
				if err := account(ctx, u); err != nil {
					return err
				}
				set := &appsv1.ReplicaSet{
					ObjectMeta: metav1.ObjectMeta{Name: app},
					Spec:       appsv1.ReplicaSetSpec{Replicas: ptr[int32](5), Selector: &metav1.LabelSelector{MatchLabels: labelled()}, Template: template("i:1")},
				}
				sets := u.Client.AppsV1().ReplicaSets(ns)
				if _, err := sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
					return err
				}
				u.Wait(20 * time.Second)
				for _, n := range []string{"8", "3"} {
					pt, body, po := patch(`{"spec":{"replicas":` + n + `}}`)
					if _, err := sets.Patch(ctx, app, pt, body, po); err != nil {
						return err
					}
					u.Wait(20 * time.Second)
				}
				return nil
			},
		},
		deployment.Name: {
			Members: []perturb.Member{{Account: "deployment-controller", New: deployment.New}, {Account: "replicaset-controller", New: replicaset.New}},
			Kubelet: perturb.Running,
			Kinds:   []schema.GroupVersionResource{gvr("apps", "v1", "deployments"), gvr("apps", "v1", "replicasets"), podKind},
			// For which size an old set was scaled last depends on how far the
			// rollout was when the Deployment's size changed.
			Ignore: func(o *unstructured.Unstructured) {
				if o.GetKind() == "ReplicaSet" {
					notes := o.GetAnnotations()
					delete(notes, "deployment.kubernetes.io/desired-replicas")
					delete(notes, "deployment.kubernetes.io/max-replicas")
					o.SetAnnotations(notes)
				}
			},
			Script: func(ctx context.Context, u *perturb.Users) error {
				if err := account(ctx, u); err != nil {
					return err
				}
				d := &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: app},
					Spec:       appsv1.DeploymentSpec{Replicas: ptr[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labelled()}, Template: template("i:1")},
				}
				deployments := u.Client.AppsV1().Deployments(ns)
				if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
					return err
				}
				u.Wait(20 * time.Second)
				for _, change := range []string{
					`{"spec":{"template":{"metadata":{"annotations":{"v":"2"}}}}}`,
					`{"spec":{"replicas":6}}`,
					`{"spec":{"template":{"metadata":{"annotations":{"v":"3"}}}}}`,
				} {
					pt, body, po := patch(change)
					if _, err := deployments.Patch(ctx, app, pt, body, po); err != nil {
						return err
					}
					u.Wait(20 * time.Second)
				}
				return nil
			},
		},
	}
}
