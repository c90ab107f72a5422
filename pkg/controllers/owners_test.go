// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const ns = metav1.NamespaceDefault

// constructor is the constructor of a controller.
type constructor = func(controller.Deps) (controller.Controller, error)

// creator creates an object with the given name, for which controllers create other objects. These have
// the label app with the given value.
type creator func(ctx context.Context, c kubernetes.Interface, name, app string) error

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func labels(app string) map[string]string { return map[string]string{"app": app} }

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels(app)}
}

// template returns a template of pods that tolerate all taints, including the taint of nodes that are
// not ready.
func template(app string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(app)}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c", Image: "i"}}, Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
	}}
}

func createReplicaSet(replicas int32) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		_, err := c.AppsV1().ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta(name),
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector(app), Template: template(app)},
		}, metav1.CreateOptions{})
		return err
	}
}

func createReplicationController(replicas int32) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		_, err := c.CoreV1().ReplicationControllers(ns).Create(ctx, &v1.ReplicationController{ObjectMeta: meta(name),
			Spec: v1.ReplicationControllerSpec{Replicas: &replicas, Selector: labels(app), Template: new(template(app))},
		}, metav1.CreateOptions{})
		return err
	}
}

func createDaemonSet(ctx context.Context, c kubernetes.Interface, name, app string) error {
	_, err := c.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta(name),
		Spec: appsv1.DaemonSetSpec{Selector: selector(app), Template: template(app)},
	}, metav1.CreateOptions{})
	return err
}

// createStatefulSet returns a creator of StatefulSets whose pods have the given volume claims.
func createStatefulSet(replicas int32, claims ...v1.PersistentVolumeClaim) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		_, err := c.AppsV1().StatefulSets(ns).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta(name),
			Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector(app), Template: template(app),
				VolumeClaimTemplates: claims},
		}, metav1.CreateOptions{})
		return err
	}
}

func createDeployment(replicas int32) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		_, err := c.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{ObjectMeta: meta(name),
			Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(app), Template: template(app)},
		}, metav1.CreateOptions{})
		return err
	}
}

func createJob(pods int32, mode batchv1.CompletionMode) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		once := template(app)
		once.Spec.RestartPolicy = v1.RestartPolicyNever
		_, err := c.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: meta(name), Spec: batchv1.JobSpec{
			Completions: &pods, Parallelism: &pods, CompletionMode: &mode, Template: once,
		}}, metav1.CreateOptions{})
		return err
	}
}

// createPod returns a creator of a pod whose spec is modified by change.
func createPod(change func(*v1.PodSpec)) creator {
	return func(ctx context.Context, c kubernetes.Interface, name, app string) error {
		t := template(app)
		change(&t.Spec)
		_, err := c.CoreV1().Pods(ns).Create(ctx,
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.Labels}, Spec: t.Spec}, metav1.CreateOptions{})
		return err
	}
}

func claimSpec() v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// addEphemeralVolume adds a generic ephemeral volume to a pod's spec.
func addEphemeralVolume(s *v1.PodSpec) {
	s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: claimSpec()},
	}}}}
}

// start starts an API server with nodes of the given names.
func start(t *testing.T, nodes ...string) *testserver.Server {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	for _, name := range nodes {
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: meta(name)},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// disturb returns the server s with a wrapped transport in its client configuration. Controllers that
// run against the result use the wrapped transport, but the informers do not.
func disturb(s *testserver.Server, wrap func(http.RoundTripper) http.RoundTripper) *testserver.Server {
	out := *s
	out.Config = rest.CopyConfig(s.Config)
	out.Config.Wrap(wrap)
	return &out
}
