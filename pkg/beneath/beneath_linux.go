// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package beneath opens files below directories that containers can change at any time, such as
// volumes and logs.
//
// Checking a path before it is opened is not enough: in between, a container can replace a
// directory by a symbolic link. In this package, the kernel resolves each path in one step. The
// type of the file is then checked through a descriptor, before the file is opened for reading.
//
// Invariants:
//
//   - No symbolic link and no ".." leads out of the directory.
//   - Except by OpenAt, only regular files and directories are opened. Opening a named pipe would
//     block, and opening a device can have side effects: a container with CAP_MKNOD could make the
//     kubelet start the watchdog of the node.
//
// The directory itself and the path to it are trusted.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrSpecial is the error for a pipe, a socket or a device.
var ErrSpecial = errors.New("not a regular file")

// maxAttempts is how many times the kernel is asked to resolve a path if concurrent renames prevent
// this.
const maxAttempts = 1000

// Open opens a regular file or a directory below dir for reading. It follows symbolic links whose
// targets are below dir. It does not follow absolute links.
func Open(dir, name string) (*os.File, error) {
	return open(dir, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenNoLinks does the same as Open, but fails if name contains a symbolic link.
func OpenNoLinks(dir, name string) (*os.File, error) {
	return open(dir, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
}

// OpenRoot opens a directory below dir. It fails if name contains a symbolic link.
func OpenRoot(dir, name string) (*os.Root, error) {
	f, err := OpenNoLinks(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the root has a descriptor of its own
	return os.OpenRoot(Path(int(f.Fd())))
}

func open(dir, name string, resolve uint64) (*os.File, error) {
	path := filepath.Join(dir, name)
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	// The descriptor is only a reference (O_PATH), so an error of close does not matter.
	defer func() { _ = unix.Close(root) }()
	fd, err := openat2(root, name, unix.O_PATH, resolve)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	// The descriptor is only a reference (O_PATH), so an error of close does not matter.
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrSpecial}
	}
	opened, err := unix.Open(Path(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(opened), path), nil
}

// Path returns a path by which this process can open the file behind one of its descriptors. It
// works even if the file was renamed.
func Path(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// OpenAt opens a path below the directory with descriptor root. flags are those of open(2). It
// follows symbolic links whose targets are below root. Unlike Open, it does not check the file's type.
func OpenAt(root int, path string, flags uint64) (int, error) {
	fd, err := openat2(root, path, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// Resolve returns the path, relative to dir, of an existing file below dir, with all symbolic links
// resolved. Unlike Open, it also follows absolute links to targets below dir. If the file is not
// below dir, the error is EXDEV. A container may replace links after that, so open the result with
// OpenAt or OpenNoLinks.
func Resolve(dir, name string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", &fs.PathError{Op: "resolve", Path: name, Err: unix.EXDEV}
	}
	return rel, nil
}

func openat2(root int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for attempt := 1; ; attempt++ {
		fd, err := unix.Openat2(root, path, &how)
		// EAGAIN means that a file or directory was renamed meanwhile, so try again.
		again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
		if !again || attempt == maxAttempts {
			return fd, err
		}
	}
}
