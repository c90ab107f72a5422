// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/beneath"
)

// The names of the writer's own entries in a volume, and the maximum lengths of paths and names in
// it.
const (
	dataName    = "..data"
	newDataName = "..data_tmp"
	stampLayout = "..2006_01_02_15_04_05."
	maxName     = 255
	maxPath     = 4096
)

// writer writes the files of a volume so that a reader sees either all old or all new files:
//
//	file             -> ..data/file
//	..data           -> ..2006_01_02_15_04_05.123456789
//	..2006_01_02_... the directory with the files
//
// An update writes the files into a new directory, and then replaces the link ..data by a rename.
// If the kubelet is killed at any point, the next write completes the update.
//
// Containers mount the volume read-only, but root of a user namespace may be able to remount it
// writable. So the writer does not follow links out of the volume, and opens only regular files,
// because opening a pipe could block.
type writer struct {
	dir   string
	clock clock.Clock
	// own changes the group of all files of the volume to the pod's fsGroup. It is called before
	// new files become visible. It may be nil.
	own func() error
}

// write replaces the whole content of the volume by files. The keys of files are paths in the
// volume.
func (w writer) write(files map[string]file) error {
	files, err := clean(files)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = root.Close() }() // an error of Close can be ignored for a directory: no written data depends on it
	if !w.same(root, files) {
		if err := w.replace(root, files); err != nil {
			return err
		}
	}
	if err := link(root, files); err != nil {
		return err
	}
	return w.removeStale(root, files)
}

// clean returns a copy of files whose keys are cleaned paths, or an error if a path is invalid.
func clean(files map[string]file) (map[string]file, error) {
	out := make(map[string]file, len(files))
	for path, f := range files {
		if err := checkPath(path); err != nil {
			return nil, err
		}
		out[filepath.Clean(path)] = f
	}
	return out, nil
}

// checkPath returns an error if a path leads out of the volume, is too long, or conflicts with the
// writer's own names, which start with "..".
func checkPath(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("invalid path: must not be empty: %q", path)
	case filepath.IsAbs(path):
		return fmt.Errorf("invalid path: must be relative path: %s", path)
	case len(path) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", path)
		}
		if len(name) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	if strings.HasPrefix(path, "..") {
		return fmt.Errorf("invalid path: must not start with '..': %s", path)
	}
	return nil
}

// same reports whether the volume already has exactly the wanted files. It does not compare modes:
// the wanted modes never change during the pod's lifetime, and an fsGroup changes the actual modes.
// A file that cannot be read counts as different, so that it is written again.
func (w writer) same(root *os.Root, want map[string]file) bool {
	current, err := root.Readlink(dataName)
	if err != nil {
		return false
	}
	have, err := w.visible(current)
	if err != nil || len(have) != len(want) {
		return false
	}
	for path, f := range want {
		if !w.hasContent(filepath.Join(current, path), f.data) {
			return false
		}
	}
	return true
}

// visible returns the paths of all files below a directory of the volume.
func (w writer) visible(dir string) ([]string, error) {
	f, err := beneath.OpenNoLinks(w.dir, dir)
	if err != nil {
		return nil, fmt.Errorf("list volume: %w", err)
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("list volume: %w", err)
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			out = append(out, path)
			continue
		}
		below, err := w.visible(path)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

// hasContent reports whether the file at path contains exactly data.
func (w writer) hasContent(path string, data []byte) bool {
	f, err := beneath.OpenNoLinks(w.dir, path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // an error of Close can be ignored: the file was only read
	got, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
	return err == nil && bytes.Equal(got, data)
}

// replace writes the files into a new directory and then lets ..data point to it.
func (w writer) replace(root *os.Root, files map[string]file) error {
	path, err := os.MkdirTemp(w.dir, w.clock.Now().UTC().Format(stampLayout))
	if err != nil {
		return fmt.Errorf("new data directory: %w", err)
	}
	stamp := filepath.Base(path)
	if err := w.fill(root, stamp, files); err != nil {
		_ = root.RemoveAll(stamp) // the next write removes the directory if this fails
		return err
	}
	return w.removeOldData(root, stamp)
}

func (w writer) fill(root *os.Root, stamp string, files map[string]file) error {
	data, err := root.OpenRoot(stamp)
	if err != nil {
		return fmt.Errorf("new data directory: %w", err)
	}
	defer func() { _ = data.Close() }()            // an error of Close can be ignored for a directory
	if err := data.Chmod(".", 0o755); err != nil { // MkdirTemp creates the directory with mode 0700
		return fmt.Errorf("new data directory: %w", err)
	}
	for path, f := range files {
		if err := writeFile(data, path, f); err != nil {
			return err
		}
	}
	if w.own != nil {
		if err := w.own(); err != nil {
			return err
		}
	}
	// An earlier process that was killed at this point may have left the link.
	if err := root.Remove(newDataName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old link: %w", err)
	}
	if err := root.Symlink(stamp, newDataName); err != nil {
		return fmt.Errorf("link data: %w", err)
	}
	if err := root.Rename(newDataName, dataName); err != nil {
		return fmt.Errorf("switch data: %w", err)
	}
	return nil
}

// writeFile creates a file.
func writeFile(data *os.Root, path string, f file) error {
	if err := data.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	mode := fs.FileMode(f.mode) & fs.ModePerm
	out, err := data.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = out.Write(f.data)
	if err == nil {
		err = out.Chmod(mode) // sets the mode independently of the umask
	}
	if err == nil && f.user != nil {
		err = out.Chown(int(*f.user), -1)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// removeOldData removes every data directory except the current one.
func (w writer) removeOldData(root *os.Root, current string) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == current || !strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if err := root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("remove old data: %w", err)
		}
	}
	return nil
}

// link creates the links in the volume's root directory that point into ..data.
func link(root *os.Root, files map[string]file) error {
	for _, name := range firstNames(files) {
		err := root.Symlink(filepath.Join(dataName, name), name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link file: %w", err)
		}
	}
	return nil
}

// removeStale removes links in the root directory to files that no longer exist, including those
// that a killed process left.
func (w writer) removeStale(root *os.Root, files map[string]file) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	keep := firstNames(files)
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink || slices.Contains(keep, e.Name()) {
			continue
		}
		if to, err := root.Readlink(e.Name()); err != nil || to != filepath.Join(dataName, e.Name()) {
			continue
		}
		if err := root.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove link: %w", err)
		}
	}
	return nil
}

// firstNames returns the first element of each path, without duplicates.
func firstNames(files map[string]file) []string {
	var out []string
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
