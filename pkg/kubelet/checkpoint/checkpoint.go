// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores the small state that the kubelet cannot read from the API, the runtime
// or the disk. It replaces a file as a whole: if the process is killed meanwhile, the file has the
// old or the new content. After a crash of the machine the same holds for files written durably,
// which is slower.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Read decodes a file into v and reports whether the file exists.
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

// Write replaces the content of a file by v.
func Write(path string, v any) error { return write(path, v, func(*os.File) error { return nil }) }

// WriteDurably replaces the content of a file by v and returns when the new content is on the disk.
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
