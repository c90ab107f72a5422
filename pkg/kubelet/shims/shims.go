// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shims finds the shims that containerd has lost. If a shim does not answer in time, mostly
// on a busy machine, containerd removes its bundle and forgets it, while the process keeps running
// and can no longer be reached.
//
// A shim counts as lost if the bundle that it was started in no longer exists and it has had no
// child, hence no container, for two minutes. No other process is touched.
package shims

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// lostFor is how long a shim may exist without a bundle and without children. This is much longer
// than a shim needs to end after a request to do so.
const lostFor = 2 * time.Minute

const program = "containerd-shim-runc-v2"

// bundle matches the working directory of a shim whose bundle was removed. While containerd removes
// a bundle, its name begins with a dot.
var bundle = regexp.MustCompile(`/io\.containerd\.runtime\.v2\.task/k8s\.io/\.?[0-9a-f]{64} \(deleted\)$`)

// Finder looks for lost shims. Only one goroutine may use it.
type Finder struct {
	proc  string
	clock clock.PassiveClock
	since map[Shim]time.Time
}

// Shim is a process. The start time distinguishes it from a later process with the same ID.
type Shim struct {
	PID int
	// Started is the start time in clock ticks of the kernel.
	Started uint64
}

// New returns a Finder that finds processes in the file system proc.
func New(proc string, clk clock.PassiveClock) *Finder {
	return &Finder{proc: proc, clock: clk, since: map[Shim]time.Time{}}
}

// FindLost returns the shims that have been lost for lostFor.
func (f *Finder) FindLost() ([]Shim, error) {
	dirs, err := filepath.Glob(filepath.Join(f.proc, "[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	since := map[Shim]time.Time{}
	var out []Shim
	for _, dir := range dirs {
		s, lost := inspect(dir)
		if !lost {
			continue
		}
		first, known := f.since[s]
		if !known {
			first = f.clock.Now()
		}
		since[s] = first
		if f.clock.Since(first) >= lostFor {
			out = append(out, s)
		}
	}
	f.since = since
	return out, nil
}

// Kill kills a shim if it is still lost.
func (f *Finder) Kill(s Shim) error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", s.PID, err)
	}
	defer unix.Close(fd)
	// fd is open now, so the process that is inspected here is the one that fd refers to.
	if now, lost := inspect(filepath.Join(f.proc, strconv.Itoa(s.PID))); !lost || now != s {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim %d: %w", s.PID, err)
	}
	return nil
}

// inspect reports whether the process with the directory dir is a shim without bundle and children.
func inspect(dir string) (Shim, bool) {
	cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
	if err != nil || !bundle.MatchString(cwd) {
		return Shim{}, false
	}
	words, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Shim{}, false
	}
	name, _, _ := strings.Cut(string(words), "\x00")
	if filepath.Base(name) != program || hasChildren(dir) {
		return Shim{}, false
	}
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return Shim{}, false
	}
	started, err := startOf(dir)
	return Shim{pid, started}, err == nil
}

// hasChildren reports whether a process has children. The result is true if that cannot be
// determined.
func hasChildren(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	if err != nil || len(files) == 0 {
		return true
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err != nil || len(strings.TrimSpace(string(data))) > 0 {
			return true
		}
	}
	return false
}

// startOf reads the start time of a process: the 22nd field of its stat file. The second field, the
// name, may contain any character.
func startOf(dir string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read status of process: %w", err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const start = 22 - 3 // the first field after the name is the third
	if len(fields) <= start {
		return 0, fmt.Errorf("status of process is %q", data)
	}
	return strconv.ParseUint(fields[start], 10, 64)
}
