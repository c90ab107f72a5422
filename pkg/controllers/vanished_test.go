// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/job"
	"keelson.dev/keelson/pkg/controllers/replicaset"
)

// vanishing makes the first create of an object of one resource a dry run. So the client gets a response
// as if the object was created, but its cache never shows the object, as if another client had deleted it
// while the watch was broken.
func vanishing(resource string) func(http.RoundTripper) http.RoundTripper {
	var done atomic.Bool
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+resource) && !done.Swap(true) {
				r = r.Clone(r.Context())
				r.URL.RawQuery = "dryRun=All"
			}
			return next.RoundTrip(r)
		})
	}
}

// TestVanished checks that the controllers replace an object that they have created, but that was deleted
// before the cache showed it.
func TestVanished(t *testing.T) {
	labels := map[string]string{"app": "a"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c", Image: "i"}}, Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
	}}
	once := *template.DeepCopy()
	once.Spec.RestartPolicy = v1.RestartPolicyNever
	meta, none := metav1.ObjectMeta{Name: "a"}, metav1.CreateOptions{}
	const ns = metav1.NamespaceDefault
	for name, tc := range map[string]struct {
		resource string
		build    func(controller.Deps) (controller.Controller, error)
		create   func(ctx context.Context, c kubernetes.Interface) error
		want     int
	}{
		"replica set": {"pods", replicaset.New, func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.AppsV1().ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta,
				Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Selector: selector, Template: template}}, none)
			return err
		}, 3},
		"daemon set": {"pods", daemonset.New, func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta,
				Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, none)
			return err
		}, 2},
		"job": {"pods", job.New, createJob(once, batchv1.NonIndexedCompletion), 3},
		"deployment": {"replicasets", deployment.New, func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{ObjectMeta: meta,
				Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, none)
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{})
			controllertest.Account(t, s)
			for _, node := range []string{"n1", "n2"} {
				if _, err := s.Client.CoreV1().Nodes().Create(t.Context(),
					&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, none); err != nil {
					t.Fatal(err)
				}
			}
			disturbed, fake := *s, clocktesting.NewFakeClock(time.Now())
			disturbed.Config = rest.CopyConfig(s.Config)
			disturbed.Config.Wrap(vanishing(tc.resource))
			controllertest.Run(t, &disturbed, controller.Options{}, func(d controller.Deps) (controller.Controller, error) {
				d.Clock = fake
				return tc.build(d)
			})
			if err := tc.create(t.Context(), s.Client); err != nil {
				t.Fatal(err)
			}
			controllertest.Eventually(t, "all objects exist", func(ctx context.Context) (any, bool) {
				fake.Step(10 * time.Second)
				if tc.resource == "pods" {
					list, err := s.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
					return list, err == nil && len(list.Items) == tc.want
				}
				list, err := s.Client.AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{})
				return list, err == nil && len(list.Items) == tc.want
			})
		})
	}
}
