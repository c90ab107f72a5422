// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/memory"
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

// TestDefaultCheckTimeout checks that a configured time limit of 0 stands for the default.
func TestDefaultCheckTimeout(t *testing.T) {
	db := &database{kv: memory.New(clock.Real())}
	if err := db.answers(0)(t.Context()); err != nil {
		t.Error(err)
	}
	if err := db.answers(time.Nanosecond)(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a short limit: %v", err)
	}
}
