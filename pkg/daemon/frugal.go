// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"keelson.dev/api/clock"
)

const (
	// frugalPercent is GOGC of a frugal process: it collects more often than
	// others, and has a fifth of what it keeps in garbage at most.
	frugalPercent = 20
	// frugalFree is how much memory the heap may hold that nothing is in, beside heapShare
	// of what is in use, and frugalRoom how much of the program may be resident. Both
	// are looked at every frugalEvery.
	frugalFree              = 2 << 20
	frugalRoom, frugalEvery = 8 << 20, 5 * time.Second
)

// Frugal is Settle for a process that is on every node and does little after its start:
// from then on it also trades some processor time for memory, until ctx is done. The
// heap is left to GOGC where that is set.
func Frugal(ctx context.Context, c clock.Clock, log *slog.Logger) {
	Settle(ctx, c, log)
	_, set := os.LookupEnv("GOGC")
	if !set {
		debug.SetGCPercent(frugalPercent)
		defer debug.SetGCPercent(100)
	}
	var pages mapped
	ticker := c.NewTicker(frugalEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !set && freeHeap() > frugalFree+liveHeap()/heapShare {
			debug.FreeOSMemory()
		}
		if err := pages.drop(frugalRoom); err != nil {
			log.Debug("Pages of the program are kept", "err", err)
		}
	}
}
