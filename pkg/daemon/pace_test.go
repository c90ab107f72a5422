// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	testingclock "k8s.io/utils/clock/testing"
)

// A small heap may grow by some megabytes, more while it is busy, a large one by
// a part of itself.
func TestHeapPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 500, 8 << 20: 512, 20 << 20: 212, 40 << 20: 112, 320 << 20: 25, 4 << 30: 13} {
		if got := heapPercent(live, 0, roomFor(live, false, false)); got != want {
			t.Errorf("%d bytes in use: %d, want %d", live, got, want)
		}
	}
	for live, want := range map[uint64]int{8 << 20: 1300, 32 << 20: 250, 64 << 20: 75, 128 << 20: 43, 200 << 20: 32, 320 << 20: 25, 4 << 30: 13} {
		if got := heapPercent(live, 0, roomFor(live, true, false)); got != want {
			t.Errorf("busy with %d bytes in use: %d, want %d", live, got, want)
		}
	}
	if got := heapPercent(100<<20, 28<<20, 64<<20); got != 50 {
		t.Errorf("with 28 MB beside the heap: %d, want 50", got)
	}
	for live, want := range map[uint64]int{8 << 20: 1600, 64 << 20: 200, 128 << 20: 87, 200 << 20: 50, 320 << 20: 40} {
		if got := heapPercent(live, 0, roomFor(live, true, true)); got != want {
			t.Errorf("writing with %d bytes in use: %d, want %d", live, got, want)
		}
	}
}

// A file that has been dropped is read again, and files that are not there do no harm.
func TestDropFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	mem, err := unix.Mmap(int(f.Fd()), 0, 7, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	if string(mem) != "content" {
		t.Fatal(string(mem))
	}
	if err := dropFile(path); err != nil || string(mem) != "content" {
		t.Error(string(mem), err)
	}
	if err := (&mapped{files: []string{path, path + "-none"}}).drop(0); err != nil {
		t.Error(err)
	}
	if n, err := residentFiles(); err != nil || n == 0 {
		t.Error(n, err)
	}
}

// Many pages of a mapped file are given back at the next pace, at the start of a
// process and later.
func TestPaceDrops(t *testing.T) {
	for _, begun := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, make([]byte, 2*startRoom), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		mem, err := unix.Mmap(int(f.Fd()), 0, 2*startRoom, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		clk := testingclock.NewFakeClock(time.Unix(0, 0))
		started := make(chan struct{})
		if begun {
			close(started)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		before := touched(t, mem)
		done.Go(func() { Pace(ctx, clk, slog.New(slog.DiscardHandler), started, func() int64 { return 0 }, path) })
		for ; ; runtime.Gosched() { // until it is done, or the test's time is over
			clk.Step(paceEvery)
			if n, err := residentFiles(); err != nil {
				t.Fatal(err)
			} else if n < before-startRoom {
				break
			}
		}
		cancel()
		done.Wait()
		if err := errors.Join(unix.Munmap(mem), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// touched reads each page of mem, and returns how much of all mapped files is resident then.
func touched(t *testing.T, mem []byte) uint64 {
	t.Helper()
	for i := 0; i < len(mem); i += os.Getpagesize() {
		if mem[i] != 0 {
			t.Fatal("something is in the file")
		}
	}
	n, err := residentFiles()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// It is told of each collection, and no longer when nobody wants to know.
func TestAfterCollections(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	collected := afterCollections(ctx)
	for range 3 {
		for told := false; !told; { // cleanups run some time after the collection
			runtime.GC()
			select {
			case <-collected:
				told = true
			default:
			}
		}
	}
	cancel()
	runtime.GC()
}
