// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
)

// Contain is for a process that keeps much in large cells and little in small ones:
// until ctx is done a large heap has not as much garbage as it has in use, but what
// keeps it below a bound, or else a bounded amount, and few pages of the program are
// resident. The heap is left to GOGC where that is set.
func Contain(ctx context.Context, log *slog.Logger) {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	defer debug.SetGCPercent(100)
	percent := 100
	var pages mapped
	for collected := afterCollections(ctx); ; {
		if want := containedPercent(liveHeap(), besideHeap()); differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-collected:
			kept(log, pages.drop(containPages))
		}
	}
}

const (
	// containHeap is how large a heap may become that keeps less than that, at most twice
	// what it keeps: what is left of it goes into garbage.
	containHeap = 120 << 20
	// containRoom is how much garbage may gather in any, beside heapShare of what it keeps.
	containRoom = 8 << 20
	// containPages is how much of the program may be resident after a collection.
	containPages = 4 << 20
)

// containedPercent is GOGC for a heap of which live bytes are in use.
func containedPercent(live, beside uint64) int {
	room := max(containRoom+live/heapShare, containHeap-min(live, containHeap))
	return min(100, heapPercent(live, beside, room))
}
