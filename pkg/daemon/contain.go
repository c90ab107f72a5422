// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"keelson.dev/api/clock"
)

// Contain is Settle for a process that keeps much in large cells and little in
// small ones: from then on, until ctx is done, a large heap has not as much garbage
// as it has in use, but a bounded amount. The heap is left to GOGC where that is set.
func Contain(ctx context.Context, c clock.Clock, log *slog.Logger) {
	Settle(ctx, c, log)
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	defer debug.SetGCPercent(100)
	percent := 100
	for collected := afterCollections(ctx); ; {
		if want := containedPercent(liveHeap(), besideHeap()); differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-collected:
		}
	}
}

// containRoom is how much garbage may gather in a large heap, beside heapShare of
// what is in use.
const containRoom = 24 << 20

// containedPercent is GOGC for a heap of which live bytes are in use.
func containedPercent(live, beside uint64) int {
	return min(100, heapPercent(live, beside, containRoom+live/heapShare))
}
