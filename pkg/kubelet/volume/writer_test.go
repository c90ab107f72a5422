// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// seen returns the files as a user of the volume sees them: their content by path, with links
// followed.
func seen(t interface{ Fatal(...any) }, dir string) map[string]string {
	out := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			path := filepath.Join(rel, e.Name())
			if strings.HasPrefix(path, "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path)
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			out[path] = string(b)
		}
	}
	walk("")
	return out
}

// TestWriter writes random sets of files one after the other. Before each write it creates the
// files that a killed writer would leave. It checks that the volume shows exactly the files of the
// last write.
func TestWriter(t *testing.T) {
	newDir := t.TempDir
	rapid.Check(t, func(t *rapid.T) {
		dir := newDir()
		w := writer{dir: dir, clock: clock.Real()}
		for range rapid.IntRange(1, 5).Draw(t, "writes") {
			// None of these names is the parent directory of another, so every set of them can be
			// written.
			want := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "d/x", "d/y", "d/e/z", "long/f"}),
				rapid.SampledFrom([]string{"", "1", "2"})).Draw(t, "files")
			files := map[string]file{}
			for path, data := range want {
				files[path] = file{data: []byte(data), mode: 0o644}
			}
			if err := w.write(files); err != nil {
				t.Fatal(err)
			}
			if got := seen(t, dir); !maps.Equal(got, want) {
				t.Fatalf("seen %v, want %v", got, want)
			}
			entries, _ := os.ReadDir(dir)
			stamps := 0
			for _, e := range entries {
				if e.Type() == fs.ModeDir && strings.HasPrefix(e.Name(), "..") {
					stamps++
				}
			}
			if stamps > 2 { // the current directory, and one that a killed writer has left
				t.Fatalf("%d data directories", stamps)
			}
			leave(t, dir, rapid.IntRange(0, 3).Draw(t, "left"))
		}
	})
}

// leave creates in dir the files that a killed writer leaves. The argument what selects the point
// at which it was killed; 0 means that it leaves nothing.
func leave(t *rapid.T, dir string, what int) {
	var err error
	switch what {
	case 1:
		err = os.Mkdir(filepath.Join(dir, "..2020_01_01_00_00_00.1"), 0o755)
	case 2:
		err = os.Symlink("..2020_01_01_00_00_00.1", filepath.Join(dir, newDataName))
	case 3:
		err = os.Symlink(filepath.Join(dataName, "stale"), filepath.Join(dir, "stale"))
	}
	if err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

func TestWriterErrors(t *testing.T) {
	w := writer{dir: t.TempDir(), clock: clock.Real()}
	for path, want := range map[string]string{
		"":                       `invalid path: must not be empty: ""`,
		"/abs":                   "invalid path: must be relative path: /abs",
		"a/../b":                 "invalid path: must not contain '..': a/../b",
		"..x":                    "invalid path: must not start with '..': ..x",
		strings.Repeat("x", 256): "invalid path: filenames must be less than or equal to 255 characters",
	} {
		if err := w.write(map[string]file{path: {}}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
}

// TestWriterKeeps writes the same files twice and checks that the second write does not replace the
// data directory, which readers may have open.
func TestWriterKeeps(t *testing.T) {
	w := writer{dir: t.TempDir(), clock: clock.Real()}
	files := map[string]file{"a": {data: []byte("1"), mode: 0o600}}
	var links [2]string
	for i := range links {
		if err := w.write(files); err != nil {
			t.Fatal(err)
		}
		links[i], _ = os.Readlink(filepath.Join(w.dir, dataName))
	}
	if links[0] == "" || links[0] != links[1] {
		t.Errorf("links %v", links)
	}
	if err := os.Remove(filepath.Join(w.dir, "a")); err != nil { // a user removes a link
		t.Fatal(err)
	}
	if err := w.write(files); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, w.dir, "a"); got != 0o600 {
		t.Errorf("mode %v", got)
	}
}
