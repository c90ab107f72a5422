// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"keelson.dev/api/clock"
)

// Every calls f after every period, until ctx ends; never, if the period is not positive.
func Every(ctx context.Context, c clock.Clock, period time.Duration, f func(context.Context)) {
	if period <= 0 {
		<-ctx.Done()
		return
	}
	t := c.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			f(ctx)
		}
	}
}
