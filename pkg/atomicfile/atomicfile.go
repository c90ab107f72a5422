// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces the contents of files: a reader finds the old content or the new one.
//
// The new content is first written to FILE.new, which the next write of the same file overwrites if
// a crash left it. So only one goroutine at a time may write a file.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the content of a file, and makes its directory (mode 0755) if that does not exist.
// The permissions of a new file are mode, less the umask. If the machine loses power, the content
// may be lost.
func Write(file string, data []byte, mode os.FileMode) error {
	return write(file, data, mode, false)
}

// WriteDurably is like Write, but returns when the new content is on the disk. If the machine loses
// power before that, the file has the old content or the new one.
func WriteDurably(file string, data []byte, mode os.FileMode) error {
	return write(file, data, mode, true)
}

func write(file string, data []byte, mode os.FileMode, durably bool) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory of %s: %w", file, err)
	}
	fresh, err := os.OpenFile(file+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	_, err = fresh.Write(data)
	if durably {
		err = errors.Join(err, fresh.Sync())
	}
	if err = errors.Join(err, fresh.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if !durably {
		return nil
	}
	return SyncDir(dir) // the new name is on the disk only after its directory is
}

// SyncDir returns when the names of the files in a directory are on the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return nil
}
