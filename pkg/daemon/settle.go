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

// settleAfter is when a process has done what only its start does.
const settleAfter = 10 * time.Second

// Settle waits until the start of the process is over, and then gives back the
// memory that it alone needed: heap, and the pages of the program that no one
// comes back to, which is most of them: types and their registration, of which
// a program that knows all of Kubernetes' kinds has tens of megabytes. What is
// needed again is read again, from the page cache mostly.
func Settle(ctx context.Context, c clock.Clock, log *slog.Logger) {
	t := c.NewTimer(settleAfter)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C():
	}
	debug.FreeOSMemory()
	if err := dropProgram(); err != nil {
		log.Warn("Pages of the program are kept", "err", err)
	}
}

// dropProgram takes the program's own pages out of the process.
func dropProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	return dropFile(program)
}

// dropFile takes pages of a mapped file out of the process that it does not write to.
func dropFile(path string) error {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("memory map: %w", err)
	}
	defer func() { _ = maps.Close() }()
	ranges, err := readOnly(maps, path)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give pages of %s back: %w", path, errno)
		}
	}
	return nil
}

// addresses is a range of addresses.
type addresses struct{ from, to uintptr }

// readOnly finds where a file is mapped and has not been written to: what is
// dropped there comes back as it was. That nothing may be written there now is
// not enough: a dynamic linker fills in its tables before it makes them so.
func readOnly(maps io.Reader, path string) ([]addresses, error) {
	var out []addresses
	var at addresses
	of := false // what follows is told of the range at
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && strings.HasSuffix(fields[0], ":") {
			if of && fields[0] == "Anonymous:" && fields[1] == "0" {
				out = append(out, at)
			}
			continue
		}
		of = len(fields) >= 6 && strings.Join(fields[5:], " ") == path && (fields[1] == "r-xp" || fields[1] == "r--p" || fields[1] == "r--s")
		if !of {
			continue
		}
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &at.from, &at.to); err != nil {
			return nil, fmt.Errorf("memory map: %q: %w", lines.Text(), err)
		}
	}
	return out, lines.Err()
}
