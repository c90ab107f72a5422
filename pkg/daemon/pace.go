// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"keelson.dev/api/clock"
)

const (
	paceEvery = time.Second
	// While a process starts it makes much of which it keeps little: it is looked
	// after more often, and has busyHeap for what it does not keep.
	startPace = 50 * time.Millisecond
	// startDrop is after how many paces of the start mapped files are looked at, of
	// which startRoom may be resident then.
	startDrop, startRoom = 10, 128 << 20
	dropEvery            = 5 // paces
	// heapRoom is how much garbage may gather beside what is in use, and heapShare
	// which part of that may come on top of it. A process that keeps data would
	// otherwise take twice its size, a small one collect all the time.
	heapRoom, heapShare = 40 << 20, 8
	// busyHeap is how large the heap of a busy process may become although it has
	// less in use: a sixth of the work of small objects would be to collect it.
	// busyCycles is how many collections between two paces show that it is busy.
	busyHeap, busyCycles = 128 << 20, 2
	// mappedRoom is how much of mapped files may be resident.
	mappedRoom = 24 << 20
)

// Pace keeps the memory of a process that holds data close to what it needs, until
// ctx is done: the heap is collected when a bounded amount of garbage has gathered,
// instead of as much as is in use, and the pages of mapped files are given back
// that have gathered: of the program, and of files that are named. What is needed
// again comes from the page cache. The start is over when started is closed.
// The heap is left to GOGC where that is set.
func Pace(ctx context.Context, c clock.Clock, log *slog.Logger, started <-chan struct{}, mapped ...string) {
	_, set := os.LookupEnv("GOGC")
	percent := paceStart(ctx, c, log, started, set, mapped)
	ticker := c.NewTicker(paceEvery)
	defer ticker.Stop()
	busy, cycles := false, collections()
	tired := false // has been busy, and not given back what that took
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			debug.SetGCPercent(100)
			return
		case <-ticker.C():
		}
		since := collections() - cycles
		cycles += since
		busy = since >= busyCycles || busy && since > 0
		tired = tired || busy
		live := liveHeap()
		if want := heapPercent(live, busy); !set && differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		if n%dropEvery != 0 {
			continue
		}
		small := live < busyHeap/2
		if tired && since == 0 || freeHeap() > heapRoom+heapRoom/2 && !(busy && small) {
			debug.FreeOSMemory()
			tired = false
		}
		if err := dropMapped(mapped, mappedRoom); err != nil && ctx.Err() == nil {
			log.Debug("Pages of mapped files are kept", "err", err)
		}
	}
}

// paceStart is Pace until the start is over. It returns GOGC as it leaves it.
func paceStart(ctx context.Context, c clock.Clock, log *slog.Logger, started <-chan struct{}, set bool, mapped []string) (percent int) {
	ticker := c.NewTicker(startPace)
	defer ticker.Stop()
	percent = 100
	for n := 0; ; n++ {
		if want := int(busyHeap * 100 / max(liveHeap(), 8<<20)); !set && differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		if n%startDrop == startDrop-1 {
			if err := dropMapped(mapped, startRoom); err != nil {
				log.Debug("Pages of mapped files are kept", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return percent
		case <-started:
			return percent
		case <-ticker.C():
		}
	}
}

// differs reports whether it is worth to set GOGC to want.
func differs(want, percent int) bool {
	return math.Abs(float64(want-percent)) > float64(percent)/8
}

// heapPercent is GOGC for a heap of which live bytes are in use.
func heapPercent(live uint64, busy bool) int {
	live = max(live, 8<<20)
	room := heapRoom + live/heapShare
	if busy && live+room < busyHeap {
		room = busyHeap - live
	}
	return int(room * 100 / live)
}

// liveHeap is what the last collection has found to be in use, freeHeap what the
// heap has had and not given back.
func liveHeap() uint64 { return metric("/gc/heap/live:bytes") }
func freeHeap() uint64 { return metric("/memory/classes/heap/free:bytes") }

func metric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// dropMapped drops the pages of the program and of files, when there are more than room.
func dropMapped(files []string, room uint64) error {
	resident, err := residentFiles()
	if err != nil || resident < room {
		return err
	}
	errs := []error{dropProgram()}
	for _, f := range files {
		path, err := filepath.EvalSymlinks(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = dropFile(path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// residentFiles is how much of the mapped files is resident.
func residentFiles() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("process status: %w", err)
	}
	_, rest, found := strings.Cut(string(status), "RssFile:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, errors.New("process status has no RssFile")
	}
	kib, err := strconv.ParseUint(fields[0], 10, 64)
	return kib << 10, err
}
