// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	"keelson.dev/api/clock"
)

// TestWait checks that Wait returns after the first success, and otherwise the error of the last check.
func TestWait(t *testing.T) {
	early, late := errors.New("early"), errors.New("late")
	calls := 0
	err := Wait(t.Context(), clock.Real(), time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return early
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, error %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = Wait(ctx, clock.Real(), time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return early
		}
		cancel()
		return late
	})
	if !errors.Is(err, late) || calls != 3 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}
