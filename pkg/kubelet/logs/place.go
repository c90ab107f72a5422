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

// A log is at ROOT/POD/CONTAINER/FILE. Pods that have the node's /var/log as a volume can change what is below the
// root, so nothing there is a symbolic link, and no log is anything but a regular file.

// place splits the path of a log, or of its directory, of which parts names are below the root.
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

// Open opens a log for reading, or a renamed one.
func Open(path string) (*os.File, error) {
	root, name := place(path, partsOfFile)
	return beneath.OpenNoLinks(root, name)
}

// openDirectory opens the directory of a log, to change what is in it.
func openDirectory(path string) (*os.Root, error) {
	root, name := place(filepath.Dir(path), partsOfDirectory)
	return beneath.OpenRoot(root, name)
}

// renamed returns the paths of the renamed files of a log.
func renamed(path string) ([]string, error) {
	root, name := place(filepath.Dir(path), partsOfDirectory)
	dir, err := beneath.OpenNoLinks(root, name)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	defer func() { _ = dir.Close() }() // it was only read
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
