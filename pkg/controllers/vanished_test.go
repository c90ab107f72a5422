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

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

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
	for name, tc := range map[string]struct {
		resource string
		build    constructor
		create   creator
		want     int // number of objects of the resource
	}{
		"replica set":      {"pods", replicaset.New, createReplicaSet(3), 3},
		"daemon set":       {"pods", daemonset.New, createDaemonSet, 2},
		"job":              {"pods", job.New, createJob(3, batchv1.NonIndexedCompletion), 3},
		"deployment":       {"replicasets", deployment.New, createDeployment(1), 1},
		"ephemeral volume": {"persistentvolumeclaims", ephemeralvolume.New, createPod(addEphemeralVolume), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, fake := start(t, "n1", "n2"), clocktesting.NewFakeClock(time.Now())
			disturbed := disturb(s, vanishing(tc.resource))
			controllertest.Run(t, disturbed, controller.Options{}, func(d controller.Deps) (controller.Controller, error) {
				d.Clock = fake
				return tc.build(d)
			})
			if err := tc.create(t.Context(), s.Client, "a", "a"); err != nil {
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
		list, err := c.CoreV1().Pods(ns).List(ctx, all)
		return len(list.Items), err
	case "persistentvolumeclaims":
		list, err := c.CoreV1().PersistentVolumeClaims(ns).List(ctx, all)
		return len(list.Items), err
	default:
		list, err := c.AppsV1().ReplicaSets(ns).List(ctx, all)
		return len(list.Items), err
	}
}
