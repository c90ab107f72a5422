// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/health"
)

// TestLivezGrace checks that failures are ignored during the grace period and not afterwards.
func TestLivezGrace(t *testing.T) {
	amiss := errors.New("amiss")
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	a := &assembly{
		cfg:    &config.Config{HTTP: config.HTTP{LivezGrace: time.Minute}},
		server: &Server{deps: Deps{Clock: clk}},
	}
	checks := a.withGrace([]health.Check{{Name: "x", Run: func(context.Context) error { return amiss }}})
	if err := checks[0].Run(t.Context()); err != nil {
		t.Errorf("after the start: %v", err)
	}
	clk.Step(time.Minute)
	if err := checks[0].Run(t.Context()); !errors.Is(err, amiss) {
		t.Errorf("a minute later: %v", err)
	}
}
