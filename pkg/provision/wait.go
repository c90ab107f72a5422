// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"time"

	"keelson.dev/api/clock"
)

// pollInterval is the interval between two checks of Wait.
const pollInterval = 20 * time.Millisecond

// Wait calls check until it returns nil. After the time limit, or when ctx ends, Wait returns the error
// of the last call.
func Wait(ctx context.Context, clk clock.Clock, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-clk.After(pollInterval):
		}
	}
}
