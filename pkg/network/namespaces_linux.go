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
	// NamespacesDir is the directory in which runtimes keep the network namespaces of sandboxes.
	NamespacesDir = "/run/netns"
	// abandonedFor is how long a namespace must have been without processes before it counts as
	// abandoned. A runtime needs much less time to start the first process of a sandbox.
	abandonedFor = 2 * time.Minute
)

// namespaceName matches the names that CNI's library gives to the namespaces of runtimes.
var namespaceName = regexp.MustCompile(`^cni-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Namespaces finds abandoned network namespaces. A runtime that is killed while it creates a
// sandbox leaves one: the runtime has no record of it, and no process runs in it. Namespaces must
// not be used concurrently.
type Namespaces struct {
	dir, proc string
	clock     clock.PassiveClock
	// since contains, by file, when each namespace was first found without a process.
	since map[string]time.Time
	// dwellers contains, by the inode of each namespace, the directory in proc of a process that was
	// found in the namespace.
	dwellers map[uint64]string
}

// NewNamespaces returns a finder for the namespaces in dir. proc is the directory of the proc file
// system.
func NewNamespaces(dir, proc string, clk clock.PassiveClock) *Namespaces {
	return &Namespaces{dir: dir, proc: proc, clock: clk, since: map[string]time.Time{}}
}

// Abandoned returns the files of network namespaces that have had no process for at least
// abandonedFor.
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

// empty returns the files of network namespaces without processes.
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

// findDwellers finds a process in each namespace that has one. It first looks at the processes that
// it found last time. It examines all processes only if this leaves a namespace without a process.
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

// lived returns the network namespaces of all processes: the directory in proc of one process for
// each inode of a namespace. It does not use a glob pattern for the whole path, because that would
// read the directory ns of every process.
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

// Remove removes the file of a network namespace, and with it the namespace.
func (n *Namespaces) Remove(file string) error {
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		// EINVAL means that no namespace is mounted at the file, because the runtime was killed
		// before that.
		return fmt.Errorf("unmount %s: %w", file, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	delete(n.since, file)
	return nil
}
