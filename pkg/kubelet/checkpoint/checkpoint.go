// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores the small amount of state that the kubelet cannot read from the API,
// the runtime or the disk after a restart. A file is always replaced as a whole: if the process is
// killed during a write, the file has either the old or the new content. If the machine crashes,
// this is guaranteed only for files written by WriteDurably, which is slower than Write.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Read decodes the JSON in a file into v. It reports whether the file exists.
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

// Write replaces the content of a file by v, encoded as JSON.
func Write(path string, v any) error { return write(path, v, atomicfile.Write) }

// WriteDurably replaces the content of a file by v, encoded as JSON. It returns when the new
// content is on the disk.
func WriteDurably(path string, v any) error { return write(path, v, atomicfile.WriteDurably) }

func write(path string, v any, write func(file string, data []byte, mode os.FileMode) error) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return write(path, b, 0o600)
}
