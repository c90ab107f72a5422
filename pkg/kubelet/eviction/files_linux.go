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

// Files is what the files of a directory take up; one that is not there takes up nothing.
func Files(dir string) (bytes, inodes uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		b, i := takes(e)
		bytes, inodes = bytes+b, inodes+i
	}
	return bytes, inodes, nil
}

// Given is what some of a pod's directory takes up: the files that the kubelet
// gives containers to write to, each as large as they like. They are the hosts
// file and, below containers, the termination messages.
func Given(podDir string) (bytes, inodes uint64) {
	for _, name := range []string{"etc-hosts", "containers"} {
		// What cannot be read is not there any more.
		_ = filepath.WalkDir(filepath.Join(podDir, name), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				b, i := takes(e)
				bytes, inodes = bytes+b, inodes+i
			}
			return nil
		})
	}
	return bytes, inodes
}

// blockUnit is what st_blocks counts in.
const blockUnit = 512

// takes is what a file takes up; it may have gone.
func takes(e fs.DirEntry) (bytes, inodes uint64) {
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
