// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestEmulatedKinds checks that an API server that emulates 1.36 serves all kinds that the
// controllers watch if they emulate 1.36 too. Otherwise the controller manager would wait forever for
// the caches of the other kinds.
func TestEmulatedKinds(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Features.Emulated = 36 }})
	o, err := parse([]string{"--emulated-version=1.36"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.controller.RootCA = []byte("ca")
	shared := sharedDeps(o, s.Client, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	shared.Events = &record.FakeRecorder{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var made []controller.Controller
	for _, e := range controllers.Table() {
		if !o.runs(e.Name) || e.Enabled != nil && !e.Enabled(o.controller) {
			continue
		}
		d, err := depsOf(ctx, o, s.Config, s.Client, shared, e)
		if err != nil {
			t.Fatal(err)
		}
		c, err := e.New(d)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		made = append(made, c)
	}
	shared.Informers.Start(ctx.Done())
	for kind, filled := range shared.Informers.WaitForCacheSync(ctx.Done()) {
		if !filled {
			t.Errorf("%s is not served", kind)
		}
	}
	cancel()
	for _, c := range made {
		_ = c.Run(ctx) // returns at once, and ends the goroutines of the controller's queue
	}
	shared.Informers.Shutdown()
}
