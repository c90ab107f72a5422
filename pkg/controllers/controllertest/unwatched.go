// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// RunUnwatched creates a controller and runs it until the test ends, but does not start its informers. The
// test fills their caches and calls the controller's event handlers itself. So it can omit events, as a
// broken watch does.
func RunUnwatched[T controller.Controller](t *testing.T, s *testserver.Server, c clock.Clock,
	build func(controller.Deps) (controller.Controller, error)) (T, informers.SharedInformerFactory) {
	t.Helper()
	factory := controller.NewInformers(s.Client, 0)
	made, err := build(controller.Deps{
		Client: s.Client, Informers: factory, Events: &record.FakeRecorder{}, Clock: c,
		Log: slog.New(slog.DiscardHandler), Options: controller.Options{Workers: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- made.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	return made.(T), factory
}
