// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tree returns a layer with all files below a directory, except devices and sockets.
func tree(root string) (layer, error) {
	var out layer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := int64(info.Mode().Perm())
		if info.Mode()&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		switch info.Mode().Type() {
		case fs.ModeDir:
			out = append(out, directory(name, mode))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			out = append(out, symlink(name, target))
		case 0:
			out = append(out, entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, Source: path})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("files below %s: %w", root, err)
	}
	return out, nil
}
