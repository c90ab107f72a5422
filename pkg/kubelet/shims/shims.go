// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shims finds containerd shims that containerd no longer manages. If a shim does not answer
// containerd in time, mostly on a busy machine, containerd removes the shim's bundle (its working
// directory) and forgets the shim. But the process keeps running.
//
// A shim counts as lost if its bundle no longer exists and it has had no child process, hence no
// container, for two minutes. The package kills no other processes.
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

// lostFor is how long a shim must have been without bundle and children before it counts as lost. A
// shim that containerd has asked to end needs much less time for that.
const lostFor = 2 * time.Minute

const program = "containerd-shim-runc-v2"

// bundle matches the working directory of a shim whose bundle was removed. containerd renames a
// bundle to a name that begins with a dot before it removes it.
var bundle = regexp.MustCompile(`/io\.containerd\.runtime\.v2\.task/k8s\.io/\.?[0-9a-f]{64} \(deleted\)$`)

// Finder finds lost containerd shims. Only one goroutine may use it.
type Finder struct {
	proc  string
	clock clock.PassiveClock
	since map[Shim]time.Time
}

// Shim identifies the process of a containerd shim. Its start time distinguishes it from a later
// process with the same ID.
type Shim struct {
	PID int
	// Started is when the process started, in clock ticks since the machine's boot.
	Started uint64
}

// New returns a Finder that reads processes from the directory proc, normally /proc.
func New(proc string, clk clock.PassiveClock) *Finder {
	return &Finder{proc: proc, clock: clk, since: map[Shim]time.Time{}}
}

// FindLost returns the containerd shims that have been without bundle and children for at least
// lostFor.
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

// Kill kills a containerd shim if it still has neither bundle nor children.
func (f *Finder) Kill(s Shim) error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", s.PID, err)
	}
	defer unix.Close(fd)
	// fd refers to the process that existed when it was opened. If that process still has the start
	// time of s, signalling fd cannot hit another process.
	if now, lost := inspect(filepath.Join(f.proc, strconv.Itoa(s.PID))); !lost || now != s {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim %d: %w", s.PID, err)
	}
	return nil
}

// inspect reports whether the process with the directory dir in /proc is a shim without bundle and
// children.
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

// hasChildren reports whether a process has children. It returns true if it cannot find out.
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

// startOf reads the start time of a process, which is the 22nd field of its stat file. The second
// field, the program's name, may contain spaces and parentheses.
func startOf(dir string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read status of process: %w", err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const start = 22 - 3 // the first field after the name is the third field
	if len(fields) <= start {
		return 0, fmt.Errorf("status of process is %q", data)
	}
	return strconv.ParseUint(fields[start], 10, 64)
}
