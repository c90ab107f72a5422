// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxOpenLevels is the maximum number of nested directories that are open at the same time while a
// volume is removed.
const maxOpenLevels = 128

// removeTree removes a directory and everything in it. Containers can nest directories without a
// limit. [os.RemoveAll] needs a descriptor for each level, so that one pod could use up the
// kubelet's descriptors. removeTree opens at most maxOpenLevels levels: it moves a deeper directory
// into path before it empties that directory.
func removeTree(path string) error {
	top, err := openDir(unix.AT_FDCWD, path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = top.Close() }() // an error of Close can be ignored: the directory was only read
	r := remover{top: int(top.Fd())}
	if err := r.empty(top, 1); err != nil {
		return fmt.Errorf("empty %s: %w", path, err)
	}
	return os.Remove(path)
}

// openDir opens a directory, but not through a symbolic link.
func openDir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Base(name)), nil
}

// remover removes the contents of a directory tree, whose root is top.
type remover struct {
	top   int
	moved int // number of directories that moveUp has moved to top
}

// empty removes everything in an open directory, which is at the given depth of the tree.
func (r *remover) empty(dir *os.File, depth int) error {
	for {
		// Read the directory again, because moveUp may have added entries.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("list directory: %w", err)
		}
		names, err := dir.Readdirnames(namesAtOnce)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list directory: %w", err)
		}
		for _, name := range names {
			if err := r.remove(int(dir.Fd()), name, depth); err != nil {
				return err
			}
		}
	}
}

// remove removes an entry of an open directory. If the entry is a directory at the maximum depth,
// remove moves it to the directory top instead, where the method empty finds it later.
func (r *remover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR):
		return fmt.Errorf("remove %q: %w", name, err)
	case depth == maxOpenLevels:
		return r.moveUp(dir, name)
	}
	below, err := openDir(dir, name)
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	if err := errors.Join(r.empty(below, depth+1), below.Close()); err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// moveUp moves an entry of an open directory into top, under a name that is not in use.
func (r *remover) moveUp(dir int, name string) error {
	for {
		r.moved++
		err := unix.Renameat2(dir, name, r.top, ".removed-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}
