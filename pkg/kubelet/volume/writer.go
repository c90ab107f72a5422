// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"keelson.dev/api/clock"
)

// The names of a content volume's own entries, and how long a path in it may be.
const (
	dataName    = "..data"
	newDataName = "..data_tmp"
	stampLayout = "..2006_01_02_15_04_05."
	maxName     = 255
	maxPath     = 4096
)

// writer writes the files of a volume so that a reader sees all of the old ones or all of the new ones:
//
//	file             -> ..data/file
//	..data           -> ..2006_01_02_15_04_05.123456789
//	..2006_01_02_... the files themselves
//
// New files go into a new directory, then the link ..data is replaced by a rename. It can be killed at
// any point: the next write goes on from there.
type writer struct {
	dir   string
	clock clock.Clock
	// own, if not nil, gives the whole volume to the pod's group. It is called before new files become visible.
	own func() error
}

// write makes files, by path in the volume, the volume's only content.
func (w writer) write(files map[string]file) error {
	files, err := clean(files)
	if err != nil {
		return err
	}
	old, err := os.Readlink(filepath.Join(w.dir, dataName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read data link: %w", err)
	}
	current := ""
	if old != "" {
		current = filepath.Join(w.dir, old)
	}
	have, err := visible(current)
	if err != nil {
		return err
	}
	if current == "" || !same(current, have, files) {
		if err := w.replace(files); err != nil {
			return err
		}
	}
	if err := w.link(files); err != nil {
		return err
	}
	return w.removeStale(files)
}

// clean returns the files by their cleaned paths.
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

// checkPath refuses what would lie outside the volume or clash with the writer's own names.
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

// visible returns the paths of the files below dir; none if dir is empty or gone.
func visible(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out = append(out, rel)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list volume: %w", err)
	}
	return out, nil
}

// same tells whether the files in dir, whose paths are have, are those wanted. Modes are
// not compared: they cannot change while the pod lives, and an fsGroup widens them.
func same(dir string, have []string, want map[string]file) bool {
	if len(have) != len(want) {
		return false
	}
	for path, f := range want {
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !bytes.Equal(data, f.data) {
			return false
		}
	}
	return true
}

// replace writes the files into a new directory and makes it the current one.
func (w writer) replace(files map[string]file) error {
	stamp, err := os.MkdirTemp(w.dir, w.clock.Now().UTC().Format(stampLayout))
	if err != nil {
		return fmt.Errorf("new data directory: %w", err)
	}
	if err := w.fill(stamp, files); err != nil {
		_ = os.RemoveAll(stamp) // what is left of it goes with the next write
		return err
	}
	return w.removeOldData(filepath.Base(stamp))
}

func (w writer) fill(stamp string, files map[string]file) error {
	if err := os.Chmod(stamp, 0o755); err != nil { // MkdirTemp makes it 0700
		return fmt.Errorf("new data directory: %w", err)
	}
	for path, f := range files {
		if err := writeFile(filepath.Join(stamp, path), f); err != nil {
			return err
		}
	}
	if w.own != nil {
		if err := w.own(); err != nil {
			return err
		}
	}
	tmp := filepath.Join(w.dir, newDataName)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a writer that was killed here
		return fmt.Errorf("remove old link: %w", err)
	}
	if err := os.Symlink(filepath.Base(stamp), tmp); err != nil {
		return fmt.Errorf("link data: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(w.dir, dataName)); err != nil {
		return fmt.Errorf("switch data: %w", err)
	}
	return nil
}

func writeFile(path string, f file) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	mode := fs.FileMode(f.mode) & fs.ModePerm
	if err := os.WriteFile(path, f.data, mode); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		return fmt.Errorf("write file: %w", err)
	}
	if f.user != nil {
		if err := os.Chown(path, int(*f.user), -1); err != nil {
			return fmt.Errorf("write file: %w", err)
		}
	}
	return nil
}

// removeOldData removes every data directory but the current one.
func (w writer) removeOldData(current string) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == current || !strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(w.dir, e.Name())); err != nil {
			return fmt.Errorf("remove old data: %w", err)
		}
	}
	return nil
}

// link makes the links by which users see the files.
func (w writer) link(files map[string]file) error {
	for _, name := range firstNames(files) {
		err := os.Symlink(filepath.Join(dataName, name), filepath.Join(w.dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link file: %w", err)
		}
	}
	return nil
}

// removeStale removes the links to what is no more, including those that an earlier writer did not come to.
func (w writer) removeStale(files map[string]file) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	keep := firstNames(files)
	for _, e := range entries {
		path := filepath.Join(w.dir, e.Name())
		if e.Type() != fs.ModeSymlink || slices.Contains(keep, e.Name()) {
			continue
		}
		if to, err := os.Readlink(path); err != nil || to != filepath.Join(dataName, e.Name()) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove link: %w", err)
		}
	}
	return nil
}

// firstNames returns the first element of each path, once.
func firstNames(files map[string]file) []string {
	var out []string
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
