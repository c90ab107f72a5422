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

// Files is a directory, such as the node's log directory, as a file system. A pod that has it as a
// volume can create any file there. So only symbolic links to targets inside the directory are
// followed (links in /var/log/containers are absolute and lead to /var/log/pods), and only regular
// files and directories are opened.
type Files string

var _ fs.StatFS = Files("")

// escapeError is the error for a link that leads out of the directory. Its text is the same as that
// of [os.Root]'s error. HTTP servers respond to it with 403.
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

// open opens a file or directory. Its errors reveal nothing about files outside the directory.
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

// openAbsolute opens the target of an absolute link in the directory. It first resolves the link
// and then opens the resolved name without following links, so that replacing the link in between
// has no effect.
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
