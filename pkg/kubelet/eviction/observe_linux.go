// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Observe measures the machine's memory, its process IDs, and the file systems of the kubelet's
// directory and of the images. If the directory of the images is not known yet, imageDir is "". The
// result does not contain resources that could not be measured.
func Observe(rootDir, imageDir string) (Observation, error) {
	o := Observation{}
	var errs []error
	add := func(s Signal, a Amount, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
			return
		}
		o[s] = a
	}
	a, err := Memory()
	add(MemoryAvailable, a, err)
	a, err = processes()
	add(PIDAvailable, a, err)
	space, files, err := MeasureDisk(rootDir)
	add(NodeFsAvailable, space, err)
	if files.Capacity > 0 { // file systems that do not count inodes report 0
		add(NodeFsInodesFree, files, err)
	}
	if imageDir != "" {
		space, files, err = MeasureDisk(imageDir)
		add(ImageFsAvailable, space, err)
		if files.Capacity > 0 {
			add(ImageFsInodesFree, files, err)
		}
	}
	return o, errors.Join(errs...)
}

// MeasureDisk measures the file system that contains a directory: space in bytes, and files in
// inodes.
func MeasureDisk(dir string) (space, files Amount, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return space, files, fmt.Errorf("file system of %s: %w", dir, err)
	}
	block := fs.Frsize
	if block == 0 {
		block = fs.Bsize
	}
	return Amount{Available: int64(fs.Bavail) * block, Capacity: int64(fs.Blocks) * block},
		Amount{Available: int64(fs.Ffree), Capacity: int64(fs.Files)}, nil
}

// Memory returns how many bytes of memory are available without swapping: free memory and file
// pages that were not used recently. With both versions of cgroups, this equals the capacity minus
// the working set of the whole machine.
func Memory() (Amount, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Amount{}, err
	}
	has := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if kib, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				has[name] = kib << 10
			}
		}
	}
	if has["MemTotal"] == 0 {
		return Amount{}, errors.New("no MemTotal in /proc/meminfo")
	}
	return Amount{Available: min(has["MemFree"]+has["Inactive(file)"], has["MemTotal"]), Capacity: has["MemTotal"]}, nil
}

// processes returns how many more processes and threads the machine can create, and the maximum.
func processes() (Amount, error) {
	most := int64(-1)
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		b, err := os.ReadFile(file)
		if err != nil {
			return Amount{}, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return Amount{}, fmt.Errorf("%s: %w", file, err)
		}
		if most < 0 || n < most {
			most = n
		}
	}
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return Amount{}, err
	}
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return Amount{}, fmt.Errorf("/proc/loadavg is %q", b)
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return Amount{}, fmt.Errorf("/proc/loadavg: %w", err)
	}
	return Amount{Available: max(most-n, 0), Capacity: most}, nil
}
