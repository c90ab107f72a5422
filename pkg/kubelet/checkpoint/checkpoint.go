// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps in files the little that the kubelet cannot ask the API,
// the runtime or the disk for. A file is replaced as a whole: a process that dies at
// any moment leaves the old content or the new one, and so does a machine if the file
// was written durably, which takes the disk's time.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Read decodes a file into v and tells whether it is there.
func Read(path string, v any) (found bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// Write makes v the content of a file.
func Write(path string, v any) error { return write(path, v, func(*os.File) error { return nil }) }

// WriteDurably makes v the content of a file and returns when that is on the disk.
func WriteDurably(path string, v any) error { return write(path, v, (*os.File).Sync) }

func write(path string, v any, sync func(*os.File) error) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, sync(f), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(sync(dir), dir.Close())
}
