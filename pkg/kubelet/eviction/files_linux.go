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

// Files returns the disk usage of the files in a directory, in bytes and inodes. It does not look
// into subdirectories. The usage is zero if the directory does not exist.
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

// KubeletFiles returns the disk usage of the files that the kubelet creates in a pod's directory
// and to which containers can write without a limit: the hosts file and the termination messages.
// The result is in bytes and inodes.
func KubeletFiles(podDir string) (bytes, inodes uint64) {
	for _, name := range []string{"etc-hosts", "containers"} {
		// Ignore errors, because files can be removed while they are being counted.
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

// blockUnit is the unit of st_blocks, in bytes.
const blockUnit = 512

// diskUsageOf returns the disk usage of a file. It is zero if the file was removed in the meantime.
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
