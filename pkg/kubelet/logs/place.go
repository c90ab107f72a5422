// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"keelson.dev/keelson/pkg/beneath"
)

// A log is at ROOT/POD/CONTAINER/FILE. A pod that mounts the node's /var/log as a volume can change
// everything below the root. So the functions below follow no symbolic links there, and accept only
// regular files as logs.

// place splits the path of a log, or of its directory, into the root directory and the path below
// it. parts is the number of elements of the path below the root.
func place(path string, parts int) (root, name string) {
	for root = path; parts > 0; parts-- {
		name = filepath.Join(filepath.Base(root), name)
		root = filepath.Dir(root)
	}
	return root, name
}

const (
	partsOfDirectory = 2
	partsOfFile      = 3
)

// Open opens a log for reading. The log may be the one that is being written or a rotated one.
func Open(path string) (*os.File, error) {
	root, name := place(path, partsOfFile)
	return beneath.OpenNoLinks(root, name)
}

// openDirectory opens the directory of the log at path, so that files in it can be renamed or
// removed.
func openDirectory(path string) (*os.Root, error) {
	root, name := place(filepath.Dir(path), partsOfDirectory)
	return beneath.OpenRoot(root, name)
}

// renamed returns the paths of the files of a log that rotation has renamed.
func renamed(path string) ([]string, error) {
	root, name := place(filepath.Dir(path), partsOfDirectory)
	dir, err := beneath.OpenNoLinks(root, name)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	defer func() { _ = dir.Close() }() // an error of Close can be ignored: the directory was only read
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") && !e.IsDir() {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return out, nil
}
