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
	"runtime"
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
	// after more often. What it does not keep may take startHeap, and of mapped files
	// startRoom may be resident, or startHeapPart and startRoomPart of the files that
	// it reads, if that is more.
	startPace                = 20 * time.Millisecond
	startHeap, startHeapPart = 80 << 20, 5. / 16
	startRoom, startRoomPart = 64 << 20, 1. / 4
	// mappedRoom is how much of mapped files may be resident.
	mappedRoom = 24 << 20
	// Memory that the heap does not use is given back, every restEvery paces at most.
	restEvery = 5
	// heapRoom is how much garbage may gather beside what is in use, and heapShare
	// which part of that may come on top of it. A process that keeps data would
	// otherwise take twice its size, a small one collect all the time.
	heapRoom, heapShare = 40 << 20, 8
	// busyHeap is how large the heap of a busy process may become although it has
	// less in use: a small one would collect all the time. busyCycles is how many
	// collections between two paces show that it is busy.
	busyHeap, busyCycles = 112 << 20, 2
	// writeHeap is how large the heap of a process may become that is busy with at least
	// writeRate changes a second, and writeGarbage what may gather in it: a write makes much
	// more garbage than a read, and what many reads hold at once is not there beside it.
	// In a large heap, where two fifths of the work would be to collect, a writeShare-th of
	// what is in use may gather, and writeGarbage at most. Thousands of nodes that renew
	// their leases make fewer changes.
	writeHeap, writeGarbage, writeShare, writeRate = 240 << 20, 128 << 20, 2, 600
	// leastHeap is what GOGC counts from, however little is in use.
	leastHeap = 8 << 20
)

// Pace keeps the memory of a process that holds data close to what it needs, until
// ctx is done: the heap is collected when a bounded amount of garbage has gathered,
// instead of as much as is in use, and the pages of mapped files are given back
// that have gathered: of the program, and of files that are named. What is needed
// again comes from the page cache. The start is over when started is closed; changes
// tells how often that data has changed so far. The heap is left to GOGC where that is
// set.
func Pace(ctx context.Context, c clock.Clock, log *slog.Logger, started <-chan struct{}, changes func() int64, files ...string) {
	_, set := os.LookupEnv("GOGC")
	pages := &mapped{files: files}
	percent := paceStart(ctx, c, log, started, set, pages)
	ticker := c.NewTicker(paceEvery)
	defer ticker.Stop()
	defer debug.SetGCPercent(100)
	busy, cycles := false, collections()
	writing, changed := false, changes()
	tired := false // has been busy, and not given back what that took
	collected := afterCollections(ctx)
	for rest := 1; ; {
		live := liveHeap()
		room := roomFor(live, busy, writing)
		if want := heapPercent(live, besideHeap(), room); !set && differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-collected:
			continue
		case <-ticker.C():
		}
		since := collections() - cycles
		cycles += since
		busy = since >= busyCycles || busy && since > 0
		more := changes() - changed
		changed += more
		writing = busy && more >= int64(writeRate*paceEvery/time.Second)
		tired = tired || busy
		kept(log, pages.drop(mappedRoom))
		if rest++; rest < restEvery {
			continue
		}
		small := live < busyHeap/2
		if tired && since == 0 || heldHeap() > heapGoal()+room/4 && !(busy && small) {
			debug.FreeOSMemory()
			tired, rest = false, 0
		}
	}
}

// afterCollections tells, until ctx is done, when the heap has been collected: what
// is in use is known then, and GOGC is a part of that. Set by what was in use a
// second ago it would let a heap that grows have several times its room.
func afterCollections(ctx context.Context) <-chan struct{} {
	collected := make(chan struct{}, 1)
	var arm func()
	tell := func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case collected <- struct{}{}:
		default:
		}
		arm()
	}
	// What nobody refers to is cleaned up after the next collection.
	arm = func() { runtime.AddCleanup(new(*byte), tell, struct{}{}) }
	arm()
	return collected
}

// kept notes why pages of mapped files could not be given back.
func kept(log *slog.Logger, err error) {
	if err != nil {
		log.Debug("Pages of mapped files are kept", "err", err)
	}
}

// paceStart is Pace until the start is over. It returns GOGC as it leaves it.
func paceStart(ctx context.Context, c clock.Clock, log *slog.Logger, started <-chan struct{}, set bool, pages *mapped) (percent int) {
	ticker := c.NewTicker(startPace)
	defer ticker.Stop()
	percent = 100
	size := float64(sizeOf(pages.files))
	for {
		if want := heapPercent(liveHeap(), besideHeap(), max(startHeap, uint64(startHeapPart*size))); !set && differs(want, percent) {
			percent = want
			debug.SetGCPercent(percent)
		}
		kept(log, pages.drop(max(startRoom, uint64(startRoomPart*size))))
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

// roomFor is how much garbage may gather beside live bytes that are in use; who is
// writing is busy.
func roomFor(live uint64, busy, writing bool) uint64 {
	room := heapRoom + live/heapShare
	if busy {
		room = max(room, busyHeap-min(live, busyHeap))
	}
	if writing {
		room = max(room, min(writeGarbage, max(writeHeap-min(live, writeHeap), live/writeShare)))
	}
	return room
}

// heapPercent is GOGC for a heap of which live bytes are in use, with room for garbage.
// It counts from what lies beside the heap and is searched with it as well.
func heapPercent(live, beside, room uint64) int { return int(room * 100 / max(live+beside, leastHeap)) }

// liveHeap is what the last collection has found to be in use, freeHeap what the
// heap has had and not given back.
func liveHeap() uint64 { return metric("/gc/heap/live:bytes") }
func freeHeap() uint64 { return metric("/memory/classes/heap/free:bytes") }

// heldHeap is what the heap takes of the machine's memory, heapGoal what it may take
// before it is collected. The runtime gives back what is held above that, but takes its time.
func heldHeap() uint64 {
	return metric("/memory/classes/heap/objects:bytes") + metric("/memory/classes/heap/unused:bytes") + freeHeap()
}
func heapGoal() uint64 { return metric("/gc/heap/goal:bytes") }

// besideHeap is what the last collection has searched besides: stacks and variables.
func besideHeap() uint64 { return metric("/gc/scan/stack:bytes") + metric("/gc/scan/globals:bytes") }

func metric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// mapped is what pages are given back of.
type mapped struct {
	files   []string
	program []addresses // once it is known
}

// drop drops the pages of the program and of files, when there are more than room.
func (m *mapped) drop(room uint64) error {
	resident, err := residentFiles()
	if err != nil || resident < room {
		return err
	}
	if m.program == nil {
		m.program, err = programRanges()
	}
	errs := []error{err, drop(m.program)}
	for _, f := range m.files {
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

// sizeOf is the size of those files that are there.
func sizeOf(files []string) (size int64) {
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			size += info.Size()
		}
	}
	return size
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
