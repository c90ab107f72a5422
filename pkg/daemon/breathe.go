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
	// breath is how often it is looked how busy the heap is, and breathOut after
	// how many breaths without a collection it is at rest again.
	breath, breathOut = time.Second, 5
	// busyRoom is how much garbage may gather in a heap that is busy.
	busyRoom = 128 << 20
)

// Breathe gives the heap of a process that rests most of the time room when it
// works, until ctx is done: a process that makes thousands of pods would else
// spend a fifth of its time looking for garbage. When the work is over it gives
// back the memory that it took. It leaves the heap to GOGC where that is set.
func Breathe(ctx context.Context, c clock.Clock, log *slog.Logger) {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	ticker := c.NewTicker(breath)
	defer ticker.Stop()
	defer debug.SetGCPercent(100)
	for l := (lung{cycles: collections()}); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		percent, rest := l.next(collections(), liveHeap())
		if percent > 0 {
			debug.SetGCPercent(percent)
		}
		if !rest {
			continue
		}
		debug.FreeOSMemory()
		if err := dropProgram(); err != nil {
			log.Debug("Pages of the program are kept", "err", err)
		}
		l.cycles = collections()
	}
}

// collections is how often the heap was collected of its own accord.
func collections() uint64 { return metric("/gc/cycles/automatic:gc-cycles") }

// lung tells how much room a heap needs by how often it is collected.
type lung struct {
	cycles uint64 // collections so far
	busy   bool
	quiet  int // breaths without a collection
}

// next is told of the collections so far and of what is in use, and returns
// GOGC, or 0 when it stays as it is, and whether the heap has come to rest.
func (l *lung) next(cycles, live uint64) (percent int, rest bool) {
	since := cycles - l.cycles
	l.cycles = cycles
	if since > 0 {
		l.quiet = 0
	} else {
		l.quiet++
	}
	switch {
	case l.busy && l.quiet >= breathOut:
		l.busy = false
		return 100, true
	case l.busy || since > 1:
		l.busy = true
		return max(100, int(busyRoom*100/max(live, 8<<20))), false
	}
	return 0, false
}
