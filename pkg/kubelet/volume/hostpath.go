// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// makeHostPath checks that a path of the node has the type that the volume requires. For the types
// DirectoryOrCreate and FileOrCreate it creates a missing path.
func makeHostPath(s *v1.HostPathVolumeSource, readOnly bool) (prepared, error) {
	if err := checkBacksteps(s.Path); err != nil {
		return prepared{}, fmt.Errorf("invalid HostPath `%s`: %w", s.Path, err)
	}
	if s.Type != nil && *s.Type != v1.HostPathUnset {
		if err := checkHostPath(s.Path, *s.Type); err != nil {
			return prepared{}, err
		}
	}
	return prepared{path: s.Path, readOnly: readOnly}, nil
}

func checkBacksteps(path string) error {
	if slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return errors.New("must not contain '..'")
	}
	return nil
}

// hostPathKind returns a function that reports whether a file is of a hostPath type, and the name of
// this type in error messages. ok is false if the type is unknown.
func hostPathKind(kind v1.HostPathType) (is func(fs.FileMode) bool, noun string, ok bool) {
	switch kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return fs.FileMode.IsDir, "a directory", true
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return fs.FileMode.IsRegular, "a file", true
	case v1.HostPathSocket:
		return func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }, "a socket file", true
	case v1.HostPathCharDev:
		return func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }, "a character device", true
	case v1.HostPathBlockDev:
		return isBlockDevice, "a block device", true
	}
	return nil, "", false
}

func isBlockDevice(m fs.FileMode) bool { return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0 }

func checkHostPath(path string, kind v1.HostPathType) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			return makeNodeDir(path)
		case v1.HostPathFileOrCreate:
			return makeNodeFile(path)
		}
	}
	is, noun, ok := hostPathKind(kind)
	switch {
	case !ok:
		return fmt.Errorf("%s is an invalid volume type", kind)
	case err != nil || !is(info.Mode()):
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, noun)
	}
	return nil
}

func makeNodeDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make hostPath: %w", err)
	}
	return nil
}

// makeNodeFile creates an empty file. Its directory must exist.
func makeNodeFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("make hostPath: %w", err)
	}
	return f.Close()
}
