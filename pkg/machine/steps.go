// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"keelson.dev/keelson/pkg/provision"
)

// steps runs the steps of a command and reports how long each of them took. Several steps can run
// at the same time.
type steps struct {
	Deps
	mu sync.Mutex
}

// run runs a step. It returns the step's error, with the name of the step.
func (s *steps) run(name string, step func() error) error {
	began := s.Clock.Now()
	err := step()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Out, "%5.1f s  %s\n", s.Clock.Since(began).Seconds(), name)
	return nil
}

// await calls check until it returns nil. Its error is that of the last call, with a hint.
func (s *steps) await(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	if err := provision.Wait(ctx, s.Clock, limit, check); err != nil {
		return fmt.Errorf("not ready after %s; see \"journalctl -u 'keelson-*'\": %w", limit, err)
	}
	return nil
}
