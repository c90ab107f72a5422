// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	// NamespacesDir is where runtimes keep the network namespaces of sandboxes.
	NamespacesDir = "/run/netns"
	// abandonedFor is how long a namespace must be without processes before it counts as
	// abandoned. A runtime takes much less time to start a sandbox's first process.
	abandonedFor = 2 * time.Minute
)

// namespaceName matches the names that runtimes give to namespaces through the CNI library.
var namespaceName = regexp.MustCompile(`^cni-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Namespaces finds network namespaces that were left behind by a runtime that was killed while it
// created a sandbox. The runtime has no record of them, and no process runs in them. It must not be
// used concurrently.
type Namespaces struct {
	dir, proc string
	clock     clock.PassiveClock
	// since is when each namespace was first found without a process, by its file.
	since map[string]time.Time
	// dwellers holds for each namespace's inode the directory of a process that was found in it.
	dwellers map[uint64]string
}

// NewNamespaces returns a finder for the namespaces in dir. proc is the proc file system.
func NewNamespaces(dir, proc string, clk clock.PassiveClock) *Namespaces {
	return &Namespaces{dir: dir, proc: proc, clock: clk, since: map[string]time.Time{}}
}

// Abandoned returns the files of namespaces that have had no process for a while.
func (n *Namespaces) Abandoned() ([]string, error) {
	empty, err := n.empty()
	if err != nil {
		return nil, err
	}
	since := map[string]time.Time{}
	var out []string
	for _, file := range empty {
		first, known := n.since[file]
		if !known {
			first = n.clock.Now()
		}
		since[file] = first
		if n.clock.Since(first) >= abandonedFor {
			out = append(out, file)
		}
	}
	n.since = since
	return out, nil
}

// empty returns the files of namespaces without processes.
func (n *Namespaces) empty() ([]string, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	files := map[string]uint64{}
	for _, e := range entries {
		file := filepath.Join(n.dir, e.Name())
		if !namespaceName.MatchString(e.Name()) {
			continue
		}
		if inode, err := inodeOf(file); err == nil { // an error means that the namespace was removed meanwhile
			files[file] = inode
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	if err := n.findDwellers(files); err != nil {
		return nil, err
	}
	var out []string
	for file, inode := range files {
		if n.dwellers[inode] == "" {
			out = append(out, file)
		}
	}
	return out, nil
}

// findDwellers finds a process in each namespace that has one. Usually the process that was found
// last is still there. All processes are examined only if that process of a namespace has ended.
func (n *Namespaces) findDwellers(files map[string]uint64) error {
	still := map[uint64]string{}
	for _, inode := range files {
		dir := n.dwellers[inode]
		if dir == "" {
			continue
		}
		if at, err := inodeOf(filepath.Join(dir, "ns", "net")); err == nil && at == inode {
			still[inode] = dir
		}
	}
	n.dwellers = still
	for _, inode := range files {
		if still[inode] == "" {
			lived, err := n.lived()
			n.dwellers = lived
			return err
		}
	}
	return nil
}

// lived returns the inodes of the network namespaces of all processes, each with the directory of
// one process. It does not use a pattern for the whole path, because that would read the directory
// of namespaces of every process.
func (n *Namespaces) lived() (map[uint64]string, error) {
	dirs, err := filepath.Glob(filepath.Join(n.proc, "[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	out := map[uint64]string{}
	for _, dir := range dirs {
		// An error means that the process has ended meanwhile.
		if inode, err := inodeOf(filepath.Join(dir, "ns", "net")); err == nil {
			out[inode] = dir
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no processes in %s", n.proc)
	}
	return out, nil
}

func inodeOf(file string) (uint64, error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// Remove removes a namespace's file, and thereby the namespace.
func (n *Namespaces) Remove(file string) error {
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		// EINVAL means that the runtime was killed before it mounted the namespace.
		return fmt.Errorf("unmount %s: %w", file, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	delete(n.since, file)
	return nil
}
