// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/ephemeralvolume"
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
		want     int // number of objects of the resource
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
		"ephemeral volume": {"persistentvolumeclaims", ephemeralvolume.New,
			func(ctx context.Context, c kubernetes.Interface) error {
				spec := *template.Spec.DeepCopy()
				spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
					VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
						AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, Resources: v1.VolumeResourceRequirements{
							Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}}}}}
				_, err := c.CoreV1().Pods(ns).Create(ctx, &v1.Pod{ObjectMeta: meta, Spec: spec}, none)
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
				n, err := count(ctx, s.Client, tc.resource)
				return fmt.Sprint(n, err), err == nil && n == tc.want
			})
		})
	}
}

// count returns the number of objects of a resource in the namespace default.
func count(ctx context.Context, c kubernetes.Interface, resource string) (int, error) {
	var all metav1.ListOptions
	switch resource {
	case "pods":
		list, err := c.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, all)
		return len(list.Items), err
	case "persistentvolumeclaims":
		list, err := c.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).List(ctx, all)
		return len(list.Items), err
	default:
		list, err := c.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(ctx, all)
		return len(list.Items), err
	}
}
