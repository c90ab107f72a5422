// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Files returns the disk usage of a directory. A directory that does not exist uses nothing.
func Files(dir string) (bytes, inodes uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		b, i := diskUsageOf(e)
		bytes, inodes = bytes+b, inodes+i
	}
	return bytes, inodes, nil
}

// KubeletFiles returns the disk usage of those files in a pod's directory that the kubelet creates
// and containers can write to without a limit: the hosts file and the termination messages.
func KubeletFiles(podDir string) (bytes, inodes uint64) {
	for _, name := range []string{"etc-hosts", "containers"} {
		// Skip files that cannot be read: they were removed meanwhile.
		_ = filepath.WalkDir(filepath.Join(podDir, name), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				b, i := diskUsageOf(e)
				bytes, inodes = bytes+b, inodes+i
			}
			return nil
		})
	}
	return bytes, inodes
}

// blockUnit is the unit of st_blocks.
const blockUnit = 512

// diskUsageOf returns the disk usage of a file, or zero if it was removed meanwhile.
func diskUsageOf(e fs.DirEntry) (bytes, inodes uint64) {
	info, err := e.Info()
	if err != nil {
		return 0, 0
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(max(s.Blocks, 0)) * blockUnit, 1
}
