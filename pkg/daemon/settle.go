// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
)

const (
	// settleAfter is when a process has done what only its start does.
	settleAfter = 10 * time.Second
	// settleQuiet is for how long nothing must have been collected then: who is at work needs the
	// heap, and is not made to collect it.
	settleQuiet = time.Second
)

// Settle waits until the start of the process is over and there is little to do, and then gives back the
// memory that it alone needed: heap, and the pages of the program that no one
// comes back to, which is most of them: types and their registration, of which
// a program that knows all of Kubernetes' kinds has tens of megabytes. What is
// needed again is read again, from the page cache mostly, and page by page.
func Settle(ctx context.Context, c clock.Clock, log *slog.Logger) {
	if !calm(ctx, c, collections) {
		return
	}
	debug.FreeOSMemory()
	ranges, err := programRanges()
	if err == nil {
		if err := faultSingly(ranges); err != nil {
			log.Debug("Pages of the program come together with those around them", "err", err)
		}
		err = drop(ranges)
	}
	if err != nil {
		log.Warn("Pages of the program are kept", "err", err)
	}
}

// calm waits until the start is over and the heap has not been collected for a while, and
// reports whether it did. collected is how often the heap has been collected so far.
func calm(ctx context.Context, c clock.Clock, collected func() uint64) bool {
	t := c.NewTimer(settleAfter - settleQuiet)
	defer t.Stop()
	wait := func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-t.C():
			return true
		}
	}
	if !wait() {
		return false
	}
	for {
		before := collected()
		t.Reset(settleQuiet)
		if !wait() {
			return false
		}
		if collected() == before {
			return true
		}
	}
}

// dropProgram takes the program's own pages out of the process.
func dropProgram() error {
	ranges, err := programRanges()
	if err != nil {
		return err
	}
	return drop(ranges)
}

// programRanges are where the program is that the process does not write to. They
// stay the same.
func programRanges() ([]addresses, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	return privateRanges(program)
}

// dropFile takes pages of a mapped file out of the process that it does not write to.
func dropFile(path string) error {
	shared, private, err := sharedRanges(path)
	if err != nil {
		return err
	}
	if private {
		copies, err := privateRanges(path)
		if err != nil {
			return err
		}
		shared = append(shared, copies...)
	}
	return drop(shared)
}

// drop takes pages out of the process.
func drop(ranges []addresses) error {
	for _, r := range ranges {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give pages back: %w", errno)
		}
	}
	return nil
}

// sharedRanges finds where a file is mapped for reading, and is the file itself;
// private tells whether it is mapped in another way as well.
func sharedRanges(path string) (shared []addresses, private bool, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, false, fmt.Errorf("memory map: %w", err)
	}
	defer func() { _ = maps.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		at, mode, of, err := rangeOf(lines.Text(), path)
		if err != nil {
			return nil, false, err
		}
		if of && mode == "r--s" {
			shared = append(shared, at)
		}
		private = private || of && strings.HasSuffix(mode, "p")
	}
	return shared, private, lines.Err()
}

// rangeOf reads a line of a memory map, if it is of path.
func rangeOf(line, path string) (at addresses, mode string, of bool, err error) {
	fields := strings.Fields(line)
	if len(fields) < 6 || strings.Join(fields[5:], " ") != path {
		return at, "", false, nil
	}
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &at.from, &at.to); err != nil {
		return at, "", false, fmt.Errorf("memory map: %q: %w", line, err)
	}
	return at, fields[1], true, nil
}

// privateRanges is readOnly of this process. The kernel looks at every page of the
// process for it.
func privateRanges(path string) ([]addresses, error) {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("memory map: %w", err)
	}
	defer func() { _ = maps.Close() }()
	return readOnly(maps, path)
}

// addresses is a range of addresses.
type addresses struct{ from, to uintptr }

// readOnly finds where a file is mapped privately and has not been written to: what is
// dropped there comes back as it was. That nothing may be written there now is
// not enough: a dynamic linker fills in its tables before it makes them so.
func readOnly(maps io.Reader, path string) ([]addresses, error) {
	var out []addresses
	var at addresses
	of := false // what follows is told of the range at
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if name, value, isFact := strings.Cut(lines.Text(), ":"); isFact && !strings.Contains(name, " ") {
			if of && name == "Anonymous" && strings.TrimSpace(value) == "0 kB" {
				out = append(out, at)
			}
			continue
		}
		var mode string
		var err error
		if at, mode, of, err = rangeOf(lines.Text(), path); err != nil {
			return nil, err
		}
		of = of && (mode == "r-xp" || mode == "r--p")
	}
	return out, lines.Err()
}
