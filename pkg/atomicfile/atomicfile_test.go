// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/atomicfile"
)

// TestWrite replaces a file, and checks its content and mode, and that nothing else is left.
func TestWrite(t *testing.T) {
	for name, write := range map[string]func(string, []byte, os.FileMode) error{
		"Write": atomicfile.Write, "WriteDurably": atomicfile.WriteDurably} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "dir")
			file := filepath.Join(dir, "f")
			for i, data := range []string{"one", "longer", ""} {
				if i == 1 { // as a crash leaves it
					if err := os.WriteFile(file+".new", []byte("of an earlier write"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := write(file, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(file)
				info, statErr := os.Stat(file)
				if err != nil || statErr != nil || string(got) != data || info.Mode().Perm() != 0o600 {
					t.Errorf("%q, %v, %v; want %q", got, err, statErr, data)
				}
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the directory has %v, %v", entries, err)
			}
			if err := write(filepath.Join(file, "below"), nil, 0o600); err == nil {
				t.Error("a file was taken for a directory")
			}
			if err := write(dir, nil, 0o600); err == nil {
				t.Error("a directory was replaced by a file")
			}
		})
	}
}
