// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllertest runs controllers against a real API server in a test.
package controllertest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

const (
	patience = 2 * time.Minute
	interval = 5 * time.Millisecond
)

// Run creates controllers with the constructors in news, and runs them against the server s until
// the test ends.
func Run(t *testing.T, s *testserver.Server, o controller.Options,
	news ...func(controller.Deps) (controller.Controller, error)) {
	t.Helper()
	run(t, s, s.Config, o, news...)
}

// RunAs is like Run, but the controllers have only the permissions of a service account in
// kube-system. The informers that the controllers share have all permissions.
func RunAs(t *testing.T, s *testserver.Server, account string, o controller.Options,
	news ...func(controller.Deps) (controller.Controller, error)) {
	t.Helper()
	own := s.UserConfig(t, "system:serviceaccount:kube-system:"+account, "system:serviceaccounts",
		"system:serviceaccounts:kube-system")
	run(t, s, own, o, news...)
}

func run(t *testing.T, s *testserver.Server, own *rest.Config, o controller.Options,
	news ...func(controller.Deps) (controller.Controller, error)) {
	t.Helper()
	md, err := metadata.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	o.Workers = max(o.Workers, 2)
	o.Autoscaling, o.Periods, o.Slices = controller.DefaultAutoscaling(), controller.DefaultPeriods(),
		controller.DefaultSlices()
	d := controller.Deps{
		Client: client, Informers: controller.NewInformers(s.Client, 0), Metadata: md, Discovery: client.Discovery(),
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.Client.Discovery())),
		Events: &record.FakeRecorder{}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Options: o,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(news))
	var made []controller.Controller
	for _, n := range news {
		c, err := n(d)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, c)
	}
	d.Informers.Start(ctx.Done())
	d.Informers.WaitForCacheSync(ctx.Done())
	for _, c := range made {
		go func() { done <- c.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range made {
			if err := <-done; err != nil {
				t.Errorf("controller: %v", err)
			}
		}
		d.Informers.Shutdown()
	})
}

// Account creates the service account default in the namespace default. Without it, pods in that
// namespace cannot be created.
func Account(t *testing.T, s *testserver.Server) {
	t.Helper()
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until ok returns true, and fails the test if that takes too long. The first
// result of ok is what it found; it is printed when the test fails.
func Eventually(t *testing.T, what string, ok func(ctx context.Context) (any, bool)) {
	t.Helper()
	var last any
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		got, yes := ok(ctx)
		if ctx.Err() == nil { // else the request was cut off, and found nothing
			last = got
		}
		return yes, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %+v", what, err, last)
	}
}
