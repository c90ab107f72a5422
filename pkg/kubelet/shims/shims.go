// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shims finds the shims that containerd has lost. If a shim does not answer in time, mostly on a
// busy machine, containerd removes its bundle and forgets it, while the process keeps running and can no
// longer be reached.
//
// A shim counts as lost if the bundle that it was started in no longer exists and it has had no child,
// hence no container, for two minutes. No other process is touched.
package shims

import (
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

// lostFor is how long a shim may live on without bundle and children: much longer than
// one takes to end after it was told to.
const lostFor = 2 * time.Minute

const program = "containerd-shim-runc-v2"

// bundle is where a shim of the CRI works once its bundle is gone; containerd removes
// it under a name with a dot before it.
var bundle = regexp.MustCompile(`/io\.containerd\.runtime\.v2\.task/k8s\.io/\.?[0-9a-f]{64} \(deleted\)$`)

// Finder looks for lost shims. It is for one goroutine.
type Finder struct {
	proc  string
	clock clock.PassiveClock
	since map[Shim]time.Time
}

// Shim is a process, told from later ones of its number by when it was started.
type Shim struct {
	PID int
	// Started is in the kernel's ticks.
	Started uint64
}

// New looks for processes in the file system proc.
func New(proc string, clk clock.PassiveClock) *Finder {
	return &Finder{proc: proc, clock: clk, since: map[Shim]time.Time{}}
}

// Lost are the shims that have been lost for a while.
func (f *Finder) Lost() ([]Shim, error) {
	dirs, err := filepath.Glob(filepath.Join(f.proc, "[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	since := map[Shim]time.Time{}
	var out []Shim
	for _, dir := range dirs {
		s, lost := look(dir)
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

// End kills a shim that is still lost.
func (f *Finder) End(s Shim) error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", s.PID, err)
	}
	defer unix.Close(fd)
	// What is looked at now is what fd stands for.
	if now, lost := look(filepath.Join(f.proc, strconv.Itoa(s.PID))); !lost || now != s {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim %d: %w", s.PID, err)
	}
	return nil
}

// look says whether the process with the directory dir is a shim without bundle and children.
func look(dir string) (Shim, bool) {
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

// hasChildren is true also when it cannot be told.
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

// startOf reads when a process was started: the 22nd field of its status, of which the
// second, the name, may have any characters.
func startOf(dir string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read status of process: %w", err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const start = 22 - 3 // the first field here is the third
	if len(fields) <= start {
		return 0, fmt.Errorf("status of process is %q", data)
	}
	return strconv.ParseUint(fields[start], 10, 64)
}
