// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth is the maximum depth of nested directories, which limits the number of open
	// descriptors. A path of PATH_MAX bytes cannot have more elements than this.
	maxDepth = unix.PathMax / 2
	// namesAtOnce is how many names of a directory are read in one call.
	namesAtOnce = 1024
)

// errTooDeep is returned for directories that are nested more deeply than maxDepth.
var errTooDeep = errors.New("directories are nested too deep")

// tree visits a directory of a volume and everything in it. Containers may change the directory at
// the same time, so tree opens each directory relative to its parent's descriptor and follows no
// symbolic link. So it cannot leave the volume.
type tree struct {
	// enter reports whether to visit a directory. If enter is nil, all directories are visited.
	enter func(stat *unix.Stat_t) bool
	// visit is called for each entry that is not a directory, with a descriptor opened with O_PATH.
	// For a directory it is called after all entries of the directory, with the open directory.
	visit func(fd int, stat *unix.Stat_t) error
}

// walk visits the directory at path.
func (t tree) walk(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return t.directory(fd, 1)
}

// directory walks the entries of an open directory, calls t.visit for the directory itself, and closes
// it.
func (t tree) directory(fd, depth int) error {
	dir := os.NewFile(uintptr(fd), "directory of a volume")
	defer func() { _ = dir.Close() }() // an error of Close can be ignored: the directory was only read
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat directory: %w", err)
	}
	if t.enter != nil && !t.enter(&stat) {
		return nil
	}
	if depth > maxDepth {
		return errTooDeep
	}
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := t.entry(fd, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return t.visit(fd, &stat)
		}
		if err != nil {
			return fmt.Errorf("list directory: %w", err)
		}
	}
}

// entry visits an entry of an open directory. It does nothing if the entry no longer exists.
func (t tree) entry(dir int, name string, depth int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // a running pod may remove files at any time
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	// An error of close can be ignored: the descriptor was opened with O_PATH and writes no data.
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat %q: %w", name, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return t.visit(fd, &stat)
	}
	below, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	return t.directory(below, depth+1)
}
