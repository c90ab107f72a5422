// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files is a file system with the files of a directory, such as the node's log directory. A pod may
// have the directory as a volume and create any file in it. So symbolic links are followed only if
// their targets are inside the directory, and only regular files and directories are opened.
// Absolute links are allowed, because links in /var/log/containers are absolute and lead to
// /var/log/pods.
type Files string

var _ fs.StatFS = Files("")

// escapeError is the error for a link that leads out of the directory. It has the text of
// [os.Root]'s error for that. HTTP servers answer it with 403.
type escapeError struct{}

func (escapeError) Error() string        { return "path escapes from parent" }
func (escapeError) Is(target error) bool { return target == fs.ErrPermission }

// Open implements fs.FS.
func (l Files) Open(name string) (fs.File, error) {
	f, err := l.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return f, nil
}

// Stat implements fs.StatFS.
func (l Files) Stat(name string) (fs.FileInfo, error) {
	f, err := l.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "statat", Path: name, Err: err}
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Close())
}

// open opens a file or directory. Its errors contain nothing about files outside the directory.
func (l Files) open(name string) (*os.File, error) {
	if !filepath.IsLocal(name) {
		return nil, escapeError{}
	}
	f, err := Open(string(l), name)
	switch cause := (syscall.Errno)(0); {
	case err == nil:
		return f, nil
	case errors.Is(err, ErrSpecial):
		return nil, fs.ErrPermission
	case errors.Is(err, unix.EXDEV):
		return l.openAbsolute(name)
	case errors.As(err, &cause):
		return nil, cause
	}
	return nil, err
}

// openAbsolute opens a file by resolving absolute links to targets in the directory. It opens the
// resolved name without following links, so a link that is replaced in between cannot lead out of
// the directory.
func (l Files) openAbsolute(name string) (*os.File, error) {
	rel, err := Resolve(string(l), name)
	if err != nil {
		return nil, escapeError{}
	}
	f, err := OpenNoLinks(string(l), rel)
	if err != nil {
		return nil, fs.ErrPermission
	}
	return f, nil
}
